"""Kafka's record batches, formats 0 to 2: bytes to Arrow and back, without I/O."""

from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.compression import BytesLike
from pyspark_log.storage.record.decoder import Chunk, decode
from pyspark_log.storage.record.empty_batch import empty_batch
from pyspark_log.storage.record.end_txn_marker import (
    MAX_MARKER_BYTES,
    ControlRecordError,
    EndTxnMarker,
    decode_end_txn_marker,
)
from pyspark_log.storage.record.headers import assign_offsets, headers_in, scan, set_log_append_time
from pyspark_log.storage.record.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CODEC_MASK,
    CODECS,
    CRC_AT,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    SMALLEST_MESSAGE,
    BatchHeader,
    crcs_of,
)
from pyspark_log.storage.record.rows import RowBuilder, Rows, WriteColumns, key_value_rows, row_schema, to_arrow
from pyspark_log.storage.record.walk import check_records

__all__ = [
    "ATTRIBUTES_AT", "BASE_OFFSET_AT", "CODECS", "CODEC_MASK", "CRC_AT", "HEADER_SIZE", "LEADER_EPOCH_AT", "LENGTH_AT",
    "LENGTH_PREFIX", "LOG_APPEND_TIME", "MAGIC", "MAGIC_AT", "MAX_MARKER_BYTES", "MAX_TIMESTAMP_AT",
    "SMALLEST_MESSAGE", "BatchBuilder", "BatchHeader", "BytesLike", "Chunk", "ControlRecordError", "EndTxnMarker",
    "RecordColumns", "RowBuilder", "Rows", "WriteColumns", "assign_offsets", "check_records", "crc32c", "crcs_of",
    "decode", "decode_end_txn_marker", "empty_batch", "headers_in", "key_value_rows", "row_schema", "scan",
    "set_log_append_time", "to_arrow",
]  # fmt: skip
