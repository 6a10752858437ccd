"""A partition's state file: the authority on its log start and log end.

Four slots, one in each 512-byte sector, of which the valid one with the highest sequence number
counts (as with the two meta pages of LMDB). A write replaces the older slot of its pair, so a
write that a power loss tears loses nothing but itself. Moves of the end are written to slots 0 and 1 and are not
synced; what must survive a power loss (intents, rolls, truncations) is written to slots 2 and 3, and synced. The pairs
never mix: an ordinary move must not overwrite the only durable copy of an intent.

Only a power loss explains a slot that is not valid, and only until the first writer after it has
recovered the partition. At any other time it is damage: the state that counts would be older than what
was acknowledged.

Layout of a slot (256 bytes, big-endian) is in docs/format.md.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, partial
from typing import NamedTuple, TypeVar

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import LogDamagedError, StoreVersionError
from pyspark_log.storage.fs import files, is_shared
from pyspark_log.storage.record import crc32c

SLOT_DISTANCE = 512
SLOT_COUNT = 4
FILE_SIZE = SLOT_COUNT * SLOT_DISTANCE
VERSION = 2
SLOT_SIZE = 256
# A slot that is being written is invalid for a moment. While a writer holds the partition's lock, it gets this long
# (s) before the slot is reported as damaged, as a busy machine may delay it. Pauses between reads double.
_PATIENCE = 1.0
_FIRST_PAUSE = 0.0005

# Offsets are limited so that sums of them still fit into 64 bits.
_MAX_OFFSET = 1 << 62
_BODY = struct.Struct(">BBHIQ8sQqqqIIqqqiIqqqIHxxqIIqi4xqq")
_CRC = struct.Struct(">I")
_CRC_AT = SLOT_SIZE - _CRC.size
# What a move of the end changes: seq; next_offset and position; high_watermark.
_SEQ, _SEQ_AT = struct.Struct(">Q"), 8
_END, _END_AT = struct.Struct(">qI"), 48
_HIGH_WATERMARK, _HIGH_WATERMARK_AT = struct.Struct(">q"), 128
# The sequence number and the CRC of each slot.
_MARKS = struct.Struct(">" + "8xQ236xI256x" * SLOT_COUNT)
_STARTS = range(0, FILE_SIZE, SLOT_DISTANCE)
_NEVER_WRITTEN = bytes(SLOT_SIZE)

_T = TypeVar("_T")

log = logging.getLogger(__name__)


class Flags:
    """What is in progress in a partition: bits of a number. Plain ones, as every append tests them several times."""

    NONE = 0
    DEAD = 1  # the topic was deleted: nothing may be done here any more
    CUTTING = 2  # bytes beyond the log end are being removed; the next holder does it again
    SUSPECT = 4  # the active segment could not be synced; the next append begins another one
    PRODUCERS = 8  # a batch with a producer id was written here at some time
    CLAIMED = 16  # on a shared file system: its holder is changing the log; a holder that was cut off may still do so


_ALL_FLAGS = Flags.DEAD | Flags.CUTTING | Flags.SUSPECT | Flags.PRODUCERS | Flags.CLAIMED


class Intent(IntEnum):
    """A change of several steps that was begun and must be finished or dropped."""

    NONE = 0
    APPLY = 1  # the records of a decision are being written beyond the log end
    SWAP = 2  # segments are being replaced by a cleaned one; all of them exist, or the cleaned one does
    SWAPPED = 3  # the cleaned one exists; those that it replaces are being deleted, and do not count any more


class PartitionState(NamedTuple):
    """All fields of a slot.

    Attributes:
        intent: see Intent; the fields `intent_*` belong to it.
        flags: see Flags.
        generation: changes with the list of segments.
        seq: the slot's sequence number.
        boot: which boot of the machine wrote it (8 bytes).
        log_start: the first offset that readers may see.
        active_base: the base offset of the segment that is appended to.
        next_offset: the log end: the offset of the next record.
        position: the size in bytes of the active segment up to the log end.
        synced: the position up to which the active segment is known to be on the disk.
        unsynced_since: when the first bytes after it were appended (ms); without meaning if there are none.
        reserve: no offset at or above it was ever shown without being synced.
        applied: the last decision whose records are in this log; -1 = none.
        first_undone: in the decision log, the first decision that is not done.
        leader_epoch: Kafka's leader epoch, stamped on each record batch.
        intent_digest: CRC-32C over the CRC fields of the batches that are being applied.
        intent_decision: the decision that is being applied.
        intent_next, intent_base, intent_position: next_offset, active_base and position afterwards. Of a swap, the
            second is the base offset of the cleaned segment, the first that of the segment after it, and the third
            the size of the cleaned log in bytes.
        log_dir: which of the store's log dirs holds its log.
        high_watermark: the visible end: readers see the records below it. The log end, in a store of one copy.
        incarnation: rises when the log may differ from what a process has cached of it: after a power loss, after a
            truncation, and when a writer was cut off. What a process has read of another incarnation is read again.
        truncations: how often the log was truncated, so that offsets were given to other records.
        owner_epoch, owner_node: the node that alone may write, and the epoch of that right; 0, 0: any process that
            holds the partition's lock.
        local_log_start: the first offset that is in this log, if those before it were copied to another storage and
            removed here; 0: none was.
        copied_up_to: the offset up to which the log was copied to another storage; 0: nothing was.
    """

    intent: Intent = Intent.NONE
    flags: int = Flags.NONE
    generation: int = 0
    seq: int = 0
    boot: bytes = bytes(8)
    unsynced_since: int = 0
    log_start: int = 0
    active_base: int = 0
    next_offset: int = 0
    position: int = 0
    synced: int = 0
    reserve: int = 0
    applied: int = -1
    first_undone: int = 0
    leader_epoch: int = 0
    intent_digest: int = 0
    intent_decision: int = -1
    intent_next: int = 0
    intent_base: int = 0
    intent_position: int = 0
    log_dir: int = 0
    high_watermark: int = 0
    incarnation: int = 0
    truncations: int = 0
    owner_epoch: int = 0
    owner_node: int = 0
    local_log_start: int = 0
    copied_up_to: int = 0

    @property
    def swaps(self) -> bool:
        """Whether segments are being replaced by a cleaned one."""
        return self.intent in (Intent.SWAP, Intent.SWAPPED)

    def counts(self, base: int) -> bool:
        """Whether the segment with that base offset is live, if it exists.

        Above the active one there may be some that a killed writer has left. And segments that a cleaned one has
        replaced are gone as soon as the state says so; their files are deleted a moment later.
        """
        replaced = self.intent == Intent.SWAPPED and self.intent_base < base < self.intent_next
        return base <= self.active_base and not replaced

    def without_intent(self) -> PartitionState:
        """The same state without an intent."""
        return self._replace(
            intent=Intent.NONE, intent_digest=0, intent_decision=-1,
            intent_next=0, intent_base=0, intent_position=0,
        )

    def contradiction(self) -> str:
        """Returns which fields contradict each other; "" for every state that a writer leaves."""
        if not (
            0 <= self.log_start <= self.high_watermark <= self.next_offset <= _MAX_OFFSET
            and 0 <= self.active_base <= self.next_offset
            and self.synced <= self.position
        ):
            return (
                f"log start {self.log_start}, high watermark {self.high_watermark}, active segment "
                f"{self.active_base}, log end {self.next_offset}, "
                f"{self.position} bytes and {self.synced} of them synced contradict each other"
            )
        if not (
            self.seq <= LONG_MAX and 0 <= self.reserve <= _MAX_OFFSET and 0 <= self.leader_epoch < INT_MAX
            and -1 <= self.applied < LONG_MAX and self.first_undone >= 0
        ):  # fmt: skip
            return (
                f"reserve {self.reserve}, leader epoch {self.leader_epoch}, applied decision {self.applied} or first "
                f"undone one {self.first_undone} is out of range"
            )
        if self.swaps and not 0 <= self.intent_base < self.intent_next <= self.active_base:
            return (
                f"the segments from offset {self.intent_base} up to {self.intent_next} that are being replaced are not "
                f"those of a log whose active segment begins at {self.active_base}"
            )
        if self.intent == Intent.APPLY and not (
            self.next_offset < self.intent_next <= _MAX_OFFSET
            and self.active_base <= self.intent_base < self.intent_next
            and self.applied < self.intent_decision
        ):
            return (
                f"what is being done, decision {self.intent_decision} up to offset {self.intent_next} in segment "
                f"{self.intent_base}, does not start at the log end, {self.next_offset}"
            )
        return ""


#: The state of a partition that was never written to, which has no files.
EMPTY = PartitionState()


@cache
def this_boot() -> bytes:
    """Eight bytes that differ from boot to boot of this machine; zeros if the system does not provide any."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().replace("-", ""))[:8]
    except OSError:
        return bytes(8)


def encode_slot(state: PartitionState) -> bytes:
    """Encodes a slot (256 bytes)."""
    # In the order of the fields, with the sequence number where every version has it.
    data = _BODY.pack(VERSION, *state).ljust(_CRC_AT, b"\0")
    return data + _CRC.pack(crc32c(data))


def decode_slot(data: bytes, path: str) -> PartitionState | None:
    """Decodes a slot; None if it is torn or was never written.

    Bytes between the last field and the CRC belong to fields that a later version has added. They are ignored: a
    field that an older version must not miss comes with a flag, or with another version number.

    Raises:
        StoreVersionError: an intact slot of another version, or one with values that this version does not know.
    """
    if len(data) < SLOT_SIZE or data[0] == 0:
        return None
    (crc,) = _CRC.unpack_from(data, _CRC_AT)
    if crc != crc32c(data[:_CRC_AT]):
        _refuse_version_1(data, path)
        return None
    return _decode_body(data, 0, path)


def _decode_body(data: bytes, at: int, path: str) -> PartitionState:
    """Decodes the slot at a byte, whose CRC is right. StoreVersionError."""
    version, intent, flags, *rest = _BODY.unpack_from(data, at)
    if version != VERSION or flags & ~_ALL_FLAGS or intent > max(Intent):
        raise StoreVersionError(
            f"{path}: written in version {version} of the state format (flags {flags}, intent {intent}), this "
            f"pyspark-log knows version {VERSION}: use the pyspark-log that wrote it"
        )
    state = PartitionState(Intent(intent), flags, *rest)
    if state.local_log_start > max(state.log_start, 0):
        raise StoreVersionError(
            f"{path}: the records from offset {state.log_start} to {state.local_log_start} are in another storage, "
            "which this pyspark-log cannot read: use the pyspark-log that moved them"
        )
    return state


def _refuse_version_1(data: bytes, path: str) -> None:
    """Raises StoreVersionError for a slot of version 1, which has 128 bytes and would seem damaged."""
    if data[0] == 1 and _CRC.unpack_from(data, 124)[0] == crc32c(data[:124]):
        raise StoreVersionError(
            f"{path}: written in version 1 of the state format, this pyspark-log knows version {VERSION}: use the "
            "pyspark-log that wrote it"
        )


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


def load(file: files.File, known: Loaded | None = None) -> Loaded:
    """Reads the slots; the partition's lock is held, or a single read is enough.

    Returns `known` itself, what was found or written before, if the file still has the same bytes.

    Raises:
        LogDamagedError: no slot is valid, or an invalid one is not explained by a power loss, or the newest one
            contradicts itself.
        StoreVersionError: another version wrote it.
    """
    data = file.pread(FILE_SIZE, 0)
    if known is not None and known.data == data:
        return known
    return checked(file.path, _decode(file.path, data))


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
            f"{path}: {problem}; the log itself may be intact: make a copy of the store with a state rebuilt "
            "from the log (pylog repair)"
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
        seq if crc == crc32c(data[at : at + _CRC_AT]) or data[at : at + SLOT_SIZE] == _NEVER_WRITTEN else -1
        for at, seq, crc in zip(_STARTS, marks[::2], marks[1::2], strict=True)
    ]
    newest = seqs.index(max(seqs))
    if seqs[newest] <= 0:
        # None is valid, unless they are of another version, which must be reported.
        for at in _STARTS:
            decode_slot(data[at : at + SLOT_SIZE], path)
        return None
    return Loaded(_decode_body(data, _STARTS[newest], path), newest, tuple(seqs), data)


def read(path: str) -> Loaded | None:
    """Reads the state in a file, without a lock; None if there is none. Raises as `load` does.

    Opens the file each time: a process may read thousands of partitions, and a store's folder may be
    replaced by a copy of it.
    """
    def read_file() -> Loaded | None:
        with files.open_read(path) as file:
            return _load_slots(file)

    try:
        found = read_until_settled(path, read_file, partial(_is_settled, path))
    except FileNotFoundError:
        return None
    return checked(path, found)


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
        stored: the state that was stored last; since then only the log end has moved.
        next_offset, position, seq: the log end and the slot's number by now, as PartitionState.
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
        self._number, self._seqs = loaded.slot, list(loaded.seqs)
        self._slot: bytearray | None = None  # what `move_end` writes
        self._moved: dict[int, bytes] = {}  # the slots that it has written

    def loaded(self) -> Loaded:
        """The state and the slots as they are in the file now."""
        if self._moved:
            data, end = bytearray(self._loaded.data), self.next_offset
            for number, encoded in self._moved.items():
                if data:
                    data[number * SLOT_DISTANCE : number * SLOT_DISTANCE + SLOT_SIZE] = encoded
            state = self.stored._replace(seq=self.seq, next_offset=end, high_watermark=end, position=self.position)
            self._loaded, self._moved = Loaded(state, self._number, tuple(self._seqs), bytes(data)), {}
        return self._loaded

    @property
    def state(self) -> PartitionState:
        """The state."""
        return self.loaded().state if self._moved else self._loaded.state

    def store(self, state: PartitionState, *, durable: bool, sync: bool = False) -> None:
        """Writes a state; arguments as `store`."""
        self.set(store(self._file, self.loaded(), state, durable=durable, sync=sync))

    def move_end(self, next_offset: int, position: int) -> None:
        """Moves the log end as `store` would, not durably, in a fraction of its time. Nothing else changes.

        Raises:
            OSError: readers may have seen it, or not.
        """
        slot, seqs, seq = self._slot, self._seqs, self.seq + 1
        if slot is None:
            slot = self._slot = bytearray(encode_slot(self.stored))
        number = int(seqs[1] < seqs[0])
        _SEQ.pack_into(slot, _SEQ_AT, seq)
        _END.pack_into(slot, _END_AT, next_offset, position)
        _HIGH_WATERMARK.pack_into(slot, _HIGH_WATERMARK_AT, next_offset)
        _CRC.pack_into(slot, _CRC_AT, crc32c(memoryview(slot)[:_CRC_AT]))
        encoded = bytes(slot)
        try:
            self._file.pwrite(encoded, number * SLOT_DISTANCE)
        except OSError:
            _undo(self._file, self.loaded(), number)
            raise
        self._moved[number], seqs[number], self._number = encoded, seq, number
        self.seq, self.next_offset, self.position = seq, next_offset, position


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
