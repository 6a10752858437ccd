"""`pylog compact`: of each key the last record stays."""

from __future__ import annotations

import click

from pyspark_log.cli.output import NOTHING, human_size, json_option, print_json, print_table
from pyspark_log.cli.target import Target
from pyspark_log.cli.verify import ProgressLine
from pyspark_log.storage.log_cleaner import Outcome
from pyspark_log.storage.log_cleaner import compact as clean


@click.command()
@click.argument("topic", required=False)
@json_option
@click.pass_obj
def compact(target: Target, topic: str | None, as_json: bool) -> None:
    """Compact TOPIC: of the records with one key the last one stays. Offsets and order do not change.

    Without TOPIC, all compacted topics for which it is time, by their min.cleanable.dirty.ratio and
    max.compaction.lag.ms; with it, whatever there is. The segment that is being appended to is never touched, nor are
    records younger than min.compaction.lag.ms. Others may read and write meanwhile. Ends with code 1 if a
    partition cannot be compacted.
    """
    progress = ProgressLine()
    try:
        outcomes = list(clean(target.open(), topic, progress))
    finally:
        progress.clear()
    if as_json:
        print_json([_document(outcome) for outcome in outcomes])
    elif outcomes:
        print_table(
            ("PARTITION", "RECORDS", "LEFT", "SIZE", "LEFT", "CLEANED TO", "SECONDS", "PROBLEM"), map(_row, outcomes)
        )
    else:
        click.echo("nothing is to be compacted")
    if any(outcome.problem for outcome in outcomes):
        raise click.exceptions.Exit(1)


def _document(outcome: Outcome) -> dict[str, object]:
    first, last = outcome.rounds[:1], outcome.rounds[-1:]
    return {
        "topic": outcome.at.topic,
        "partition": outcome.at.partition,
        "records_before": sum(one.records_before for one in first),
        "records_after": sum(one.records_after for one in last),
        "bytes_before": sum(one.bytes_before for one in first),
        "bytes_after": sum(one.bytes_after for one in last),
        "cleaned_to": last[0].cleaned_to if last else None,
        "seconds": round(outcome.seconds, 3),
        "problem": outcome.problem,
    }


def _row(outcome: Outcome) -> tuple[object, ...]:
    known = _document(outcome)
    return (
        str(outcome.at), known["records_before"], known["records_after"],
        human_size(sum(one.bytes_before for one in outcome.rounds[:1])),
        human_size(sum(one.bytes_after for one in outcome.rounds[-1:])),
        NOTHING if known["cleaned_to"] is None else known["cleaned_to"], f"{outcome.seconds:.2f}",
        " ".join(outcome.problem.split()) or NOTHING,
    )  # fmt: skip
