"""The janitor, which may take anything for old, beside publishers that decide and apply, and readers that help."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..checker.machine import Model, Program, Steps
from ..observers.publishes import watches
from ..protocol.decided import GivenUpError
from ..protocol.held_log import SyncError
from ..protocol.publisher import Publisher
from ..protocol.setup import PLAIN, Setup
from .publishers import attempts, last, private, publisher, settled, things

PLACES = ("p",)


def janitor(process: int, setup: Setup) -> Steps:
    """One pass."""
    access = Publisher(process, PLACES, setup)
    try:
        yield from access.sweep()
    except (SyncError, GivenUpError):
        return


def model(
    numbers: Sequence[int] = (0,),
    publishers: int = 1,
    files: bool = True,
    kills: int = 1,
    powers: int = 0,
    setup: Setup = PLAIN,
) -> Model:
    """Publishers of some numbers each, which are killed and start again, and a janitor."""
    setup = setup._replace(files=files)
    lives: dict[str, Sequence[Program | None]] = {}
    for process in range(publishers):
        lives[f"publisher {process}"] = [
            partial(publisher, process, setup, attempts(f"a{process}", numbers, PLACES, life), False, PLACES)
            for life in range(2)
        ]
    lives["janitor"] = [partial(janitor, publishers, setup), None]
    return Model(
        things=things(PLACES), lives=lives, kills=kills, powers=powers, watches=watches(PLACES, files),
        private=private(PLACES), alone=partial(last, setup, PLACES), settled=partial(settled, places=PLACES),
    )  # fmt: skip
