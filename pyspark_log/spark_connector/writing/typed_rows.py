"""Rows whose keys or values are typed columns: encoded in the tasks, by schemas that the driver has fixed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_log.errors import InvalidConfigError
from pyspark_log.schemas.schema import Part
from pyspark_log.schemas.writing import ValuesWriter, WriteFormat, write_format_of
from pyspark_log.spark_connector.abilities import arrow_schema_of
from pyspark_log.spark_connector.columns import RECORD_COLUMNS, TOPIC
from pyspark_log.spark_connector.errors import option_error
from pyspark_log.spark_connector.options import Options, WriteOptions, truth_of
from pyspark_log.spark_connector.typed_columns import with_absolute_folder

_PARTS: tuple[Part, ...] = ("key", "value")


@dataclass(frozen=True)
class TypedRows:
    """How columns become keys and values; sent to the tasks.

    Attributes:
        formats: of keys, of values, or of both.
        fields: the columns that are the fields of values; empty: the column `value` has these.
    """

    formats: tuple[WriteFormat, ...]
    fields: tuple[str, ...]

    @property
    def parts(self) -> set[str]:
        """Which columns may have any type."""
        return {str(form.part) for form in self.formats}

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with keys and values of bytes. InvalidRecordError: one does not fit its schema."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self.fields:
            fields = [batch.schema.field(name) for name in self.fields]
            columns["value"] = pa.StructArray.from_arrays([columns.pop(name) for name in self.fields], fields=fields)
        for form in self.formats:
            values = columns[form.part]
            columns[form.part] = _writer(form, values.type).encode(values, form.prefix)
        return pa.RecordBatch.from_pydict(columns)

    def check(self, schema: StructType) -> None:
        """Refuses columns that do not fit their schemas. SchemaError, IncompatibleSchemaError, ConnectorError."""
        self.encoded(pa.RecordBatch.from_pylist([], arrow_schema_of(schema)))


def typed_rows(options: Options, parsed: WriteOptions, schema: StructType) -> TypedRows | None:
    """What some options say of a DataFrame's keys and values; None: they are bytes or text.

    Raises:
        ConnectorError: an option is refused, or a column is missing.
        SchemaError, RegistryError: there is no schema, or no answer; or the columns do not fit it.
    """
    settings, flatten = with_absolute_folder(options), truth_of(options, "flatten")
    others = {*RECORD_COLUMNS, TOPIC, "timestamp", "timestampType", "offset", parsed.timestamp_column}
    fields = tuple(name for name in schema.names if name not in others) if flatten else ()
    types = {field.name: field.type for field in arrow_schema_of(schema)}
    if fields:
        types["value"] = pa.struct([arrow_schema_of(schema).field(name) for name in fields])
    try:
        of_keys, of_values = (write_format_of(settings, part, parsed.topic, types.get(part)) for part in _PARTS)
    except (InvalidConfigError, ValueError) as error:
        raise option_error(str(error)) from None
    formats = tuple(form for form in (of_keys, of_values) if form is not None)
    if flatten and (of_values is None or "value" in schema.names):
        raise option_error("flatten needs valueFormat, and columns that are the fields of values in place of value")
    if not formats:
        return None
    missing = [
        str(form.part) for form in formats if form.part not in schema.names and not (fields and form is of_values)
    ]
    if missing:
        raise option_error(f"{missing[0]}Format is set, and there is no column {missing[0]}")
    typed = TypedRows(formats, fields)
    typed.check(schema)
    return typed


# For so long what a registry has said counts for a query, in seconds. Spark plans a micro-batch twice, in
# processes that live as long as the query.
_KEPT_SECONDS = 10.0
_kept: dict[tuple[object, ...], tuple[float, TypedRows | None]] = {}


def typed_rows_of_query(options: Options, parsed: WriteOptions, schema: StructType) -> TypedRows | None:
    """The same for a micro-batch, of which a registry is not asked each time."""
    key = frozenset(options.items()), parsed.topic, parsed.timestamp_column, schema.json()
    until, typed = _kept.get(key, (0.0, None))
    now = time.monotonic()
    if now >= until:
        typed = typed_rows(options, parsed, schema)
        _kept.clear()  # of queries that have ended
        _kept[key] = now + _KEPT_SECONDS, typed
    return typed


@lru_cache(maxsize=16)
def _writer(form: WriteFormat, columns: pa.DataType) -> ValuesWriter:
    return form.writer(columns)
