"""A partition's state file: the authority on its log start and log end.

Four slots, one in each 512-byte sector, of which the valid one with the highest sequence number
counts (as with the two meta pages of LMDB). A write replaces the older slot of its pair, so a
write that a power loss tears loses nothing but itself. Moves of the end are written to slots 0 and 1 and are not
synced; what must survive a power loss (intents, rolls, truncations) is written to slots 2 and 3, and synced. The pairs
never mix: an ordinary move must not overwrite the only durable copy of an intent.

Only a power loss explains a slot that is not valid, and only until the first writer after it has
recovered the partition. At any other time it is damage: the state that counts would be older than what
was acknowledged.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple, TypeVar

from pyspark_log.errors import LogDamagedError
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.mounts import is_shared
from pyspark_log.storage.log.state import partition_state
from pyspark_log.storage.log.state.partition_state import (
    CRC_AT,
    EMPTY,
    SLOT_SIZE,
    PartitionState,
    decode_body,
    decode_slot,
    encode_slot,
)
from pyspark_log.storage.record import crc32c

SLOT_DISTANCE = 512
SLOT_COUNT = 4
FILE_SIZE = SLOT_COUNT * SLOT_DISTANCE
# A slot that is being written is invalid for a moment. While a writer holds the partition's lock, it gets this long
# (s) before the slot is reported as damaged, as a busy machine may delay it. Pauses between reads double.
_PATIENCE = 1.0
_FIRST_PAUSE = 0.0005
# The sequence number and the CRC of each slot.
_MARKS = struct.Struct(">" + "8xQ236xI256x" * SLOT_COUNT)
_STARTS = range(0, FILE_SIZE, SLOT_DISTANCE)
_NEVER_WRITTEN = bytes(SLOT_SIZE)
# What a move of the log end changes, by the places of these fields.
_SEQ, _NEXT_OFFSET, _POSITION, _HIGH_WATERMARK = map(
    PartitionState._fields.index, ("seq", "next_offset", "position", "high_watermark")
)

_T = TypeVar("_T")

log = logging.getLogger(__name__)


@cache
def this_boot() -> bytes:
    """Eight bytes that differ from boot to boot of this machine; zeros if the system does not provide any."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().replace("-", ""))[:8]
    except OSError:
        return bytes(8)


class Loaded(NamedTuple):
    """The state as it was read, and the sequence number of each slot; what a write needs to choose its slot.

    Attributes:
        state: the newest valid slot.
        slot: its number.
        seqs: the sequence number of each slot; -1: the slot is not valid.
        data: the bytes of the file; b"" if they are not known.
    """

    state: PartitionState
    slot: int
    seqs: tuple[int, ...]
    data: bytes = b""

    @property
    def torn(self) -> tuple[int, ...]:
        """The numbers of the slots that were written and are not valid."""
        return tuple(slot for slot, seq in enumerate(self.seqs) if seq < 0)


def load(file: files.File) -> Loaded:
    """Reads the slots; the partition's lock is held, or a single read is enough. Raises as `decoded`."""
    return decoded(file.path, file.pread(FILE_SIZE, 0))


def decoded(path: str, data: bytes) -> Loaded:
    """Returns what the bytes of a state file say.

    Raises:
        LogDamagedError: no slot is valid, or an invalid one is not explained by a power loss, or the newest one
            contradicts itself.
        StoreVersionError: another version wrote it.
    """
    return checked(path, _decode(path, data))


def checked(path: str, loaded: Loaded | None) -> Loaded:
    """Returns the state that was read, if it can be relied on. LogDamagedError."""
    if loaded is None:
        problem = f"none of its {SLOT_COUNT} slots is valid"
    elif -1 in loaded.seqs and not explained_by_power_loss(path, loaded.state):
        problem = (
            f"slot {', '.join(map(str, loaded.torn))} (at byte {loaded.torn[0] * SLOT_DISTANCE}) is damaged, and the "
            f"machine has not restarted since: its log end may have been beyond offset {loaded.state.next_offset}. "
            "Refusing to read or write, because records could be lost"
        )
    else:
        problem = loaded.state.contradiction()
    if problem:
        raise LogDamagedError(
            f"{path}: {problem}",
            "the log itself may be intact: make a copy of the store with a state rebuilt from the log (pylog repair)",
        )
    assert loaded is not None
    return loaded


def explained_by_power_loss(path: str, newest: PartitionState) -> bool:
    """Whether a power loss during a write can have left an invalid slot.

    Only until the partition is recovered, which gives its state the machine's boot id. Not on a shared file system: no
    host knows of the power losses of others, and a write that its server did not finish is sent to it again.
    """
    return newest.boot != this_boot() and not is_shared(os.path.dirname(path))


def _load_slots(file: files.File) -> Loaded | None:
    """The newest valid slot; None if there is none. StoreVersionError."""
    return _decode(file.path, file.pread(FILE_SIZE, 0))


def _decode(path: str, data: bytes) -> Loaded | None:
    data = data.ljust(FILE_SIZE, b"\xff")
    marks = _MARKS.unpack(data)
    seqs = [
        seq if crc == crc32c(data[at : at + CRC_AT]) or data[at : at + SLOT_SIZE] == _NEVER_WRITTEN else -1
        for at, seq, crc in zip(_STARTS, marks[::2], marks[1::2], strict=True)
    ]
    newest = seqs.index(max(seqs))
    if seqs[newest] <= 0:
        # None is valid, unless they are of another version, which must be reported.
        for at in _STARTS:
            decode_slot(data[at : at + SLOT_SIZE], path)
        return None
    return Loaded(decode_body(data, _STARTS[newest], path), newest, tuple(seqs), data)


def read(path: str, known: Loaded | None = None) -> Loaded | None:
    """Reads the state in a file, without a lock; None if there is none. Raises as `load` does.

    Opens the file each time: a process may read thousands of partitions, and a store's folder may be
    replaced by a copy of it. Returns `known` itself, what was read before, if the file has the same bytes.
    """

    def read_file() -> Loaded | None:
        with files.open_read(path) as file:
            data = file.pread(FILE_SIZE, 0)
        return known if known is not None and known.data == data else _decode(path, data)

    try:
        found = read_until_settled(path, read_file, partial(_is_settled, path))
    except FileNotFoundError:
        return None
    return known if found is known and known is not None else checked(path, found)


def _is_settled(path: str, found: Loaded | None) -> bool:
    """Whether another read would find the same: no slot is being written."""
    return found is not None and (-1 not in found.seqs or explained_by_power_loss(path, found.state))


def read_until_settled(path: str, read: Callable[[], _T], is_settled: Callable[[_T], bool]) -> _T:
    """Returns what `read` finds in a state file; reads again if it may have met a slot that was being written."""
    found, pause = read(), _FIRST_PAUSE
    deadline = time.monotonic() + _PATIENCE
    while not is_settled(found) and time.monotonic() < deadline:
        with files.open_read(path) as file:
            if _is_free(file):
                return read()  # No process is writing: what is found now stays.
        time.sleep(pause)
        pause *= 2
        found = read()
    return found


def _is_free(file: files.File) -> bool:
    """Whether no process holds the partition's lock; if so, this process shares it until the file is closed."""
    file.unshare_at_fork()
    try:
        fcntl.flock(file.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def store(file: files.File, before: Loaded, state: PartitionState, *, durable: bool, sync: bool = False) -> Loaded:
    """Writes `state` as the newest one. The caller holds the partition's lock and read `before` under it.

    Args:
        durable: True syncs it before returning, in the pair of slots that ordinary moves leave alone.
        sync: True syncs an ordinary move too.
    """
    slot = _older(before.seqs, 2 if durable else 0)
    if state.seq != before.state.seq + 1 or state.generation >> 32:
        state = state._replace(seq=before.state.seq + 1, generation=state.generation % (1 << 32))
    encoded, at = encode_slot(state), slot * SLOT_DISTANCE
    try:
        file.pwrite(encoded, at)
    except OSError:
        _undo(file, before, slot)
        raise
    if durable or sync:
        file.sync()
    seqs = list(before.seqs)
    seqs[slot] = state.seq
    data = before.data
    return Loaded(state, slot, tuple(seqs), data and data[:at] + encoded + data[at + SLOT_SIZE :])


def _older(seqs: Sequence[int], first: int) -> int:
    """The slot of a pair, of which `first` is one, that is written next."""
    return first + (seqs[first + 1] < seqs[first])


class OpenState:
    """The state of a partition whose lock is held, in its file.

    Attributes:
        stored: the state that was stored last; since then only the log end and the high watermark have moved.
        next_offset, position, high_watermark, seq: these, and the slot's number, by now, as PartitionState.
    """

    def __init__(self, file: files.File, loaded: Loaded) -> None:
        """`loaded` is what the file holds."""
        self._file = file
        self.set(loaded)

    def set(self, loaded: Loaded) -> None:
        """Takes what the file holds now, or will hold after the next write."""
        self._loaded = loaded
        self.stored = state = loaded.state
        self.next_offset, self.position, self.seq = state.next_offset, state.position, state.seq
        self.high_watermark = state.high_watermark
        self._slot: bytearray | None = None  # what `move_end` writes
        self._data = bytearray(loaded.data)
        self._has_moved = False

    def is_in(self, data: bytes) -> bool:
        """Whether these are the bytes of the file with this state."""
        return self._data == data

    def loaded(self) -> Loaded:
        """The state and the slots as they are in the file now."""
        if self._has_moved:
            self._loaded = Loaded(self.moved(), self._number, tuple(self._seqs), bytes(self._data))
            self._has_moved = False
        return self._loaded

    def moved(self) -> PartitionState:
        """The state, in a fraction of the time of `state`, and of `_replace`."""
        fields = list(self.stored)
        fields[_SEQ], fields[_NEXT_OFFSET] = self.seq, self.next_offset
        fields[_POSITION], fields[_HIGH_WATERMARK] = self.position, self.high_watermark
        return PartitionState._make(fields)

    @property
    def state(self) -> PartitionState:
        """The state."""
        return self.loaded().state if self._has_moved else self._loaded.state

    def store(self, state: PartitionState, *, durable: bool, sync: bool = False) -> None:
        """Writes a state; arguments as `store`."""
        self.set(store(self._file, self.loaded(), state, durable=durable, sync=sync))

    def move_end(self, next_offset: int, position: int, high_watermark: int) -> None:
        """Moves the log end and the high watermark as `store` would, not durably, in a fraction of its time.

        Raises:
            OSError: readers may have seen it, or not.
        """
        slot, seq = self._slot, self.seq + 1
        if slot is None:
            slot = self._slot = bytearray(encode_slot(self.stored))
            self._seqs = list(self._loaded.seqs)
        seqs = self._seqs
        number = int(seqs[1] < seqs[0])
        at = number * SLOT_DISTANCE
        partition_state.move_end(slot, seq, next_offset, position, high_watermark)
        try:
            self._file.pwrite(slot, at)
        except OSError:
            _undo(self._file, self.loaded(), number)
            raise
        if self._data:
            self._data[at : at + SLOT_SIZE] = slot
        self._has_moved, seqs[number], self._number = True, seq, number
        self.seq, self.next_offset, self.position, self.high_watermark = seq, next_offset, position, high_watermark


def _undo(file: files.File, before: Loaded, slot: int) -> None:
    """Undoes a write that failed: if a part of it is in the slot, the previous state replaces it.

    A partial slot would be damage. A complete one stays, as readers may have used it.
    """
    try:
        found = _load_slots(file)
        if found is None or slot in found.torn:
            file.pwrite(encode_slot(before.state), slot * SLOT_DISTANCE)
    except OSError as error:
        log.warning("%s: slot %d may be damaged, as a write to it failed: %s", file.path, slot, error)


def confirm(file: files.File, loaded: Loaded) -> None:
    """Makes the newest slot durable, whichever process wrote it; the caller holds the partition's lock.

    It is rewritten: if its writer's sync failed, the kernel considers it clean, and a sync alone would do nothing.
    """
    file.pwrite(encode_slot(loaded.state), loaded.slot * SLOT_DISTANCE)
    file.sync()


def rewrite_torn_slots(file: files.File, loaded: Loaded) -> Loaded:
    """Writes the newest state over the slots that a power loss has torn; the caller holds the partition's lock.

    Called before any slot has the new boot id: a torn one beside it would be damage. The newest state itself is
    written, so nothing is lost if this write is torn in its turn.
    """
    seqs = list(loaded.seqs)
    for slot in loaded.torn:
        file.pwrite(encode_slot(loaded.state), slot * SLOT_DISTANCE)
        seqs[slot] = loaded.state.seq
    return loaded._replace(seqs=tuple(seqs), data=b"")


def create(path: str, state: PartitionState = EMPTY) -> None:
    """Creates a state file atomically and durably. If it already exists, it is kept."""
    first = encode_slot(state._replace(seq=1, boot=this_boot()))
    try:
        files.create_whole(path, bytes(2 * SLOT_DISTANCE) + first + bytes(FILE_SIZE - 2 * SLOT_DISTANCE - SLOT_SIZE))
    except FileExistsError:
        if files.size_of(path) < FILE_SIZE:
            raise
