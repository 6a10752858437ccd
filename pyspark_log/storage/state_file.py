"""A partition's state file: the truth about where its log starts and ends.

Four slots, one in each 512-byte sector, of which the valid one with the highest sequence number
counts (as the two meta pages do in LMDB). A slot is written over the older one of its pair, so a
write that is torn, or that a reader sees half done, costs nothing but itself. Moves of the end go to
slots 0 and 1 and are not synced; what must survive a power loss (intents, rolls, cuts) goes to slots
2 and 3 and is. The pairs never mix: an ordinary move must not take the only durable trace of an intent.

Layout of a slot (128 bytes, big-endian) is in docs/format.md.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum, IntFlag
from functools import cache
from typing import NamedTuple

from pyspark_log.storage import files
from pyspark_log.storage.checksum import crc32c
from pyspark_log.storage.config import INT_MAX, LONG_MAX
from pyspark_log.storage.errors import LogDamagedError, StoreVersionError

SLOT_DISTANCE = 512
SLOT_COUNT = 4
FILE_SIZE = SLOT_COUNT * SLOT_DISTANCE
VERSION = 1
# A torn slot that claims to be the newest is being written, or was left torn by a power loss: a few looks tell.
_LOOKS = 3

# Offsets end where sums of them still fit into 64 bits.
_MAX_OFFSET = 1 << 62
_BODY = struct.Struct(">BBBBIQ8sQqqqIIqqqiIqqqI")
_CRC = struct.Struct(">I")
SLOT_SIZE = _BODY.size + _CRC.size


class Flags(IntFlag):
    """What is going on in a partition."""

    NONE = 0
    DEAD = 1  # the topic was deleted: nothing may be done here any more
    CUTTING = 2  # bytes behind the end are being removed; the next holder does it again
    SUSPECT = 4  # the active segment could not be synced; the next append begins another
    PRODUCERS = 8  # a batch with a producer id was written here at some time
    CLAIMED = 16  # on a shared file system: its holder is changing the log; one that was cut off may still do so


_ALL_FLAGS = int(Flags.DEAD | Flags.CUTTING | Flags.SUSPECT | Flags.PRODUCERS | Flags.CLAIMED)


class Intent(IntEnum):
    """A change of several steps that was begun and must be finished or dropped."""

    NONE = 0
    APPLY = 1  # the records of a decision are being written behind the end
    SWAP = 2  # segments are being replaced by a cleaned one; all of them are there, or it is
    SWAPPED = 3  # it is there; those that it takes the place of are going, and do not count any more


class PartitionState(NamedTuple):
    """Everything that a slot says.

    Attributes:
        flags: see Flags.
        intent: see Intent; the fields `intent_*` belong to it.
        log_folder: in which of the store's log folders its log is.
        generation: changes with the list of segments.
        seq: the slot's sequence number.
        boot: which boot of the machine wrote it (8 bytes).
        log_start: the first offset that readers may see.
        active_base: the base offset of the segment that is appended to.
        next_offset: the log end: the offset of the next record; readers see those below it.
        position: the size in bytes of the active segment up to the end.
        synced: the position up to which the active segment is known to be on the disk.
        unsynced_since: when the first bytes behind it were appended (ms); of no meaning if there are none.
        reserve: no offset at or above it was ever shown without being synced.
        applied: the last decision whose records are in this log; -1 = none.
        first_undone: in the decision log, the first decision that is not done.
        leader_epoch: Kafka's leader epoch, stamped on each record batch.
        intent_digest: CRC-32C over the CRC fields of the batches that are being applied.
        intent_decision: the decision that is being applied.
        intent_next, intent_base, intent_position: next_offset, active_base and position afterwards. Of a swap, the
            second is the base offset of the cleaned segment, the first that of the segment behind it, and the third
            how many bytes the cleaned log has.
    """

    flags: Flags = Flags.NONE
    intent: Intent = Intent.NONE
    log_folder: int = 0
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

    @property
    def swaps(self) -> bool:
        """Whether segments are being replaced by a cleaned one."""
        return self.intent in (Intent.SWAP, Intent.SWAPPED)

    def counts(self, base: int) -> bool:
        """Whether the segment with that base offset counts, if it is there.

        Above the active one there may be some that a killed writer has left. And those that a cleaned segment has
        taken the place of are gone as soon as the state says so; their files go a moment later.
        """
        replaced = self.intent == Intent.SWAPPED and self.intent_base < base < self.intent_next
        return base <= self.active_base and not replaced

    def without_intent(self) -> PartitionState:
        """The same state with nothing going on."""
        return self._replace(
            intent=Intent.NONE, intent_digest=0, intent_decision=-1,
            intent_next=0, intent_base=0, intent_position=0,
        )


    def contradiction(self) -> str:
        """What in it cannot be; "" for every state that a writer leaves."""
        if not (
            0 <= self.log_start <= self.next_offset <= _MAX_OFFSET
            and 0 <= self.active_base <= self.next_offset
            and self.synced <= self.position
        ):
            return (
                f"log start {self.log_start}, active segment {self.active_base}, log end {self.next_offset}, "
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
                f"{self.intent_base}, does not go on where the log ends, at {self.next_offset}"
            )
        return ""


#: A partition that nothing was ever written to has no files; this is its state.
EMPTY = PartitionState()


@cache
def this_boot() -> bytes:
    """Eight bytes that differ from boot to boot of this machine; zeros where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().replace("-", ""))[:8]
    except OSError:
        return bytes(8)


def encode_slot(state: PartitionState) -> bytes:
    """The 128 bytes of a slot."""
    body = _BODY.pack(
        VERSION, state.flags, state.intent, state.log_folder, state.generation, state.seq, state.boot,
        state.unsynced_since,
        state.log_start, state.active_base, state.next_offset, state.position, state.synced,
        state.reserve, state.applied, state.first_undone, state.leader_epoch, state.intent_digest,
        state.intent_decision, state.intent_next, state.intent_base, state.intent_position,
    )  # fmt: skip
    return body + _CRC.pack(crc32c(body))


def decode_slot(data: bytes, path: str) -> PartitionState | None:
    """What a slot says, or None if it is torn or was never written.

    Raises:
        StoreVersionError: a whole slot of a later version.
    """
    if len(data) < SLOT_SIZE:
        return None
    body = data[: _BODY.size]
    (crc,) = _CRC.unpack_from(data, _BODY.size)
    if crc != crc32c(body) or body[0] == 0:
        return None
    version, flags, intent, *rest = _BODY.unpack(body)
    if version != VERSION or flags & ~_ALL_FLAGS or intent > max(Intent):
        raise StoreVersionError(
            f"{path}: written in version {version} of the state format (flags {flags}, intent {intent}), this "
            f"pyspark-log knows version {VERSION}: use a newer pyspark-log"
        )
    return PartitionState(Flags(flags), Intent(intent), *rest)


class Loaded(NamedTuple):
    """The state as it was read, and where each slot stood; what a write needs to choose its slot."""

    state: PartitionState
    slot: int
    seqs: tuple[int, ...]


def load(file: files.File) -> Loaded:
    """Reads the slots. Needs no lock: a slot that is being written fails its CRC and an older one counts.

    Raises:
        LogDamagedError: no slot is valid, or what it says cannot be.
        StoreVersionError: a newer version wrote it.
    """
    for _ in range(_LOOKS):
        loaded, newest = _look(file)
        if loaded is not None and newest:
            break
    problem = f"none of its {SLOT_COUNT} slots is valid" if loaded is None else loaded.state.contradiction()
    if loaded is None or problem:
        raise LogDamagedError(
            f"{file.path}: {problem}; the log itself may be whole: "
            "restore the state file from a copy, or rebuild it in a copy of the store (pylog repair)"
        )
    return loaded


def _look(file: files.File) -> tuple[Loaded | None, bool]:
    """The newest valid slot, and whether no slot that claims to be newer is torn."""
    data = file.pread(FILE_SIZE, 0)
    # Sequence numbers are looked at before CRCs: nearly always the newest slot is whole.
    raw_seqs = [
        int.from_bytes(data[at + 8 : at + 16], "big") for at in range(0, FILE_SIZE, SLOT_DISTANCE)
    ]
    seqs = list(raw_seqs)
    for slot in sorted(range(SLOT_COUNT), key=raw_seqs.__getitem__, reverse=True):
        state = decode_slot(data[slot * SLOT_DISTANCE : slot * SLOT_DISTANCE + SLOT_SIZE], file.path)
        if state is not None:
            return Loaded(state, slot, tuple(seqs)), seqs == raw_seqs
        seqs[slot] = -1
    return None, False


def read(path: str) -> Loaded | None:
    """Reads the state in a file; None if there is none. LogDamagedError as `load`.

    Opens the file each time: a process may look at thousands of partitions, and a store's folder may be
    replaced by a copy of it.
    """
    try:
        file = files.open_read(path)
    except FileNotFoundError:
        return None
    with file:
        return load(file)


def store(file: files.File, before: Loaded, state: PartitionState, *, durable: bool, sync: bool = False) -> Loaded:
    """Writes `state` as the newest one. The caller holds the partition's lock and read `before` under it.

    Args:
        durable: True syncs it before returning, in the pair of slots that ordinary moves leave alone.
        sync: True syncs an ordinary move too.
    """
    pair = (2, 3) if durable else (0, 1)
    slot = min(pair, key=before.seqs.__getitem__)
    state = state._replace(seq=before.state.seq + 1, generation=state.generation % (1 << 32))
    file.pwrite(encode_slot(state), slot * SLOT_DISTANCE)
    if durable or sync:
        file.sync()
    seqs = list(before.seqs)
    seqs[slot] = state.seq
    return Loaded(state, slot, tuple(seqs))


def confirm(file: files.File, loaded: Loaded) -> None:
    """Makes the newest slot durable, whoever wrote it; the caller holds the partition's lock.

    It is written once more: if its writer's sync failed, the kernel calls it clean, and a sync alone would do nothing.
    """
    file.pwrite(encode_slot(loaded.state), loaded.slot * SLOT_DISTANCE)
    file.sync()


def create(path: str, state: PartitionState = EMPTY) -> None:
    """Makes a state file, durably and as a whole. Who comes second leaves the first one's in place."""
    first = encode_slot(state._replace(seq=1, boot=this_boot()))
    try:
        files.create_whole(path, bytes(2 * SLOT_DISTANCE) + first + bytes(FILE_SIZE - 2 * SLOT_DISTANCE - SLOT_SIZE))
    except FileExistsError:
        if os.path.getsize(path) < FILE_SIZE:
            raise
