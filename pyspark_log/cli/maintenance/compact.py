"""`pylog compact`: keeps the last record of each key."""

from __future__ import annotations

import click

from pyspark_log.cli.support import (
    NOTHING,
    ProgressBar,
    complete_topics,
    human_size,
    json_option,
    print_json,
    print_table,
    warn,
)
from pyspark_log.cli.target import Target
from pyspark_log.storage.compaction import Outcome, uncleanable
from pyspark_log.storage.compaction import compact as compact_store
from pyspark_log.storage.kinds import by_store
from pyspark_log.types import TopicPartition


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@json_option
@click.pass_obj
def compact(target: Target, topic: str | None, as_json: bool) -> None:
    """Compact TOPIC: keep the last record of each key. Offsets and order do not change.

    Without TOPIC, compacts the topics that are due by their min.cleanable.dirty.ratio and max.compaction.lag.ms; with
    it, all that can be compacted. The active segment and records younger than min.compaction.lag.ms stay as they are.
    Other processes may read and write meanwhile. The exit code is 1 if a partition cannot be compacted; from then on it
    is skipped, with a warning, until its topic is named.
    """
    store = target.open()
    with ProgressBar("compact") as progress:
        outcomes = by_store(
            store,
            folder=lambda store: list(compact_store(store.logs, topic, progress)),
            objects=lambda store: store.compact(topic, progress),
        )
    skipped: dict[TopicPartition, str] = by_store(
        store, folder=lambda store: uncleanable(store.logs), objects=lambda _store: {}
    )
    for at, reason in skipped.items() if topic is None else ():
        if at not in {outcome.at for outcome in outcomes}:
            again = f"`pylog compact {at.topic}` tries again"
            warn(f"{at} is skipped, because it could not be compacted: {reason} ({again})")
    if as_json:
        print_json([_document(outcome) for outcome in outcomes])
    elif outcomes:
        print_table(
            ("PARTITION", "RECORDS", "LEFT", "SIZE", "LEFT", "CLEANED TO", "SECONDS", "PROBLEM"), map(_row, outcomes)
        )
    else:
        click.echo("nothing to compact")
    if any(outcome.problem for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _document(outcome: Outcome) -> dict[str, object]:
    total = outcome.total
    return {
        "topic": outcome.at.topic,
        "partition": outcome.at.partition,
        "records_before": total.records_before if total else 0,
        "records_after": total.records_after if total else 0,
        "bytes_before": total.bytes_before if total else 0,
        "bytes_after": total.bytes_after if total else 0,
        "cleaned_to": total.cleaned_to if total else None,
        "seconds": round(outcome.seconds, 3),
        "problem": outcome.problem,
    }


def _row(outcome: Outcome) -> tuple[object, ...]:
    done: tuple[object, ...] = (NOTHING,) * 5
    if total := outcome.total:
        done = (
            total.records_before,
            total.records_after,
            human_size(total.bytes_before),
            human_size(total.bytes_after),
            total.cleaned_to,
        )
    return str(outcome.at), *done, f"{outcome.seconds:.2f}", " ".join(outcome.problem.split()) or NOTHING
