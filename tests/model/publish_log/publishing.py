"""Processes that publish: by runs and numbers, or once, without them."""

from __future__ import annotations

from collections.abc import Sequence

from ..checker.machine import Steps
from .process import Process, UnknownError
from .proposals import RefusedError, Want


def publisher(
    process: Process, pub: str, run: int, numbers: Sequence[int], staged: bool = False, moves: bool = False
) -> Steps:
    """A run: claims its publisher, and publishes numbers; `moves`: with a move of the committed offset each.

    Its first number may be one that an earlier run has published. A call whose outcome is unknown is repeated once.
    """
    try:
        yield from _call(process, Want(pub, run))
        for number in numbers:
            want = Want(pub, run, number, move=(number, number + 1) if moves else None)
            want = yield from with_records(process, want, f"{pub}{number}/{run}", staged)
            yield from _call(process, want)
            yield "truth", "published", pub, number
    except (RefusedError, UnknownError):
        return


def appender(process: Process, label: str, staged: bool = False) -> Steps:
    """Publishes once, without a number, so the state does not show whether it is done."""
    want = yield from with_records(process, Want(), label, staged)
    try:
        yield from process.decide(want)
        yield "truth", "appended", (label,)
    except RefusedError:
        yield "truth", "refused", (label,)
        yield from _discard(process, want)
    except UnknownError:
        return


def with_records(process: Process, want: Want, label: str, staged: bool) -> Steps:
    """A want with one record, which is in the decision itself, or staged in an object that is named by the day."""
    if not staged:
        return want._replace(records=(label,))
    today = yield "clock", "get"
    yield "data", "put", (today, label), (label,)
    return want._replace(adds=(("data", (today, label)), 1))


def _call(process: Process, want: Want) -> Steps:
    try:
        yield from process.decide(want)
    except UnknownError:
        yield from process.decide(want)
    except RefusedError:
        if want.number is not None:
            yield "truth", "refused", _records(want)
            yield from _discard(process, want)
        raise


def _records(want: Want) -> tuple[str, ...]:
    return want.records if want.adds is None else (want.adds[0][1][1],)


def _discard(process: Process, want: Want) -> Steps:
    """Deletes what was staged, and is not published by an earlier call."""
    if want.adds is not None and all(piece.object != want.adds[0] for piece in process.state.pieces):
        yield "data", "delete", want.adds[0][1]
