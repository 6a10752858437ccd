"""The Spark data source as functions with named arguments; each sets the options of docs/reference/spark.md.

from pyspark_log.spark import read, read_stream, write, write_stream

late = read(spark, "/data/store", "flights", columns=["value"])
write(late, "/data/store", "late")
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeVar

from pyspark.sql import DataFrame, DataFrameReader, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter
from pyspark.sql.types import StructType

from pyspark_log.arguments import to_ms
from pyspark_log.errors import InvalidConfigError
from pyspark_log.spark_connector.columns import check_columns, row_schema
from pyspark_log.spark_connector.options import lower_names, split_storage
from pyspark_log.spark_connector.reading.transform import ArrowFunction, encode
from pyspark_log.spark_connector.writing.publish_together import Publish, own_publish_id

__all__ = [
    "Position", "Topics", "publish_each", "read", "read_stream", "with_source_position", "write", "write_stream",
]  # fmt: skip

#: Topics by name; or some partitions of each.
Topics = str | Sequence[str] | Mapping[str, Iterable[int]]
#: A word; an offset for each partition of each topic (-2: earliest, -1: latest); or a time, for its first record.
Position = Literal["earliest", "latest", "group"] | Mapping[str, Mapping[int, int]] | datetime
_Options = Mapping[str, str | int | bool]
_Path = str | os.PathLike[str]


def read(
    spark: SparkSession,
    path: _Path,
    topics: Topics | None = None,
    *,
    pattern: str | None = None,
    start: Position | None = None,
    end: Position | None = None,
    columns: Sequence[str] | None = None,
    headers: bool = False,
    transform: ArrowFunction | None = None,
    schema: StructType | str | None = None,
    options: _Options | None = None,
) -> DataFrame:
    """A batch read.

    Args:
        spark: the session.
        path: the store's folder.
        topics: what to read; None: the topics of `pattern`.
        pattern: a regular expression, found anywhere in a topic's name.
        start, end: where to begin and end; None: at the earliest offset, and at the latest when a task runs.
        columns: those to read; None: all but headers. With `transform`, those that it gets.
        headers: whether to read the column of headers too.
        transform: gets the records as Arrow batches in the reading tasks, and returns rows of `schema`.
        schema: the columns that `transform` returns.
        options: more options, by their names in docs/reference/spark.md.

    Raises:
        InvalidConfigError: the arguments contradict each other.
        AnalysisException: an option is refused.
    """
    arguments = _reading(topics, pattern, start, columns, headers, transform, schema) | _bound("ending", end)
    reader = spark.read.format("pylog").options(**(arguments | _texts(options)))
    return _with_schema(reader, columns, headers, schema).load(os.fspath(path))


def read_stream(
    spark: SparkSession,
    path: _Path,
    topics: Topics | None = None,
    *,
    pattern: str | None = None,
    start: Position | None = None,
    group: str | None = None,
    max_offsets: int | None = None,
    max_bytes: int | str | None = None,
    columns: Sequence[str] | None = None,
    headers: bool = False,
    transform: ArrowFunction | None = None,
    schema: StructType | str | None = None,
    options: _Options | None = None,
) -> DataFrame:
    """A streaming read. Arguments and errors are those of `read`, and:

    Args:
        start: where a new query begins; None: at the latest offset.
        group: the group under which the query's offsets are committed.
        max_offsets, max_bytes: how large a micro-batch is at most; bytes as a number or as "128m".
    """
    arguments = _reading(topics, pattern, start, columns, headers, transform, schema)
    arguments |= _texts({"kafka.group.id": group, "maxOffsetsPerTrigger": max_offsets, "maxBytesPerTrigger": max_bytes})
    reader = spark.readStream.format("pylog").options(**(arguments | _texts(options)))
    return _with_schema(reader, columns, headers, schema).load(os.fspath(path))


def write(
    df: DataFrame,
    path: _Path,
    topic: str | None = None,
    *,
    publish_id: str | None = None,
    publish_number: int | None = None,
    timestamp_column: str | None = None,
    options: _Options | None = None,
) -> None:
    """A batch write, which appends: there is no mode to choose.

    Args:
        df: the rows: `value`, and optionally key, headers, partition, topic.
        path: the store's folder; a store is created if the folder is missing or empty.
        topic: of all rows; None: the column `topic` names it.
        publish_id, publish_number: name the write, so that it can be repeated and still appears once.
        timestamp_column: the column with the records' times; None: the time of the write.
        options: more options, by their names in docs/reference/spark.md.

    Raises:
        PySparkException: the write is refused or failed; its text says whether it is published
            (docs/concepts/guarantees.md).
    """
    arguments = _texts(
        {"topic": topic, "publishId": publish_id, "publishNumber": publish_number, "timestampColumn": timestamp_column}
    )
    _make_active(df.sparkSession)
    df.write.format("pylog").mode("append").options(**(arguments | _texts(options))).save(os.fspath(path))


def write_stream(
    df: DataFrame,
    path: _Path,
    topic: str | None = None,
    *,
    checkpoint: _Path,
    name: str | None = None,
    mode: Literal["append", "update", "complete"] = "append",
    interval: str | None = None,
    available_now: bool = False,
    publish_id: str | None = None,
    publish_offsets: bool = False,
    timestamp_column: str | None = None,
    options: _Options | None = None,
) -> StreamingQuery:
    """Starts a streaming write, exactly once.

    Args:
        df: the rows, as for `write`.
        path, topic, timestamp_column: as for `write`.
        checkpoint: the query's checkpoint location.
        name: the query's name.
        mode: the output mode. Spark refuses `update` for a sink in Python, so `foreachBatch` writes the rows then,
            each micro-batch in one publish.
        interval: how often a micro-batch starts, such as "10 seconds"; None: as soon as the one before is done.
        available_now: whether the query ends when it has written what there is at its start.
        publish_id: names the query beyond its checkpoint.
        publish_offsets: whether the offsets that it has read are committed with its output; not in mode `update`.
        options: more options, by their names in docs/reference/spark.md; in mode `update` only `storage.*`.

    Raises:
        InvalidConfigError: an interval and `available_now`, or what mode `update` does not take.
        ConnectorError: in mode `update`, a column is refused; in other modes the query fails.
    """
    writer = _with_trigger(df.writeStream, interval, available_now=available_now)
    _make_active(df.sparkSession)
    writer = writer.outputMode(mode).option("checkpointLocation", os.fspath(checkpoint))
    if mode == "update":
        of_store, others = split_storage(lower_names(_texts(options)))
        if publish_offsets or others:
            raise InvalidConfigError("mode='update' takes neither publish_offsets nor options other than storage.*")
        check_columns(df.schema, topic, timestamp_column)
        writer = writer.foreachBatch(_publish_whole(path, of_store, topic, publish_id, timestamp_column))
    else:
        arguments = _texts(
            {
                "topic": topic,
                "publishId": publish_id,
                "publishOffsets": publish_offsets or None,
                "timestampColumn": timestamp_column,
            }
        )
        writer = writer.format("pylog").options(**(arguments | _texts(options)))
    if name is not None:
        writer = writer.queryName(name)
    return writer.start(os.fspath(path))


def _with_trigger(writer: DataStreamWriter, interval: str | None, *, available_now: bool) -> DataStreamWriter:
    """As of `write_stream`; InvalidConfigError."""
    if interval is not None and available_now:
        raise InvalidConfigError("interval and available_now exclude each other: a query has one trigger")
    if available_now:
        return writer.trigger(availableNow=True)
    return writer if interval is None else writer.trigger(processingTime=interval)


def publish_each(
    path: _Path,
    publish_id: str,
    function: Callable[[DataFrame, Publish], object],
    *,
    options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that publishes all writes of a micro-batch atomically, exactly once.

    Args:
        path: the store's folder.
        publish_id: names the query's publishes, permanently.
        function: gets a micro-batch, and what to write its output with: `out.write(df, topic="late")`.
        options: as for `Store.open`.
    """

    def each(batch: DataFrame, batch_id: int) -> None:
        with Publish(path, publish_id, batch_id, options=options) as out:
            function(batch, out)

    return each


def _make_active(spark: SparkSession) -> None:
    """Makes the session active in this thread: only there does Spark (4.3) find a sink in Python by its name."""
    if SparkSession.getActiveSession() is None:
        spark.createDataFrame([], "a int")


def _publish_whole(
    path: _Path, of_store: Mapping[str, str], topic: str | None, publish_id: str | None, timestamp_column: str | None
) -> Callable[[DataFrame, int], None]:
    """Writes a micro-batch in one publish, under `publish_id` or the query's own id."""
    ids = [] if publish_id is None else [publish_id]

    def each(batch: DataFrame, batch_id: int) -> None:
        if not ids:
            ids.append(own_publish_id())
        with Publish(path, ids[0], batch_id, options=of_store) as out:
            out.write(batch, topic, timestamp_column=timestamp_column)

    return each


# ---- arguments as options


def _reading(
    topics: Topics | None,
    pattern: str | None,
    start: Position | None,
    columns: Sequence[str] | None,
    headers: bool,
    transform: ArrowFunction | None,
    schema: StructType | str | None,
) -> dict[str, str]:
    if (transform is None) != (schema is None):
        raise InvalidConfigError("transform and schema need each other: the schema says what the transform returns")
    arguments = _texts({"subscribePattern": pattern, "includeHeaders": headers or None}) | _bound("starting", start)
    if isinstance(topics, Mapping):
        arguments["assign"] = json.dumps({topic: list(numbers) for topic, numbers in topics.items()})
    elif topics is not None:
        arguments["subscribe"] = topics if isinstance(topics, str) else ",".join(topics)
    if transform is not None:
        arguments["arrowTransform"] = encode(transform)
        if columns is not None:
            arguments["arrowColumns"] = ",".join(columns)
    return arguments


def _bound(side: str, position: Position | None) -> dict[str, str]:
    if position is None:
        return {}
    if isinstance(position, datetime):
        return {f"{side}Timestamp": str(to_ms(position))}
    if isinstance(position, str):
        return {f"{side}Offsets": position}
    offsets = {topic: {str(number): offset for number, offset in each.items()} for topic, each in position.items()}
    return {f"{side}Offsets": json.dumps(offsets)}


_Reader = TypeVar("_Reader", DataFrameReader, DataStreamReader)


def _with_schema(
    reader: _Reader, columns: Sequence[str] | None, headers: bool, schema: StructType | str | None
) -> _Reader:
    """The reader with the schema that it is to have: that of the transform, or of the columns; else its own."""
    if schema is not None:
        return reader.schema(schema)
    if columns is None:
        return reader
    asked: Sequence[str] = columns
    names = [*asked, *(["headers"] if headers and "headers" not in asked else [])]
    record = row_schema(True)
    unknown = [name for name in names if name not in record.names]
    if unknown:
        raise InvalidConfigError(f"columns: no column {unknown[0]!r}; these are: {', '.join(record.names)}")
    return reader.schema(StructType([record[name] for name in names]))


def _texts(options: Mapping[str, object] | None) -> dict[str, str]:
    """Options as Spark takes them; without those that are None."""
    values = {name: value for name, value in (options or {}).items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


# ---- real-time mode

# What keeps the order of each source partition's records; any other step may send them through a shuffle.
_KEEPS_ORDER = {
    "Project", "Filter", "Generate", "Union", "SubqueryAlias", "EventTimeWatermark", "StreamingRelation",
    "StreamingRelationV2",
}  # fmt: skip


def with_source_position(df: DataFrame, query: str, *, ordinal: str | None = None, header: str = "source") -> DataFrame:
    """The rows of a query in Spark's real-time mode with a header by which a topic takes each of them once.

    The query reads from Spark's Kafka source and writes to its Kafka sink, into a topic of `pylog serve` whose config
    `source.position.header` names the header. After a failure Spark writes again what it has written of a batch; the
    topic leaves that out (docs/guides/real-time.md).

    Args:
        df: rows with the columns `topic`, `partition`, `offset` of the source, with `value`, and also `key`, `headers`.
        query: names the query for good. A query that is to write everything once more takes another name.
        ordinal: a column that numbers the rows of one record, as `posexplode` makes it; None: there is at most one.
        header: source.position.header.

    Returns:
        The columns for the sink: `key` and `headers`, `value`, and `partition`: without a key it is that of the source,
        as a topic knows only by partition what it has.

    Raises:
        InvalidConfigError: a column is missing; a step of the query may change the order of records; or the session is
            one of Spark Connect, where that cannot be seen.
    """
    missing = [name for name in ("topic", "partition", "offset", "value", ordinal) if name and name not in df.columns]
    if missing:
        raise InvalidConfigError(
            f"no column {missing[0]!r}: keep the source's topic, partition and offset beside the value"
        )
    steps = _steps(df)
    if unfit := sorted(steps - _KEEPS_ORDER):
        raise InvalidConfigError(
            f"{unfit[0]} may change the order of records, and then a topic cannot know by positions which it has: "
            "filters, expressions, explode and union can be written exactly once in real-time mode"
        )
    if "Generate" in steps and ordinal is None:
        raise InvalidConfigError("explode makes several rows of a record: take posexplode, and ordinal='pos'")
    position = functions.concat_ws(
        "/", functions.lit(query), "topic", "partition", "offset", functions.lit(0) if ordinal is None else ordinal
    )
    own = functions.array(functions.struct(functions.lit(header).alias("key"), position.cast("binary").alias("value")))
    if "headers" in df.columns:
        own = functions.concat(
            functions.coalesce("headers", functions.array().cast(df.schema["headers"].dataType)), own
        )
    partition = functions.col("partition")
    if "key" in df.columns:
        partition = functions.when(functions.col("key").isNull(), partition)
    keys = ["key"] if "key" in df.columns else []
    return df.select(*keys, "value", own.alias("headers"), partition.alias("partition"))


def _steps(df: DataFrame) -> set[str]:
    """The names of the steps of a query, by its analysed plan. InvalidConfigError: Spark Connect shows none."""
    try:
        remaining_steps, names = [df._jdf.queryExecution().analyzed()], set()
    except AttributeError:
        raise InvalidConfigError(
            "with Spark Connect the steps of a query cannot be seen: take a session without it, or add the header "
            "yourself, as docs/reference/versions.md does for Spark 3.5"
        ) from None
    while remaining_steps:
        step = remaining_steps.pop()
        names.add(str(step.nodeName()))
        remaining_steps += [step.children().apply(number) for number in range(step.children().size())]
    return names
