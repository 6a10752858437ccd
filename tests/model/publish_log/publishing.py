"""Processes that publish: by runs and numbers, or once, without them.

Models ObjectPublishes of pyspark_log/storage/publish_log/parts/publishes.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..checker.machine import Steps
from .entries import RefusedError
from .process import Process, UnknownError
from .proposals import Want


def publisher(
    process: Process,
    pub: str,
    run: int,
    numbers: Sequence[int],
    staged: bool = False,
    moves: bool = False,
    revokes: bool = False,
) -> Steps:
    """A run: claims its publisher, and publishes numbers; `moves`: with a move of the committed offset each.

    Its first number may be one that an earlier run has published. A call whose outcome is unknown is repeated once, or,
    with `revokes`, taken back.
    """
    try:
        yield from _call(process, Want(pub, run))
        for number in numbers:
            want = Want(pub, run, number, move=(number, number + 1) if moves else None)
            want = yield from with_records(process, want, f"{pub}{number}/{run}", staged)
            is_published = yield from _call(process, want, revokes)
            if not is_published:
                return
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
        yield from _give_up(process, want)
    except UnknownError:
        return


def with_records(process: Process, want: Want, label: str, staged: bool) -> Steps:
    """A want with one record, which is in the decision itself, or staged in an object that is named by the day."""
    if not staged:
        return want._replace(records=(label,))
    today = yield "clock", "get"
    yield "data", "put", (today, label), (label,)
    return want._replace(adds=(("data", (today, label)), 1))


def _call(process: Process, want: Want, revokes: bool = False) -> Steps:
    """Whether it is published, as wanted or by an earlier call; False: it is taken back."""
    try:
        yield from process.decide(want)
    except RefusedError:
        if want.number is not None:
            yield from _give_up(process, want)
        raise
    except UnknownError:
        if revokes:
            return (yield from _revoke(process, want))
        yield from process.decide(want)
    return True


def _revoke(process: Process, want: Want) -> Steps:
    """Takes a publish back whose outcome is unknown; False: it is published."""
    if process.setup.keeps("publish log: what is unknown is taken back by a decision"):
        yield from process.decide(Want(want.pub, want.run, again=True))
    else:
        yield from process.follow()
    known = process.state.known(want.pub)
    is_published = known is not None and known.number >= (want.number or 0)
    if not is_published:
        yield from _give_up(process, want)
    return is_published


def _give_up(process: Process, want: Want) -> Steps:
    """Reports that nothing is published, and deletes what was staged, unless an earlier call has published it."""
    yield "truth", "refused", (want.records if want.adds is None else (want.adds[0][1][1],))
    if want.adds is not None and all(piece.object != want.adds[0] for piece in process.state.pieces):
        yield "data", "delete", want.adds[0][1]
