"""Reads a state file slot by slot, for callers that need more than the slot that counts."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log.errors import StoreVersionError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state.partition_state import SLOT_SIZE, PartitionState, decode_slot
from pyspark_log.storage.log.state.state_file import (
    FILE_SIZE,
    SLOT_COUNT,
    SLOT_DISTANCE,
    explained_by_power_loss,
    read_until_settled,
)


class Slots(NamedTuple):
    """The contents of a state file's slots.

    Attributes:
        state: the newest valid one; None if there is none, or if it contradicts itself.
        torn: the numbers of those that were written and are not valid.
        explained: whether a power loss explains them, after which the partition was not recovered.
        size: bytes of the file; -1: it does not exist.
        problem: why an intact slot cannot be understood; "" if all can.
        contradiction: which fields of the newest valid one contradict each other; "" if none do.
        log_dirs: the log dirs that the valid ones name.
    """

    state: PartitionState | None
    torn: tuple[int, ...]
    explained: bool
    size: int
    problem: str = ""
    contradiction: str = ""
    log_dirs: frozenset[int] = frozenset()


def read_slots(path: str) -> Slots:
    """Reads a state file without a lock, and again if something in it is torn. OSError."""

    def is_settled(slots: Slots) -> bool:
        return slots.size < 0 or not (slots.torn or slots.problem)

    return read_until_settled(path, lambda: _read_slots(path), is_settled)


def _read_slots(path: str) -> Slots:
    try:
        file = files.open_read(path)
    except FileNotFoundError:
        return Slots(None, (), False, -1)
    with file:
        data, size = file.pread(FILE_SIZE, 0), file.size()
    newest: PartitionState | None = None
    torn: list[int] = []
    log_dirs: set[int] = set()
    problem = ""
    for number in range(SLOT_COUNT):
        slot = data[number * SLOT_DISTANCE : number * SLOT_DISTANCE + SLOT_SIZE]
        if not any(slot):
            continue
        try:
            state = decode_slot(slot, path)
        except StoreVersionError as error:
            problem = str(error)
            continue
        if state is None:
            torn.append(number)
            continue
        log_dirs.add(state.log_dir)
        if newest is None or state.seq > newest.seq:
            newest = state
    explained = newest is not None and explained_by_power_loss(path, newest)
    contradiction = "" if newest is None else newest.contradiction()
    if contradiction:
        newest = None
    return Slots(newest, tuple(torn), explained, size, problem, contradiction, frozenset(log_dirs))
