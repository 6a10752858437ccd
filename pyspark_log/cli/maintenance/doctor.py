"""`pylog doctor`: does a file system or object store do what a store needs, and what does the engine run on."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pyspark_log.cli.support import json_option, print_json, print_table
from pyspark_log.storage.maintenance.doctor import (
    WAIT_SECONDS,
    Finding,
    Verdict,
    examine,
    examine_objects,
    examine_with_peer,
)
from pyspark_log.storage.objects import by_kind


class _Place(click.Path):
    """An existing folder, or the URL of an object store."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # type: ignore[override]
        """As it is, if it is a URL."""
        if by_kind(value, folder=False, objects=True):
            return value
        return str(super().convert(value, param, ctx))


@click.command()
@click.argument("path", type=_Place(exists=True, file_okay=False))
@click.option(
    "--peer",
    is_flag=True,
    help=f"Also wait up to {WAIT_SECONDS:.0f} s for `pylog doctor PATH --peer` on another host that shares the folder, "
    "and test the two together.",
)
@json_option
def doctor(path: str, peer: bool, as_json: bool) -> None:
    """Check whether the file system of the folder PATH, or an object store, can hold a store.

    PATH is a store, or an empty folder for one; or a URL: s3://BUCKET/PREFIX, gs://... or az://... The test files are
    created in a subfolder, which is removed afterwards.
    The exit code is 1 if a check failed; a warning means that it works, within a limit.
    """
    if by_kind(path, folder=False, objects=True):
        if peer:
            raise click.UsageError("--peer is for folders; the examination of an object store needs no second run")
        findings = list(examine_objects(path))
    else:
        findings = list(examine(path))
    if peer:
        click.echo(f"waiting up to {WAIT_SECONDS:.0f} s for a second run: pylog doctor {path} --peer", err=True)
        findings += examine_with_peer(path)
    _print(findings, as_json)
    failed = sum(finding.verdict is Verdict.FAILED for finding in findings)
    if failed:
        raise click.ClickException(f"{failed} of {len(findings)} checks failed")


def _print(findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        print_json([finding.to_dict() for finding in findings])
        return
    print_table(
        ("CHECK", "VERDICT", "MEASURED", "MEANING"),
        [
            # What the system says may have line breaks; a finding is one line.
            [" ".join(cell.split()) for cell in finding.to_dict().values()]
            for finding in findings
        ],
    )
