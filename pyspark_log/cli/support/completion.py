"""Completes the names of topics and groups in a shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from pyspark_log.errors import PylogError

if TYPE_CHECKING:
    from pyspark_log.storage.store import Store


def complete_topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The topics whose names begin so; the store's own ones only if what is given begins as their names do."""
    internal = incomplete.startswith("_")
    return _found(ctx, incomplete, lambda store: store.topics(internal=internal))


def complete_groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The groups whose names begin so."""
    return _found(ctx, incomplete, lambda store: list(store.groups))


def _found(ctx: click.Context, incomplete: str, names: Callable[[Store], list[str]]) -> list[str]:
    from pyspark_log.storage.store import Store  # noqa: PLC0415  (it takes long, and help needs none)

    path = ctx.obj.path  # of the Target that --store has left
    if not path:
        return []
    try:
        return [name for name in names(Store.open(path)) if name.startswith(incomplete)]
    except (PylogError, OSError):
        return []  # The command itself will say what is wrong; here it would be printed into the line.
