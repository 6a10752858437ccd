"""The header of a record batch in format 2 (Kafka's DefaultRecordBatch, KIP-98), and constants of batches.

All integers are big-endian. The CRC covers everything from the attributes on, so that base offset
and leader epoch can be set later without recomputing it. The header is never compressed; the
records after it are one compressed stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

# Where each field starts, in bytes from the start of the batch.
BASE_OFFSET_AT: Final = 0  # int64: offset of the first record as it was written
LENGTH_AT: Final = BASE_OFFSET_AT + 8  # int32: bytes that follow this field
LEADER_EPOCH_AT: Final = LENGTH_AT + 4  # int32: epoch of the leader that assigned the offsets
MAGIC_AT: Final = LEADER_EPOCH_AT + 4  # int8: 2
CRC_AT: Final = MAGIC_AT + 1  # uint32: CRC-32C of all that follows
ATTRIBUTES_AT: Final = CRC_AT + 4  # int16: the bits below
FLAGS_AT: Final = ATTRIBUTES_AT + 1  # the byte of these that has the codec and the flags
LAST_OFFSET_DELTA_AT: Final = ATTRIBUTES_AT + 2  # int32: last offset - base offset
BASE_TIMESTAMP_AT: Final = LAST_OFFSET_DELTA_AT + 4  # int64 ms: the records' times are relative to it
MAX_TIMESTAMP_AT: Final = BASE_TIMESTAMP_AT + 8  # int64 ms: largest of the records' times
PRODUCER_ID_AT: Final = MAX_TIMESTAMP_AT + 8  # int64: -1 for none
PRODUCER_EPOCH_AT: Final = PRODUCER_ID_AT + 8  # int16: -1 for none
BASE_SEQUENCE_AT: Final = PRODUCER_EPOCH_AT + 2  # int32: -1 for none
COUNT_AT: Final = BASE_SEQUENCE_AT + 4  # int32: how many records there are (compaction lowers it)
HEADER_SIZE: Final = COUNT_AT + 4

#: The smallest batch in bytes: a message of format 0 with neither key nor value.
SMALLEST_MESSAGE: Final = 26
#: Bytes of a batch that its length field does not count: the base offset and the length itself.
LENGTH_PREFIX: Final = LEADER_EPOCH_AT
#: Bytes that are needed to read a batch's size and format.
SCAN_SIZE: Final = MAGIC_AT + 1
#: The format that is written.
MAGIC: Final = 2

# Attribute bits. The rest are 0.
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

#: The count of a batch whose header does not have it: a compressed set of messages of format 0 or 1.
UNKNOWN_COUNT: Final = -1

#: Bytes in the columns of a record or a header besides its content: offset, time, lengths.
ROW_BYTES: Final = 32

#: Names of the codecs by their number in the attributes; 5 to 7 are invalid.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

#: The header as one struct, in the order of `BatchHeader`'s fields after `position`.
HEADER: Final = Struct(">qiibIhiqqqhii")


class BatchHeader(NamedTuple):
    """A batch's header, and the batch's position.

    A message of formats 0 and 1 (Kafka's LegacyRecord) is a batch of its own. It has no leader epoch, no
    producer and no flags of format 2. If it is a compressed set of messages, its header has the offset of
    the last of them only, which is `base_offset` here too: how many there are, and where they begin, is
    known once they are decompressed (`decode`).

    Attributes:
        position: byte at which the batch starts, in the buffer or file that was scanned.
        base_offset: the first record's offset as it was written.
        size: bytes of the whole batch, the prefix of 12 included.
        leader_epoch: epoch of the leader that assigned the offsets; -1 for none.
        magic: format, 0 to 2.
        crc: CRC-32C of the bytes from the attributes on; in formats 0 and 1 CRC-32 from the magic on.
        attributes: codec and flags; without the bits that the format does not define.
        last_offset_delta: last offset - base offset; compaction keeps it even if the last record
            is removed.
        base_timestamp: ms that the records' times are relative to; the delete horizon, if the
            batch has one.
        max_timestamp: largest time of a record in ms, or the time of the append; -1 for none, as
            always in format 0.
        producer_id, producer_epoch, base_sequence: of an idempotent producer; -1 for none.
        count: how many records there are; fewer than offsets after compaction, even 0.
            UNKNOWN_COUNT for a compressed set of messages.
    """

    position: int
    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which a header does not need

    @property
    def last_offset(self) -> int:
        """Offset of the last record as it was written."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def end(self) -> int:
        """Position of the byte after the batch."""
        return self.position + self.size

    @property
    def codec(self) -> str:
        """Name of the compression codec of the records, one of `CODECS`."""
        return CODECS[self.attributes & CODEC_MASK]

    @property
    def has_flags(self) -> bool:
        """Whether its attributes say anything but the codec."""
        return self.attributes & ~CODEC_MASK != 0

    @property
    def timestamp_type(self) -> int:
        """0: time of creation; 1: time of the append (`max_timestamp`, for all records); -1: format 0 has none."""
        if self.magic == 0:
            return -1
        return 1 if self.attributes & LOG_APPEND_TIME else 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, such as a transaction marker, and no records of users."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction of a Kafka producer."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def delete_horizon(self) -> int | None:
        """The time (ms) from which the cleaner may remove the batch's tombstones; None: not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def crcs_of(headers: Iterable[BatchHeader]) -> bytes:
    """The CRC fields of batches, 4 bytes each."""
    return b"".join(header.crc.to_bytes(4, "big") for header in headers)
