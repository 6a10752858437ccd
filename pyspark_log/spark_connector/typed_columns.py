"""The columns of a read whose keys or values have a schema: the options `valueFormat`, `keyFormat`, `schemaRegistry`.

The driver fixes the reader's schemas when a read or a query begins, as Spark fixes the columns; a task decodes.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from pyspark_log.errors import BadValueError, InvalidConfigError, shortened
from pyspark_log.schemas import BadValue, GivenSchema, TypedValues, ValueFormat, format_of
from pyspark_log.spark_connector.abilities import arrow_schema_of
from pyspark_log.spark_connector.columns import columns_of, row_schema
from pyspark_log.spark_connector.errors import ConnectorError, option_error
from pyspark_log.spark_connector.options import Options, truth_of
from pyspark_log.spark_connector.planning.subscription import Subscription, only_topic
from pyspark_log.spark_connector.reading.dead_letters import COLUMNS, DeadLetterWriter
from pyspark_log.storage.catalog import check_name, check_not_internal, local_path
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_PARTS = ("key", "value")
_WORDS = ("fail", "null", "topic")


@dataclass(frozen=True)
class TypedColumns:
    """How keys and values become columns; sent to the tasks.

    Attributes:
        formats: of keys, of values, or of both.
        flatten: whether the fields of values are columns, in place of the column `value`.
        on_bad: of a value that is none: "fail": it is an error; "null": it becomes null, and its bytes a column of
            their own; "topic": its record is left out, and published to another topic.
        dead_letter_topic: that topic; "": there is none.
    """

    formats: tuple[ValueFormat, ...]
    flatten: bool
    on_bad: str = "fail"
    dead_letter_topic: str = ""

    def schema(self, headers: bool) -> StructType:
        """All columns of a read. ConnectorError: two would have one name."""
        fields = list[StructField]()
        for field in row_schema(headers):
            form = next((typed for typed in self.formats if typed.part == field.name), None)
            fields += [field] if form is None else self._fields(form)
        names = [field.name for field in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise option_error(f"flatten: values have a field {twice}, and a read has a column of that name")
        return StructType(fields)

    def _fields(self, form: ValueFormat) -> list[StructField]:
        kind = _spark_type(form)
        name = str(form.part)
        flat = self.flatten and name == "value" and isinstance(kind, StructType)
        fields = list(kind) if flat and isinstance(kind, StructType) else [StructField(name, kind)]
        return [*fields, StructField(_bytes_of(name), BinaryType())] if self.on_bad == "null" else fields

    def stored(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns of the store that some columns are made of."""
        plain = row_schema(True).names
        needed = {self._part_of(name) or name for name in columns} | {"offset"}
        needed |= set(COLUMNS) if self.dead_letter_topic else set()
        return tuple(name for name in plain if name in needed)

    def _part_of(self, column: str) -> str | None:
        """The part that a column is decoded from; None: it is none of a schema."""
        for form in self.formats:
            if column in [field.name for field in self._fields(form)]:
                return form.part
        return None

    def decoded(
        self,
        batches: Iterable[pa.RecordBatch],
        at: TopicPartition,
        columns: tuple[str, ...],
        letters: DeadLetterWriter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The columns of a partition's rows.

        Args:
            batches: the rows, with the columns `stored(columns)`.
            at: the partition.
            columns: those to return.
            letters: gets the records with a key or value that is none, which are left out; None: there are no dead
                letters.

        Raises:
            BadValueError: a key or value is none, and that is an error.
        """
        target = arrow_schema_of(StructType([self.schema(True)[name] for name in columns]))
        used = {self._part_of(name) for name in columns}
        forms = [(form, _decoder(form)) for form in self.formats if form.part in used]
        for batch in batches:
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            bad = dict[int, tuple[str, BadValue]]()
            for form, values in forms:
                array, problems = values.decode(batch.column(form.part))
                if problems and self.on_bad == "fail":
                    offset = batch.column("offset")[problems[0].row].as_py()
                    raise BadValueError(
                        problems[0].reason, form.part, at.topic, at.partition, offset, problems[0].schema_id
                    )
                _warn_of_left_out(form, values)
                arrays |= self._columns(form, array, batch.column(form.part), problems)
                for problem in problems:
                    bad.setdefault(problem.row, (str(form.part), problem))
            cast = [arrays[field.name].cast(field.type) for field in target]
            rows = pa.RecordBatch.from_arrays(cast, schema=target)
            if letters is not None and bad:
                letters.add(batch, bad)
                rows = rows.filter(pa.array([row not in bad for row in range(len(batch))]))
            yield rows
        if letters is not None:
            letters.finish()

    def _columns(
        self, form: ValueFormat, array: pa.Array, stored: pa.Array, bad: Sequence[BadValue]
    ) -> dict[str, pa.Array]:
        """The columns of keys or values, decoded from those that are stored."""
        kind = _spark_type(form)
        if self.flatten and form.part == "value" and isinstance(kind, StructType):
            columns = dict(zip(kind.names, array.flatten(), strict=True))
        else:
            columns = {str(form.part): array}
        if self.on_bad == "null":
            # The place of each bad value; null for those that are good.
            rows = {value.row: value.row for value in bad}
            places = pa.array([rows.get(row) for row in range(len(stored))] if bad else [], pa.int64())
            columns[_bytes_of(form.part)] = stored.take(places) if bad else pa.nulls(len(stored), pa.binary())
        return columns


def typed_columns(options: Options, subscription: Subscription) -> TypedColumns | None:
    """What some options say of keys and values; None: they stay bytes.

    Raises:
        ConnectorError: an option is refused.
        SchemaError, RegistryError: there is no schema, or no answer.
    """
    settings = with_absolute_folder(options)
    try:
        formats = tuple(form for part in _PARTS if (form := format_of(settings, part, only_topic(subscription))))  # type: ignore[arg-type]
    except InvalidConfigError as error:
        raise option_error(str(error)) from None
    word = options.get("onbadrecord", _WORDS[0]).strip().lower()
    if word not in _WORDS:
        raise option_error(f"onBadRecord must be one of {', '.join(_WORDS)}, got {shortened(word)}")
    flatten = truth_of(options, "flatten")
    if not formats:
        if flatten or options.keys() & {"onbadrecord", "deadlettertopic", "schemaregistry"}:
            raise option_error("flatten, onBadRecord and schemaRegistry need valueFormat or keyFormat")
        return None
    return TypedColumns(formats, flatten, word, _dead_letter_topic(options, word))


def _dead_letter_topic(options: Options, word: str) -> str:
    topic = options.get("deadlettertopic", "").strip()
    if (word == "topic") != bool(topic):
        raise option_error("onBadRecord=topic and deadLetterTopic go together: the topic gets the bad records")
    if topic:
        check_name(topic)
        check_not_internal(topic)
        splits = next((name for name in ("minPartitions", "maxRecordsPerPartition") if name.lower() in options), None)
        if splits is not None:
            raise option_error(
                f"onBadRecord=topic and {splits}: the bad records of a partition are published in order, by one task "
                f"at a time, so partitions cannot be split: leave {splits} out"
            )
    return topic


def with_absolute_folder(options: Options) -> dict[str, str]:
    """The options, with a folder of schemas that means the same to every task."""
    settings = dict(options)
    place = settings.get("schemaregistry", "")
    if place and "://" not in place:
        settings["schemaregistry"] = local_path(place)
    return settings


def fixed(typed: TypedColumns, schema: StructType, headers: bool) -> tuple[TypedColumns, tuple[str, ...]]:
    """The columns whose types Spark has fixed, and the names of those that are read.

    A registry may have got a newer schema since: then the reader's is the version that has these types.

    Args:
        typed: by the newest schemas.
        schema: the schema that Spark passes on: the user's, or what `TypedColumns.schema` was a moment ago.
        headers: the option includeHeaders.

    Raises:
        ConnectorError: no version has them.
    """
    problem: ConnectorError | None = None
    for formats in itertools.product(*(_versions(form) for form in typed.formats)):
        candidate = replace(typed, formats=formats)
        try:
            return candidate, columns_of(schema, headers, candidate.schema(True))
        except ConnectorError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _versions(form: ValueFormat) -> Iterator[ValueFormat]:
    yield form
    if not isinstance(form.source, GivenSchema) and form.reader.id is not None:
        for schema in reversed(form.source.versions(form.subject)):
            yield replace(form, reader=schema)


def _bytes_of(part: str) -> str:
    return f"{part}_bytes"


@lru_cache(maxsize=16)
def _decoder(form: ValueFormat) -> TypedValues:
    """Kept from task to task, with the writers' schemas that it has met."""
    return TypedValues(form)


@lru_cache(maxsize=16)
def _spark_type(form: ValueFormat) -> DataType:
    kind: DataType = from_arrow_type(_plain(_decoder(form).type))
    return kind


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without those that not every PySpark knows."""
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _plain(kind.item_type))
    return kind


_warned: set[tuple[str, tuple[str, ...]]] = set()


def _warn_of_left_out(form: ValueFormat, values: TypedValues) -> None:
    """Warns once in a process of fields that a newer writer's schema has, and that are left out."""
    for fields, count in values.left_out().items():
        if (form.subject, fields) not in _warned:
            _warned.add((form.subject, fields))
            log.warning(
                "%s: %d records so far have fields that the reader's schema has not, and that are left out: %s",
                form.subject, count, ", ".join(fields),
            )  # fmt: skip
