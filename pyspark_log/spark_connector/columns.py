"""The columns of rows: those that a read returns, and those that a write accepts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_log.spark_connector.errors import ConnectorError, option_error

#: Headers of a record, for reads and writes.
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

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
    """The columns of a read, with or without `headers`; the same as storage.record.row_schema gives in Arrow."""
    return StructType([*_ROW.fields, StructField("headers", HEADERS)]) if headers else _ROW


def columns_of(given: StructType, headers: bool, every: StructType | None = None) -> tuple[str, ...]:
    """The columns that a read returns: all, or those that a user's schema names, in its order.

    Args:
        given: the schema that Spark passes on: the user's, without asking for the source's; or else the source's.
        headers: the option includeHeaders; a schema with the column `headers` needs no option.
        every: all columns that there may be; None: those of `row_schema`.

    Raises:
        ConnectorError: `given` has a column that the source does not have, or none.
    """
    known = (every or row_schema(True)).fields
    # Not by ==, which compares comments too.
    kinds = [(one.name, one.dataType, one.nullable) for one in known]
    unknown = [one for one in given.fields if (one.name, one.dataType, one.nullable) not in kinds]
    if unknown or not given.fields:
        what = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in unknown) or "nothing"
        columns = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in known)
        # What `timestamp` is in a schema with spark.sql.timestampType=TIMESTAMP_NTZ.
        zoneless = [one.name for one in unknown if isinstance(one.dataType, TimestampNTZType)]
        hint = "; write `timestamp timestamp_ltz`" if "timestamp" in zoneless else ""
        raise option_error(
            f"pylog source has fixed columns, and a schema can only select some of them; this one names {what}{hint}. "
            f"All can be null. The columns: {columns}"
        )
    if headers and "headers" not in given.names:
        raise option_error("includeHeaders is set, but the given schema does not have the column headers")
    return tuple(given.names)


def check_names(names: Sequence[str], every: StructType) -> tuple[str, ...]:
    """Returns names of columns of a read, which has all of `every`. ConnectorError: there is no such column."""
    known = every.names
    unknown = [name for name in names if name not in known]
    if unknown:
        raise option_error(f"arrowColumns: there is no column {unknown[0]}; there are {', '.join(known)}")
    return tuple(names)


TOPIC = "topic"
#: The columns that the engine accepts by the same name, besides `topic`, which names a row's topic. As in the Kafka
#: connector, a column `timestamp` is ignored: rows that were read and are written again are new records, with the time
#: of the write.
RECORD_COLUMNS = ("key", "value", "headers", "partition")

_TYPES: dict[str, tuple[DataType, ...]] = {
    TOPIC: (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
}


def check_columns(
    schema: StructType, topic: str | None, timestamp_column: str | None, typed: Collection[str] = ()
) -> None:
    """Refuses a DataFrame that cannot be written. Columns of other names are ignored, as in the Kafka connector.

    Args:
        schema: the DataFrame's schema.
        topic: the option of that name.
        timestamp_column: the option timestampColumn, which the Kafka connector lacks.
        typed: the columns of those two, key and value, that are encoded by a schema, and may have any type.

    Raises:
        ConnectorError: with the Kafka connector's messages.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if topic is None and TOPIC not in types:
        raise _error(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in types and "value" not in typed:
        raise _error("Required attribute 'value' not found")
    for name, allowed in _TYPES.items():
        if name in types and name not in typed and not (name == TOPIC and topic is not None):
            _check_type(name, types[name], allowed)
    if timestamp_column is not None:
        if timestamp_column not in types:
            raise _error(
                f"timestampColumn is {timestamp_column!r}, and there is no such column; there are: {', '.join(types)}"
            )
        given = types[timestamp_column]
        if not isinstance(given, TimestampType):
            raise _error(
                f"timestampColumn {timestamp_column!r} has the type {given.simpleString()} and must have timestamp "
                "(timestamp_ltz): cast it, or make one with timestamp_millis()"
            )


def _check_type(name: str, given: DataType, allowed: tuple[DataType, ...]) -> None:
    if not any(_same(given, one) for one in allowed):
        raise _error(
            f"{name} attribute unsupported type {given.simpleString()}. "
            f"{name} must be a(n) {' or '.join(one.simpleString() for one in allowed)}"
        )


def _same(given: DataType, wanted: DataType) -> bool:
    """Whether two types are the same, nullability aside."""
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _same(given.elementType, wanted.elementType)
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return given.names == wanted.names and all(
            _same(one.dataType, other.dataType) for one, other in zip(given.fields, wanted.fields, strict=True)
        )
    return type(given) is type(wanted)


def _error(message: str) -> ConnectorError:
    return ConnectorError("PYLOG_INVALID_COLUMNS", message)
