"""The state of a partition, the slot of the state file that holds one, and what follows from it.

Its owner gives the records their offsets: any process that holds the lock, a mirror, or a node of a Kafka cluster. Any
process may delete, compact and move what is there, as the topic's configs say. A file that is missing or too short by
its state is damage, or of a deleted topic. A view that a process keeps of a compacted log may be continued, or not.

Layout of a slot (256 bytes, big-endian) is in docs/internals/format.md.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import (
    LogDamagedError,
    LogDirOfflineError,
    PartitionOwnedError,
    StoreVersionError,
    UnknownTopicError,
)
from pyspark_log.storage.catalog import LogDirs, PartitionPath
from pyspark_log.storage.record import crc32c
from pyspark_log.storage.segment.file_names import list_segments

VERSION = 2
SLOT_SIZE = 256
#: The owner of a partition that any process may append to, and of one that is mirrored.
NO_OWNER, MIRROR = 0, -1
#: No leader epoch: the process leads no partition of a cluster.
NO_EPOCH = -1
# Offsets are limited so that sums of them still fit into 64 bits.
_MAX_OFFSET = 1 << 62
_BODY = struct.Struct(">BBHIQ8sQqqqIIqqqiIqqqIHxxqIIqi4xqq")
_CRC = struct.Struct(">I")
CRC_AT = SLOT_SIZE - _CRC.size
# What a move of the end changes: seq; next_offset and position; high_watermark.
_SEQ, _SEQ_AT = struct.Struct(">Q"), 8
_END, _END_AT = struct.Struct(">qI"), 48
_HIGH_WATERMARK, _HIGH_WATERMARK_AT = struct.Struct(">q"), 128


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


_INTENTS = frozenset(Intent)


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
        high_watermark: the visible end: readers see the records below it. The log end, but for `is_replica`.
        incarnation: rises when the log may differ from what a process has cached of it: after a power loss, after a
            truncation, and when a writer was cut off. What a process has read of another incarnation is read again.
        truncations: how often the log was truncated, so that offsets were given to other records.
        owner_epoch, owner_node: which node alone may write (`owner.MIRROR`: the mirror of a Kafka cluster), and the
            epoch of that right; 0, 0: any process that holds the partition's lock.
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
    def is_replica(self) -> bool:
        """Whether a node owns the partition, so that its leader says up to where records are visible.

        Of all others there is one log, and all of it is visible.
        """
        return self.owner_node > 0

    @property
    def swaps(self) -> bool:
        """Whether segments are being replaced by a cleaned one."""
        return self.intent in (Intent.SWAP, Intent.SWAPPED)

    @property
    def may_have_transactions(self) -> bool:
        """Whether there may be transactions; if not, all below the high watermark is committed."""
        return bool(self.flags & Flags.PRODUCERS)

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
            intent=Intent.NONE, intent_digest=0, intent_decision=-1, intent_next=0, intent_base=0, intent_position=0
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
            self.seq <= LONG_MAX
            and 0 <= self.reserve <= _MAX_OFFSET
            and 0 <= self.leader_epoch < INT_MAX
            and -1 <= self.applied < LONG_MAX
            and self.first_undone >= 0
        ):
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


def encode_slot(state: PartitionState) -> bytes:
    """Encodes a slot (256 bytes)."""
    # In the order of the fields, with the sequence number where every version has it.
    data = _BODY.pack(VERSION, *state).ljust(CRC_AT, b"\0")
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
    (crc,) = _CRC.unpack_from(data, CRC_AT)
    if crc != crc32c(data[:CRC_AT]):
        _refuse_version_1(data, path)
        return None
    return decode_body(data, 0, path)


def decode_body(data: bytes, at: int, path: str) -> PartitionState:
    """Decodes the slot at a byte, whose CRC is right. StoreVersionError."""
    version, intent, flags, *rest = _BODY.unpack_from(data, at)
    if version != VERSION or flags & ~_ALL_FLAGS or intent not in _INTENTS:
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


def move_end(slot: bytearray, seq: int, next_offset: int, position: int, high_watermark: int) -> None:
    """Changes an encoded slot as a move of the log end does, and of the high watermark with it."""
    _SEQ.pack_into(slot, _SEQ_AT, seq)
    _END.pack_into(slot, _END_AT, next_offset, position)
    _HIGH_WATERMARK.pack_into(slot, _HIGH_WATERMARK_AT, high_watermark)
    _CRC.pack_into(slot, CRC_AT, crc32c(memoryview(slot)[:CRC_AT]))


# ---- what follows from a state: which process may append, what a file means that is not there, whether a view is right


def of_node(node_id: int) -> int:
    """The owner of the partitions that a node of a Kafka cluster has replicas of; `node_id` is its broker.id."""
    return node_id + 1


def check_owner(place: PartitionPath, state: PartitionState, leads: int = NO_EPOCH) -> None:
    """Raises PartitionOwnedError if a partition has an owner, so that no other process may append to it.

    `leads`: the leader epoch in which this process, a node of a Kafka cluster, leads it, so that it may.
    """
    if state.owner_node == NO_OWNER or (state.owner_node > NO_OWNER and state.leader_epoch == leads):
        return
    if state.owner_node == MIRROR:
        raise PartitionOwnedError(
            f"{place} is mirrored, with the offsets of its source: write there; or end the mirror and make "
            f"the topic one of this store with: pylog mirror --promote --topics {place.topic}"
        )
    raise PartitionOwnedError(
        f"{place}: node {state.owner_node - 1} of a Kafka cluster has a replica here: write to the partition's leader, "
        "with a client of Kafka"
    )


@contextlib.contextmanager
def missing_is_damage(place: PartitionPath) -> Iterator[None]:
    """Reports a missing segment file as LogDamagedError."""
    try:
        yield
    except OSError as error:
        # On a network file system a file that another machine deleted is stale.
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        raise LogDamagedError(f"{place}: {error.filename} is missing: it was removed or moved") from None


def check_length(place: PartitionPath, path: str, size: int, held: int) -> None:
    """Raises LogDamagedError if a log file is shorter than its state says.

    Args:
        place: the partition.
        path: the file.
        size: its size in bytes.
        held: its size in bytes by the partition's state.
    """
    if size < held:
        raise LogDamagedError(
            f"{place}: {path} has {size} bytes, of which {held} were written and acknowledged: another program "
            "truncated it",
            "nothing is changed: restore it from a copy, or make a copy of the store without the lost records "
            "(pylog repair)",
        )


def no_state(place: PartitionPath) -> UnknownTopicError | LogDamagedError:
    """Returns the error for a partition that has segments but no state file."""
    if not list_segments(place.folder):
        return UnknownTopicError(f"{place}: the topic was deleted")
    owner = place.owner()
    if owner in ("", place.topic_id):
        return LogDamagedError(
            f"{place}: {place.folder} holds segments, but its state file {place.state_path} is missing",
            "restore it from a copy of the store",
        )
    return UnknownTopicError(
        f"{place}: the topic was deleted; or, if it is there, {place.folder} is of an earlier one of that name, "
        f"with the topic id {owner}: see `pylog verify`"
    )


def holds_segments(folders: LogDirs | None, place: PartitionPath) -> bool:
    """Whether a partition without a state has segments; False if its log dir has failed. OSError.

    A partition that was never written to is expected in the first log dir, which a failure must not take offline.
    """
    try:
        return bool(list_segments(place.folder))
    except OSError as error:
        if folders is not None and isinstance(folders.explained(error, place), LogDirOfflineError):
            return False
        raise


class ViewPosition:
    """The position of a view, and the rule for whether the view may be continued from there.

    Attributes:
        position: the offset up to which the view has read.
    """

    def __init__(self) -> None:
        """Nothing is read yet."""
        self.position = -1
        self._at = 0
        self._seen: tuple[object, int] = (None, -1)

    def must_rebuild(self, state: PartitionState, end: int, now: int, tombstones_stay: int, store: object) -> bool:
        """Whether the view must be dropped and rebuilt from the log start, which is its position then.

        It must if the log is another one, or was truncated or recovered; also if the view was not followed for half of
        the time for which compaction keeps tombstones: a tombstone that was never seen may be gone. Records that were
        read change in no other way, except by a move of the log start.

        Args:
            state: the log's current state.
            end: how far it can be read.
            now: the time before `state` was read, in ms: this process may be suspended in between.
            tombstones_stay: for how long compaction keeps a tombstone, in ms.
            store: identifies the store, so that a copy that has replaced it is recognized.
        """
        seen = (store, state.incarnation)
        slept = not 0 <= now - self._at < tombstones_stay // 2
        again = slept or seen != self._seen or not state.log_start <= self.position <= end
        if again:
            # Until `advance`, each call says so: the caller may be stopped before it has dropped the view.
            self._at, self._seen, self.position = 0, seen, state.log_start
        return again

    def advance(self, end: int, now: int) -> None:
        """Records that the view has read up to `end`; a view that could not be read to its end was not followed."""
        self.position, self._at = end, now
