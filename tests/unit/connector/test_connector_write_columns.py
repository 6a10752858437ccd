"""The columns of a write: the Kafka connector's checks and messages."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_log.spark_connector.columns import check_columns
from pyspark_log.spark_connector.errors import ConnectorError

BINARY = BinaryType()


def headers(value=BINARY, name="key"):
    fields = [StructField(name, StringType(), nullable=False), StructField("value", value)]
    return ArrayType(StructType(fields), containsNull=False)


def columns(**types):
    return StructType([StructField(name, kind) for name, kind in types.items()])


def test_everything_that_can_be_written():
    check_columns(
        columns(
            key=BinaryType(),
            value=StringType(),
            topic=StringType(),
            partition=IntegerType(),
            headers=headers(),
            at=TimestampType(),
            other=LongType(),
        ),
        None,
        "at",
    )


def test_the_topic_option_overrules_the_column():
    check_columns(columns(value=BinaryType(), topic=IntegerType()), "t", None)


def test_a_column_timestamp_is_left_alone():
    check_columns(columns(value=BinaryType(), timestamp=StringType()), "t", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("at", r"timestampColumn is 'at', and there is no such column; there are: value, AT, zoneless"),
        ("value", r"timestampColumn 'value' has the type string and must have timestamp"),
        ("zoneless", r"timestampColumn 'zoneless' has the type timestamp_ntz .* timestamp \(timestamp_ltz\): cast"),
    ],
)
def test_refused_as_the_column_of_times(name, message):
    schema = columns(value=StringType(), AT=TimestampType(), zoneless=TimestampNTZType())
    with pytest.raises(ConnectorError, match=rf"\[PYLOG_INVALID_COLUMNS\] {message}"):
        check_columns(schema, "t", name)


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        (columns(key=StringType()), "t", "Required attribute 'value' not found"),
        (columns(VALUE=StringType()), "t", "Required attribute 'value' not found"),
        (columns(value=StringType()), None, "topic option required when no 'topic' attribute is present"),
        (
            columns(value=StringType(), topic=IntegerType()),
            None,
            r"topic attribute unsupported type int\. topic must be a\(n\) string$",
        ),
        (
            columns(value=IntegerType()),
            "t",
            r"value attribute unsupported type int\. value must be a\(n\) string or binary",
        ),
        (columns(value=StringType(), key=LongType()), "t", "key attribute unsupported type bigint"),
        (columns(value=StringType(), partition=StringType()), "t", "partition attribute unsupported type string"),
        (columns(value=StringType(), headers=headers(value=StringType())), "t", "headers attribute unsupported type"),
        (columns(value=StringType(), headers=headers(name="k")), "t", "headers attribute unsupported type"),
    ],
)
def test_refused(schema, topic, message):
    with pytest.raises(ConnectorError, match=rf"\[PYLOG_INVALID_COLUMNS\] {message}"):
        check_columns(schema, topic, None)
