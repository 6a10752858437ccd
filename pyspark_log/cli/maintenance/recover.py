"""`pylog recover`: applies pending decisions, or sets them aside."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pyspark_log.cli.support import NOTHING, confirm, human_size, json_option, print_json, print_table, yes_option
from pyspark_log.cli.target import Target
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.publish import TopicIdPartition, recovery
from pyspark_log.storage.publish.recovery import Waiting


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show the decisions that are not applied, and why.")
@click.option(
    "--set-aside",
    "decision",
    type=click.IntRange(min=0),
    metavar="DECISION",
    help="Give up this decision for good, in the partitions that lack it. Its staged output is kept in the folder cut.",
)
@yes_option
@json_option
@click.pass_obj
def recover(target: Target, dry_run: bool, decision: int | None, yes: bool, as_json: bool) -> None:
    """Apply publishes that are decided but not visible everywhere yet.

    Publishers and Spark's readers do this as they run. Use this command when none runs, or to see the error that stops
    them (a full disk, a lost file). The exit code is 1 if a decision could not be applied.
    """
    store = FolderStore.open(target.folder_path("There every publish that is decided is visible."))
    if decision is not None:
        if dry_run or as_json:
            raise click.UsageError("--set-aside cannot be combined with --dry-run or --json.")
        confirm(f"Give up decision {decision} for good, in all partitions that lack it?", yes)
        _set_aside(store, decision)
        return
    found = recovery.waiting(store.decisions) if dry_run else recovery.recover(store.decisions)
    if as_json:
        print_json([_document(one, dry_run) for one in found])
    else:
        _print(found, dry_run)
    if any(one.problem for one in found):
        raise click.exceptions.Exit(1)


def _set_aside(store: FolderStore, number: int) -> None:
    result = recovery.set_aside(store.decisions, number)
    click.echo(f"decision {number} is set aside; partitions without it: {_names(result.places)}")
    click.echo(f"its staged output is kept in {result.folder}")
    if result.is_revoked:
        click.echo("no partition has any of it: its publisher may publish the same number again")
    else:
        click.echo("some partitions already hold it: its publisher continues with the next number")


def _document(one: Waiting, dry_run: bool) -> dict[str, object]:
    decision = one.decision
    return {
        "decision": decision.offset, "publisher": decision.publisher, "number": decision.number,
        "host": decision.host, "process": decision.process, "time": decision.time, "records": decision.records,
        "lacked_by": [{"topic": place.topic, "partition": place.partition} for place in one.places],
        "of_partitions": len(decision.places),
        "staged_bytes": None if one.size < 0 else one.size,
        "applied": not (dry_run or one.problem), "problem": one.problem or None,
    }  # fmt: skip


def _print(found: Sequence[Waiting], dry_run: bool) -> None:
    if not found:
        click.echo("all decisions are applied")
        return
    done = "waits" if dry_run else "applied"
    print_table(("DECISION", "PUBLISHER", "NUMBER", "DECIDED", "BY", "RECORDS", "STAGED", "LACKED BY", "STATE"), [
        (
            one.decision.offset, one.decision.publisher, one.decision.number, format_time(one.decision.time),
            f"{one.decision.host}:{one.decision.process}", one.decision.records,
            NOTHING if one.size < 0 else human_size(one.size),
            f"{_names(one.places)} ({len(one.places)} of {len(one.decision.places)})",
            f"not applied: {' '.join(one.problem.split())}" if one.problem else done,
        )
        for one in found
    ])  # fmt: skip


def _names(places: Sequence[TopicIdPartition]) -> str:
    return ",".join(f"{place.topic}-{place.partition}" for place in places) or NOTHING
