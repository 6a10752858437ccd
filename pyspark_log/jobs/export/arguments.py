"""The arguments that bulk_load and export_files share, and what they mean."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import click
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_log.cli.support import Pattern, json_option, with_options
from pyspark_log.errors import InvalidConfigError
from pyspark_log.jobs.export.avro_values import avro_values
from pyspark_log.jobs.export.formats import PARQUET_CODECS, TEXT_CODECS
from pyspark_log.jobs.export.json_values import json_values, of_json_schema
from pyspark_log.jobs.export.layout import Layout
from pyspark_log.jobs.export.parsed_values import ParsedValues
from pyspark_log.jobs.export.run import Request
from pyspark_log.jobs.support import Decorator, argument
from pyspark_log.spark_connector.abilities import arrow_schema_of
from pyspark_log.storage.record.rows import row_schema
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, IsolationLevel

_FOLDERS = {
    "none": (False, ""),
    "topic": (True, ""),
    "date": (False, "date"),
    "hour": (False, "hour"),
    "topic,date": (True, "date"),
    "topic,hour": (True, "hour"),
}
_PARSING = ("parquet", "csv")


def export_options(group: str) -> Decorator:
    """Gives a job the arguments of an export; `group` is the default of --group."""
    return with_options([
        argument("store", help="The folder or URL of the store; or, read-only, the log dir of a Kafka broker."),
        argument("target", help="The folder that gets the files, which all executors see."),
        click.option("--topics", metavar="A,B", help="The topics; give --topics or --pattern."),
        click.option(
            "--pattern", type=Pattern(), metavar="REGEX",
            help="All topics whose names contain a match, also later ones.",
        ),
        click.option("--group", default=group, help="The group whose committed offsets record what was exported."),
        click.option("--state", metavar="STORE", help="The store that keeps the group, for a broker's folder."),
        click.option(
            "--partition-by", type=click.Choice(list(_FOLDERS)), default="topic,date",
            help="Folders by topic, and by the day or hour of the records' times in UTC.",
        ),
        click.option("--codec", help="Compression; Parquet: zstd, snappy, gzip, lz4, none; others: none, gzip, zstd."),
        click.option("--columns", metavar="A,B", help="The columns to write; all by default."),
        click.option("--headers", is_flag=True, help="Also write the column of headers."),
        click.option(
            "--schema",
            help="Parse values into columns: those that are JSON objects by a DDL string of Spark, a schema of Spark's"
            " in JSON, or a JSON Schema; those in Avro by an Avro schema; @FILE reads it from a file.",
        ),
        click.option(
            "--schema-id", type=click.IntRange(min=1), metavar="N",
            help="Values in Avro begin as Confluent's registry has them: a zero byte, and this number of the schema.",
        ),
        click.option(
            "--bad-values", type=click.Choice(["fail", "null"]), default="fail",
            help="Values that do not fit the schema.",
        ),
        click.option(
            "--max-records-per-file", type=click.IntRange(min=1), metavar="N", help="Start a new file after N records."
        ),
        click.option(
            "--max-records-per-task", type=click.IntRange(min=1), metavar="N",
            help="Split larger partitions into tasks.",
        ),
        click.option(
            "--isolation-level", type=click.Choice([one.value for one in IsolationLevel]), default=READ_COMMITTED,
            help="Whether records of transactions that are not committed are exported.",
        ),
        click.option("--skip-lost", is_flag=True, help="Continue even if records were deleted before their export."),
        json_option,
    ])  # fmt: skip


def request_of(arguments: SimpleNamespace, kind: str, spark: SparkSession, *, base64: bool = False) -> Request:
    """What the arguments ask for.

    Args:
        arguments: as `export_options` has them.
        kind: the format: parquet, json, csv or text.
        spark: parses a DDL string.
        base64: whether formats of text have keys and values in base64.

    Raises:
        click.UsageError: they contradict each other, or one has no meaning.
    """
    return Request(
        arguments.store, arguments.state, arguments.target, arguments.group, _topics(arguments),
        _layout(arguments, kind, spark, base64=base64), arguments.isolation_level, arguments.skip_lost,
        arguments.max_records_per_task, getattr(arguments, "delta", False),
    )  # fmt: skip


def _topics(arguments: SimpleNamespace) -> Callable[[Store], Sequence[str]]:
    chosen = _chosen_topics(arguments)
    if isinstance(chosen, list):
        return lambda _: chosen
    return lambda store: [name for name in store.topics() if chosen.search(name)]


def _layout(arguments: SimpleNamespace, kind: str, spark: SparkSession, *, base64: bool) -> Layout:
    codec = arguments.codec or ("zstd" if kind == "parquet" else "none")
    if codec not in (known := PARQUET_CODECS if kind == "parquet" else tuple(TEXT_CODECS)):
        raise click.UsageError(f"--codec: {codec!r} is none of {', '.join(known)}")
    by_topic, by_time = _FOLDERS[arguments.partition_by]
    parses = arguments.schema is not None
    if parses and kind not in _PARSING:
        raise click.UsageError(f"--schema: files of {kind} have no columns for it")
    columns = _columns(arguments, kind, without={*["topic"] * by_topic, *["value"] * parses})
    values = None
    if parses:
        values = _values(arguments, spark)
        taken = {*columns, *["topic"] * by_topic, *["date", "hour"] * bool(by_time)}
        # Spark takes names that differ in case alone as one, and then reads none of the files.
        for name in values.schema.names:
            if name.lower() in taken:
                raise click.UsageError(
                    f"--schema: {name!r} is also a column of the records or a folder, or is twice in the schema "
                    "(upper and lower case are the same): leave it out with --columns or --partition-by, or of the "
                    "schema"
                )
            taken.add(name.lower())
        if kind == "csv" and (nested := [one.name for one in values.schema if pa.types.is_nested(one.type)]):
            raise click.UsageError(f"--schema: CSV has no columns for {nested[0]!r}")
    elif arguments.schema_id is not None:
        raise click.UsageError("--schema-id needs --schema: the schema of the values that have this id")
    return Layout(kind, codec, columns, values, base64, by_topic, by_time, arguments.max_records_per_file)


def _columns(arguments: SimpleNamespace, kind: str, without: set[str]) -> tuple[str, ...]:
    """The columns to write; `without`: those that are left out unless they are named."""
    if kind == "text":
        if arguments.columns or arguments.headers:
            raise click.UsageError("text files hold only the values: leave out --columns and --headers")
        return ("value",)
    if kind == "csv" and (arguments.headers or "headers" in (arguments.columns or "")):
        raise click.UsageError("CSV has no column for headers: choose another format")
    try:
        if arguments.columns:
            names = [name.strip() for name in arguments.columns.split(",")]
            return tuple(row_schema(True, [*names, *(["headers"] if arguments.headers else [])]).names)
    except InvalidConfigError as error:
        raise click.UsageError(f"--{error}") from None
    return tuple(name for name in row_schema(arguments.headers).names if name not in without)


def _values(arguments: SimpleNamespace, spark: SparkSession) -> ParsedValues:
    """How values are parsed, by the schema in --schema or in the file that it names. click.UsageError: it has none."""
    text, bad_as_null = arguments.schema, arguments.bad_values == "null"
    if text.startswith("@"):
        try:
            with open(text[1:], encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"--schema: {text[1:]} cannot be read: {error}") from None
    try:
        document = json.loads(text) if text.lstrip().startswith("{") else None
        if document is not None and document.get("type") == "record":
            return avro_values(text, arguments.schema_id, bad_as_null=bad_as_null)
        if arguments.schema_id is not None:
            raise click.UsageError("--schema-id is for Avro values, but --schema is not an Avro schema")
        if document is None:
            schema = arrow_schema_of(spark.createDataFrame([], text).schema)
        elif "properties" in document:
            schema = of_json_schema(document)
        else:
            schema = arrow_schema_of(StructType.fromJson(document))
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        raise click.UsageError(f"--schema: no schema: {error}") from None
    return json_values(schema, bad_as_null=bad_as_null)


def _chosen_topics(arguments: SimpleNamespace) -> list[str] | re.Pattern[str]:
    """The names in --topics, each once, or --pattern. click.UsageError: not one of both is given."""
    names = list(dict.fromkeys(name.strip() for name in (arguments.topics or "").split(",") if name.strip()))
    pattern: re.Pattern[str] | None = arguments.pattern
    if arguments.topics is not None and pattern is not None:
        raise click.UsageError("--topics and --pattern exclude each other")
    if not names and (pattern is None or not pattern.pattern):
        raise click.UsageError("which topics? Give --topics or --pattern")
    return pattern or names
