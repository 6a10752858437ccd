"""`pylog upkeep`: what a server does in the background, for a store without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import human_size, plural, warn
from pyspark_log.cli.support.values import duration_ms
from pyspark_log.cli.target import Target
from pyspark_log.errors import PylogError, ReadOnlyError
from pyspark_log.storage.compaction import Outcome
from pyspark_log.storage.compaction import compact as compact_store
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.kinds import by_store
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.object_store import ObjectStore
from pyspark_log.storage.publish import recovery

#: What is done, in its order: each says in a few words what it has done.
_Steps = Mapping[str, Callable[[], str]]


@click.command()
@click.option("--every", "interval", callback=duration_ms, metavar="TIME", help="Repeat it so often: 1h, 30m.")
@click.pass_obj
def upkeep(target: Target, interval: int | None) -> None:
    """Do what a store needs now and then: retention, compaction, merging, and pending publishes.

    `pylog serve` does it by itself. Without a server run this once an hour, from cron or with --every. Other processes
    may read and write meanwhile. What fails is reported, and the rest is done; without --every the exit code is 1 then.
    """
    steps = by_store(target.open(), folder=_of_folder, objects=_of_objects)
    while True:
        is_well = _run(steps)
        if interval is None:
            raise click.exceptions.Exit(0 if is_well else 1)
        interrupts.pause(interval / 1000)


def _run(steps: _Steps) -> bool:
    """Does all steps; whether none has failed. ReadOnlyError."""
    is_well = True
    for name, step in steps.items():
        try:
            click.echo(f"{name}: {step()}")
        except ReadOnlyError:
            raise
        except (PylogError, OSError) as error:
            is_well = False
            warn(f"{name}: {error}")
    return is_well


def _of_folder(store: FolderStore) -> _Steps:
    def recover() -> str:
        applied = recovery.recover(store.decisions)
        _check({f"decision {waiting.decision.offset}": waiting.problem for waiting in applied})
        return f"{plural(len(applied), 'decision')} applied"

    return {
        "recover": recover,
        "clean": lambda: f"{plural(janitor.clean(store), 'segment')} removed",
        "compact": lambda: _compacted(list(compact_store(store.logs))),
    }


def _of_objects(store: ObjectStore) -> _Steps:
    def merge() -> str:
        merged = store.merge()
        return f"{plural(merged.before, 'piece')} ({human_size(merged.size)}) merged into {merged.after}"

    def clean() -> str:
        cleaned = store.clean()
        return f"{plural(cleaned.pieces, 'piece')} removed, {plural(cleaned.deleted, 'object')} deleted"

    return {"compact": lambda: _compacted(store.compact()), "merge": merge, "clean": clean}


def _compacted(outcomes: list[Outcome]) -> str:
    _check({str(outcome.at): outcome.problem for outcome in outcomes})
    return f"{plural(len(outcomes), 'partition')} compacted"


def _check(problems: Mapping[str, str]) -> None:
    failed = [f"{where}: {problem}" for where, problem in problems.items() if problem]
    if failed:
        raise PylogError("; ".join(failed))
