"""Validates a record batch of a Kafka client as a broker does, and converts it for its topic.

The rules are those of Kafka's LogValidator. A batch that a broker would correct silently (missing
offsets, a wrong largest time) is refused: no client sends such batches.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import BatchTooLargeError, InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.ingest.timestamps import check_times, is_past_retention, warn_past_retention
from pyspark_log.storage.record import BatchHeader, decode, scan
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.headers import set_log_append_time
from pyspark_log.storage.record.layout import MAGIC
from pyspark_log.storage.record.walk import check_records


def validate(batch: bytes, config: TopicConfig, now: int, where: object) -> bytes | bytearray:
    """Returns the bytes of a batch for the topic's log: its own, or the same records in the topic's codec.

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
    if is_past_retention(header.max_timestamp, config, now):
        warn_past_retention(header.max_timestamp, config, where)
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


def _admitted(batch: bytes, header: BatchHeader, config: TopicConfig, now: int, where: object) -> bytes:
    """Checks the records, and returns their batch in the topic's codec. Raises as `validate`; BatchTooLargeError."""
    # If there are as many records as offsets, and these increase, there is no gap between them.
    found = check_records(batch, config.max_batch_bytes)
    if found.newest != header.max_timestamp:
        raise InvalidRecordError(
            f"{where}: its header has the largest time {header.max_timestamp}, and its records {found.newest} (ms)"
        )
    if config.compact and found.keyless:
        raise InvalidRecordError(f"{where}: a record without a key; the topic is compacted, which requires keys")
    check_times((found.oldest, found.newest), lambda: _milliseconds(_columns(batch, config)), config, now, where)
    if config.keeps_codec or header.codec == config.codec:
        return batch
    return _in_codec_of(config, _columns(batch, config), header)


def _columns(batch: bytes, config: TopicConfig) -> dict[str, pa.Array]:
    """The columns of a batch that was checked. BatchTooLargeError."""
    return decode(
        batch, 0, len(batch), from_offset=0, until_offset=INT_MAX + 1, max_bytes=INT_MAX, check_crcs=False,
        headers=True, max_batch_bytes=config.max_batch_bytes,
    ).columns  # fmt: skip


def _milliseconds(columns: dict[str, pa.Array]) -> pa.Array:
    return pc.divide(columns["timestamp"].cast(pa.int64()), 1000)


def _in_codec_of(config: TopicConfig, columns: dict[str, pa.Array], header: BatchHeader) -> bytes:
    """Encodes the same records as one batch of the same producer, compressed with the topic's codec."""
    records = RecordColumns(columns["key"], columns["value"], _milliseconds(columns), columns["headers"], 0)
    builder = BatchBuilder(INT_MAX, config.max_message_bytes, config.codec, config.level)
    builder.append(records, None, 0, header.count)
    return builder.seal(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
