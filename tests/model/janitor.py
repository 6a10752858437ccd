"""The janitor, who may take anything for old, beside publishers that decide and apply, and readers that help."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .engine import Model, Program
from .helpers import attempts, last, private, publisher, settled, things
from .partition import Setup, Steps, SyncFailed
from .publishing import GivenUp, Publisher, watches

PLACES = ("p",)


def janitor(who: int, setup: Setup) -> Steps:
    """One pass."""
    access = Publisher(who, PLACES, setup)
    try:
        yield from access.sweep()
    except (SyncFailed, GivenUp):
        return


def model(
    numbers: Sequence[int] = (0,), publishers: int = 1, files: bool = True, kills: int = 1, powers: int = 0,
    setup: Setup = Setup(), reduce: bool = True, by_history: bool = False,  # noqa: B008
) -> Model:  # fmt: skip
    """Publishers of some numbers each, which are killed and start again, and a janitor."""
    setup = setup._replace(files=files)
    lives: dict[str, Sequence[Program | None]] = {}
    for who in range(publishers):
        lives[f"publisher {who}"] = [
            partial(publisher, who, setup, attempts(f"a{who}", numbers, PLACES, life), False, PLACES) for life in range(2)
        ]
    lives["janitor"] = [partial(janitor, publishers, setup), None]
    return Model(
        things=things(PLACES), lives=lives, kills=kills, powers=powers, watches=watches(PLACES, files),
        private=private(PLACES), alone=partial(last, setup, PLACES), settled=partial(settled, places=PLACES),
        reduce=reduce, by_history=by_history,
    )  # fmt: skip
