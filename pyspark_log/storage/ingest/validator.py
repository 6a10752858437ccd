"""Validates a record batch of a Kafka client as a broker does, and converts it for its topic.

The rules are those of Kafka's LogValidator. A batch whose records have no offsets, which a broker would correct, is
refused: no client sends such batches.
"""

from __future__ import annotations

from struct import pack_into

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import BatchTooLargeError, InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.ingest.encoder import check_times, is_past_retention, warn_past_retention
from pyspark_log.storage.record import BatchHeader, crc32c, scan
from pyspark_log.storage.record.codecs.compression import compress, decompress
from pyspark_log.storage.record.headers import set_log_append_time
from pyspark_log.storage.record.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CODECS,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_PREFIX,
    MAGIC,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
)
from pyspark_log.storage.record.walk import check_records, read_pairs, record_times


def validate(batch: bytes, config: TopicConfig, now: int, where: object) -> bytes | bytearray:
    """Returns the bytes of a batch for the topic's log: its own, with the right largest time in the header, or the same
    records in the topic's codec.

    Args:
        batch: one complete batch of format 2, with base offset 0.
        config: the topic's configs.
        now: the time in ms: that of the records if the topic has LogAppendTime.
        where: topic and partition, for errors.

    Raises:
        InvalidRecordError: a rule of Kafka's is broken; RecordTooLargeError: larger than max.message.bytes, or than
            batch.max.memory.bytes once it is decompressed.
        CorruptRecordError: the bytes are not a record batch, the CRC is wrong, or the offsets do not increase.
    """
    if len(batch) > config.max_message_bytes:
        raise RecordTooLargeError(
            f"{where}: a record batch of {len(batch)} bytes is larger than max.message.bytes "
            f"({config.max_message_bytes}): send smaller ones, or raise max.message.bytes of the topic"
        )
    headers = scan(batch, 0, len(batch), check_crcs=True)
    if len(headers) != 1 or headers[0].end != len(batch):
        whole = headers[-1].end if headers else 0
        raise InvalidRecordError(
            f"{where}: {len(headers)} whole batches and {len(batch) - whole} bytes after them; it must be one batch"
        )
    header = headers[0]
    broken = _broken_rule(header)
    if broken:
        raise InvalidRecordError(f"{where}: {broken}")
    try:
        admitted = _admitted(batch, header, config, now, where)
    except BatchTooLargeError as error:
        raise RecordTooLargeError(f"{where}: {error.reason}; {error.advice}") from None
    if len(admitted) > config.segment_bytes:
        raise RecordTooLargeError(
            f"{where}: a record batch of {len(admitted)} bytes is larger than segment.bytes ({config.segment_bytes}): "
            "send smaller ones, or raise segment.bytes of the topic"
        )
    if config.log_append_time:
        stamped = bytearray(admitted)
        set_log_append_time(stamped, 0, len(stamped), now)
        return stamped
    return admitted


def _broken_rule(one: BatchHeader) -> str:  # noqa: PLR0911  (a rule each)
    """What is wrong with the header of a client's batch; "" if nothing is."""
    if one.magic != MAGIC:
        return f"a batch of format {one.magic}; only format {MAGIC} is written"
    if one.base_offset != 0:
        return f"base offset {one.base_offset}; the offsets are given here, so it must be 0"
    if one.count < 1 or one.count != one.last_offset_delta + 1:
        return f"{one.count} records, and {one.last_offset_delta} as the last offset delta"
    if one.has_flags:
        if one.is_control:
            return "a control batch; clients send none"
        if one.timestamp_type != 0:
            return "its times are said to be those of the append, which only the log can say"
        if one.delete_horizon is not None:
            return "it has a delete horizon, which only compaction sets"
        if one.is_transactional and one.producer_id < 0:
            return "a part of a transaction without a producer id"
    if one.producer_id < 0:
        return ""
    if one.producer_epoch < 0 or one.base_sequence < 0:
        return (
            f"producer id {one.producer_id} with epoch {one.producer_epoch} and first sequence number "
            f"{one.base_sequence}"
        )
    return ""


def _admitted(batch: bytes, header: BatchHeader, config: TopicConfig, now: int, where: object) -> bytes | bytearray:
    """Checks the records, and returns their batch in the topic's codec. Raises as `validate`; BatchTooLargeError."""
    # If there are as many records as offsets, and these increase, there is no gap between them.
    found = check_records(batch, config.max_batch_bytes)
    if config.compact and found.keyless:
        error = InvalidRecordError(f"{where}: a record without a key; the topic is compacted, which requires keys")
        pairs = read_pairs(batch, 0, len(batch), from_offset=0, until_offset=INT_MAX + 1).pairs
        error.records = tuple(number for number, (key, _, _) in enumerate(pairs) if key is None)
        raise error
    check_times(
        (found.oldest, found.newest), lambda: record_times(batch, config.max_batch_bytes)[1], config, now, where
    )
    if is_past_retention(found.newest, config, now):
        warn_past_retention(found.newest, config, where)
    if found.newest != header.max_timestamp:
        batch = _with_largest_time(batch, found.newest)
    if config.keeps_codec or header.codec == config.codec:
        return batch
    return _in_codec_of(config, batch, header, where)


def _with_largest_time(batch: bytes, newest: int) -> bytes:
    """The batch with this time (ms) in its header: rskafka 0.6 rounds the one that it sends in another way."""
    corrected = bytearray(batch)
    pack_into(">q", corrected, MAX_TIMESTAMP_AT, newest)
    corrected[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(corrected)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(corrected)


def without_transaction(batch: bytes | bytearray) -> bytearray:
    """The batch as one that belongs to no transaction, for a log that has none."""
    changed = bytearray(batch)
    attributes = int.from_bytes(changed[ATTRIBUTES_AT:LAST_OFFSET_DELTA_AT], "big") & ~TRANSACTIONAL
    changed[ATTRIBUTES_AT:LAST_OFFSET_DELTA_AT] = attributes.to_bytes(2, "big")
    changed[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(changed)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return changed


def _in_codec_of(config: TopicConfig, batch: bytes, header: BatchHeader, where: object) -> bytearray:
    """The same records, which were checked, compressed with the topic's codec. RecordTooLargeError."""
    records = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], config.max_batch_bytes)
    recoded = bytearray().join([memoryview(batch)[:HEADER_SIZE], compress(config.codec, records, config.level)])
    if len(recoded) > config.max_message_bytes:
        raise RecordTooLargeError(
            f"{where}: a record batch of {len(batch)} bytes has {len(recoded)} in the topic's codec, more than "
            f"max.message.bytes ({config.max_message_bytes}): send smaller ones, or raise that config of the topic"
        )
    attributes = header.attributes & ~CODEC_MASK | CODECS.index(config.codec)
    recoded[LENGTH_AT:LEADER_EPOCH_AT] = (len(recoded) - LENGTH_PREFIX).to_bytes(4, "big")
    recoded[ATTRIBUTES_AT:LAST_OFFSET_DELTA_AT] = attributes.to_bytes(2, "big")
    recoded[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(recoded)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return recoded
