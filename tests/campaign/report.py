"""What a campaign has found."""

import collections
import time

from pyspark_log.storage.maintenance.verify.store import verify
from tests.campaign.campaign import QUERIES, VICTIMS
from tests.campaign.compare import differences, sequences
from tests.campaign.steps import STEPS


def check(store, records):
    """All that is wrong with the outputs."""
    faults = []
    source = sequences(store, "events")
    if sum(len(sequence.numbers) for sequence in source.values()) != records:
        faults.append("the source has not what the producer appended")
    for name in QUERIES:
        wanted = sequences(store, f"{name}-undisturbed")
        if {key: one.numbers for key, one in wanted.items()} != {key: one.numbers for key, one in source.items()}:
            faults.append(f"{name}: the undisturbed run did not process all of the source")
        faults += [f"{name}: {line}" for line in differences(wanted, sequences(store, name))]
    verified = verify(store.path)
    return faults + [f"pylog verify: {finding}" for finding in verified.findings if finding.severity.value == "damage"]


def report(campaign, kills, records, faults):
    """The report, as text."""
    hits = campaign.hits
    victims = [victim for victim in (*VICTIMS, "executor") if any(hits[victim, step] for step in STEPS)]
    rows = [("step of the query aimed at", *victims, "all", "(the other)")]
    for step in STEPS:
        counts = [hits[victim, step] for victim in victims]
        rows.append((step, *counts, sum(counts), campaign.beside[step]))
    rows.append(("all", *(sum(column) for column in zip(*(row[1:] for row in rows[1:]), strict=True))))
    words = collections.Counter(line.split()[0] for driver in campaign.drivers for _, line in driver.lines if line)
    minutes = (time.monotonic() - campaign.begin) / 60
    published = ", ".join(f"{name} {campaign.number(name)[0] + 1}" for name in QUERIES)
    zombies = ", ".join(f"{count} {what}" for what, count in sorted(campaign.zombies.items()))
    table = ["".join([f"{row[0]:38}", *(f"{cell:>15}" for cell in row[1:])]) for row in rows]
    head = f"{kills} kills (seed {campaign.options.seed}, {campaign.master.partition(':')[0]}) in {minutes:.0f} minutes"
    return "\n".join(
        [
            f"{head}, {records} records in the source",
            "",
            *table,
            "",
            f"micro-batches published: {published}",
            f"drivers started: {len(campaign.drivers)}; queries: {words['started']}, {words['failed']} of them again "
            f"after a failure; told that they were replaced: {words['replaced']}",
            f"zombies: {zombies or 'none'}",
            f"drivers of which something was left 60 s after a part was killed: {campaign.left}",
            "",
            *([f"FAULT: {fault}" for fault in faults] or ["no record lost, doubled or out of order; no damage"]),
            "",
        ]
    )
