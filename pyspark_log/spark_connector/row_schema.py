"""Spark's schema of the rows that a read gives: the Kafka connector's."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_log.spark_connector.errors import option_error

#: Headers of a record, for reads and writes.
HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_ROW = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)


def row_schema(headers: bool) -> StructType:
    """The columns of a read, with or without `headers`; the same as storage.schema.row_schema gives in Arrow."""
    return StructType([*_ROW.fields, StructField("headers", HEADERS)]) if headers else _ROW


def check_row_schema(given: StructType, headers: bool) -> None:
    """Refuses a schema of the user's own, which Spark passes on instead of asking for the source's.

    Raises:
        ConnectorError: `given` is another one.
    """
    if given != row_schema(headers):
        raise option_error("pylog source has a fixed schema and cannot be set with a custom one")
