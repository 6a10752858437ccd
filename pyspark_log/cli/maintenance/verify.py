"""`pylog verify`: find damage anywhere in a store."""

from __future__ import annotations

import click

from pyspark_log.cli.support import (
    NOTHING,
    ProgressBar,
    alert,
    complete_topics,
    good,
    human_size,
    json_option,
    plural,
    print_json,
    print_table,
)
from pyspark_log.cli.target import Target
from pyspark_log.storage.maintenance.verify import Finding, Report
from pyspark_log.storage.maintenance.verify import verify as verify_store


@click.command()
@click.option("--topic", shell_complete=complete_topics, help="Only this topic.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many partitions to check at once. [default: one per processor]",
)
@json_option
@click.pass_obj
def verify(target: Target, topic: str | None, jobs: int | None, as_json: bool) -> None:
    """Check the whole store for damage.

    Reads every byte of every segment, the indexes, the states and the publishes. In the log dir of a Kafka broker it
    reads the segments, the checkpoints and the indexes of aborted transactions. In an object store it reads every
    piece of every partition, and the publish log with its checkpoints.

    Changes nothing and needs no write access; other processes may write meanwhile. The exit code is 1 if there is
    damage. Wrong indexes and notes are reported too, but are not damage.
    """
    with ProgressBar("verify") as progress:
        report = verify_store(target.store_path(), topic, jobs=jobs, progress=progress)
    show_report(report, as_json=as_json)
    if report.damaged:
        raise click.exceptions.Exit(1)


def show_report(report: Report, *, as_json: bool) -> None:
    """Prints what was found, as JSON or for people."""
    if as_json:
        print_json(_document(report))
    else:
        _print(report)


def _document(report: Report) -> dict[str, object]:
    totals = report.totals
    return {
        "damaged": report.damaged,
        "findings": [finding.to_dict() for finding in report.findings],
        "partitions": report.partitions,
        "segments": totals.segments,
        "batches": totals.batches,
        "records": totals.records,
        "bytes": totals.bytes,
        "seconds": round(report.seconds, 3),
    }


def _print(report: Report) -> None:
    if report.findings:
        print_table(
            ("SEVERITY", "WHERE", "WHAT", "WHAT TO DO"),
            [
                (finding.severity.value, _where(finding), " ".join(finding.what.split()), finding.advice or NOTHING)
                for finding in report.findings
            ],
        )
    totals = report.totals
    verdict = alert("DAMAGED") if report.damaged else good("no damage")
    click.echo(
        f"{verdict}: {plural(report.partitions, 'written partition')}, {plural(totals.segments, 'segment')}, "
        f"{totals.batches} batches, {plural(totals.records, 'record')}, {human_size(totals.bytes)} "
        f"in {report.seconds:.1f} s"
    )


def _where(finding: Finding) -> str:
    """The place that a finding is about: its file, the byte in it, and the offsets that are concerned."""
    parts = [finding.file]
    at = finding.topic if finding.partition < 0 else f"{finding.topic}-{finding.partition}"
    if at not in finding.file:
        parts.insert(0, at)
    if finding.position >= 0:
        parts.append(f"byte {finding.position}")
    if finding.first_offset >= 0:
        parts.append(f"offsets {finding.first_offset}.." + str(finding.next_offset - 1) * (finding.next_offset >= 0))
    return ", ".join(parts)
