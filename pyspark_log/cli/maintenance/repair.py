"""`pylog repair`: creates a repaired copy of a damaged store."""

from __future__ import annotations

import dataclasses

import click

from pyspark_log.cli.support import (
    NOTHING,
    ProgressBar,
    human_size,
    incomplete_if_interrupted,
    json_option,
    print_json,
    print_table,
)
from pyspark_log.cli.target import Target
from pyspark_log.storage.maintenance.repair import Loss, RepairReport
from pyspark_log.storage.maintenance.repair import repair as repair_store


@click.command()
@click.option("--into", required=True, metavar="FOLDER", type=click.Path(), help="A new or empty folder for the copy.")
@json_option
@click.pass_obj
def repair(target: Target, into: str, as_json: bool) -> None:
    """Create a repaired copy of a damaged store in a new folder.

    The store itself is not changed. Stop all writers first. Undamaged batches are copied with their offsets; damaged
    bytes are left out, reported, and kept in FOLDER/cut. The exit code is 1 if the copy lacks anything.
    """
    with incomplete_if_interrupted(into), ProgressBar("repair") as progress:
        report = repair_store(target.folder_path(), into, progress=progress)
    if as_json:
        print_json(_document(report))
    else:
        _print(report)
    if not report.complete:
        raise click.exceptions.Exit(1)


def _document(report: RepairReport) -> dict[str, object]:
    return {
        "path": report.path,
        "complete": report.complete,
        "findings": [finding.to_dict() for finding in report.findings],
        "losses": [dataclasses.asdict(loss) for loss in report.losses],
        "stopped": [{"partition": str(copy.place), "reason": copy.reason} for copy in report.stopped],
        "partitions": len(report.copies),
        "records": sum(copy.records for copy in report.copies),
        "bytes": sum(copy.bytes for copy in report.copies),
    }


def _print(report: RepairReport) -> None:
    for finding in report.findings:
        click.echo(f"not as it was: {finding.file}: {finding.what}; {finding.advice}")
    if report.losses:
        print_table(("LOST FROM", "OFFSETS", "SIZE", "FILE", "BYTE", "WHY", "KEPT IN"), [
            (
                f"{loss.topic}-{loss.partition}", _offsets(loss), human_size(loss.size), loss.file,
                NOTHING if loss.position < 0 else loss.position, " ".join(loss.reason.split()),
                loss.evidence or NOTHING,
            )
            for loss in report.losses
        ])  # fmt: skip
    for copy in report.stopped:
        click.echo(f"{copy.place}: copied, but the copy cannot be read or written: {copy.reason}")
    records = sum(copy.records for copy in report.copies)
    size = sum(copy.bytes for copy in report.copies)
    click.echo(
        f"copied {len(report.copies)} partitions, {records} records, {human_size(size)} into {report.path}; "
        f"{len(report.losses)} losses. Now check the copy: pylog verify --store {report.path}"
    )


def _offsets(loss: Loss) -> str:
    return NOTHING if loss.first_offset >= loss.next_offset else f"{loss.first_offset}..{loss.next_offset - 1}"
