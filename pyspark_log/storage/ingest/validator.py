"""Validates a record batch of a Kafka client as a broker does, and converts it for its topic.

The rules are those of Kafka's LogValidator. A batch that a broker would correct silently (missing
offsets, a wrong largest time) is refused: no client sends such batches.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import BatchTooLargeError, InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.ingest.timestamps import check_times, is_past_retention, warn_past_retention
from pyspark_log.storage.record import (
    MAGIC,
    BatchBuilder,
    BatchHeader,
    RecordColumns,
    check_records,
    decode,
    scan,
    set_log_append_time,
)

#: What is wrong with the header of a client's batch, and how to say so.
_RULES: list[tuple[Callable[[BatchHeader], bool], str]] = [
    (lambda one: one.magic != MAGIC, f"a batch of format {{0.magic}}; only format {MAGIC} is written"),
    (
        lambda one: one.base_offset != 0,
        "base offset {0.base_offset}; the offsets are given here, so it must be 0",
    ),
    (lambda one: one.is_control, "a control batch; clients send none"),
    (
        lambda one: one.count < 1 or one.count != one.last_offset_delta + 1,
        "{0.count} records, and {0.last_offset_delta} as the last offset delta",
    ),
    (
        lambda one: one.timestamp_type != 0,
        "its times are said to be those of the append, which only the log can say",
    ),
    (lambda one: one.delete_horizon is not None, "it has a delete horizon, which only compaction sets"),
    (
        lambda one: one.producer_id >= 0 and (one.producer_epoch < 0 or one.base_sequence < 0),
        "producer id {0.producer_id} with epoch {0.producer_epoch} and first sequence number {0.base_sequence}",
    ),
    (
        lambda one: one.is_transactional and one.producer_id < 0,
        "a part of a transaction without a producer id",
    ),
]


def validate(batch: bytes, config: TopicConfig, now: int, where: str) -> bytearray:
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
    for is_broken, rule in _RULES:
        if is_broken(header):
            raise InvalidRecordError(f"{where}: {rule.format(header)}")
    try:
        admitted = bytearray(_admitted(batch, header, config, now, where))
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
        set_log_append_time(admitted, 0, len(admitted), now)
    return admitted


def _admitted(batch: bytes, header: BatchHeader, config: TopicConfig, now: int, where: str) -> bytes:
    """Checks the records, and returns their batch in the topic's codec. Raises as `validate`; BatchTooLargeError."""
    # If there are as many records as offsets, and these increase, there is no gap between them.
    found = check_records(batch, config.max_batch_bytes)
    if found.newest != header.max_timestamp:
        raise InvalidRecordError(
            f"{where}: its header has the largest time {header.max_timestamp}, and its records {found.newest} (ms)"
        )
    if config.compact and found.keyless:
        raise InvalidRecordError(f"{where}: a record without a key; the topic is compacted, which goes by keys")
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
        producer_id=header.producer_id, producer_epoch=header.producer_epoch, base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )  # fmt: skip
