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
    total = outcome.total
    return (
        str(outcome.at), total.records_before if total else 0, total.records_after if total else 0,
        human_size(total.bytes_before if total else 0), human_size(total.bytes_after if total else 0),
        total.cleaned_to if total else NOTHING, f"{outcome.seconds:.2f}", " ".join(outcome.problem.split()) or NOTHING,
    )  # fmt: skip
