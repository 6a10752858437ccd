"""`pylog backup`: copies a live store as it is at one moment."""

from __future__ import annotations

import dataclasses

import click

from pyspark_log.cli.support import ProgressBar, human_size, incomplete_if_interrupted, json_option, plural, print_json
from pyspark_log.cli.target import Target
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.maintenance.object_backup import back_up_store


@click.command()
@click.option("--into", required=True, metavar="PLACE", help="A new or empty folder for the copy, or a new URL.")
@json_option
@click.pass_obj
def backup(target: Target, into: str, as_json: bool) -> None:
    """Copy the store, as it is at one moment, into a new folder or URL while it stays in use.

    Each partition is copied up to that moment, and each publish is in the copy completely or not at all. Writers to a
    store in a folder pause at that moment; the command prints for how long. From a folder to a URL the copy is made in
    a temporary folder first, so there must be room for it.
    """
    with incomplete_if_interrupted(into), ProgressBar("backup") as progress:
        done = back_up_store(target.open(), into, progress=progress)
    if as_json:
        print_json(dataclasses.asdict(done))
        return
    if done.undone:
        click.echo(f"{done.undone} decided publishes cannot be applied in the copy: pylog recover --store {done.path}")
    click.echo(
        f"copied {plural(done.partitions, 'partition')}, {human_size(done.bytes)}, into {done.path}, as they were at "
        f"{format_time(done.time)}; writers paused for {done.pause:.3f} s. "
        f"Now check the copy: pylog verify --store {done.path}"
    )
