"""Values in Avro, Protobuf or JSON, by schemas of a registry or a folder, as JSON shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import pyarrow as pa

from pyspark_log.config import with_formats
from pyspark_log.errors import PylogError
from pyspark_log.schemas import GivenSchema, Schema, SchemaFolder, TypedValues, ValueFormat, format_of, source_of
from pyspark_log.schemas.framing import SIZES, Framing, number_in
from pyspark_log.schemas.schema import Part
from pyspark_log.schemas.shown import shown

_PREFIX = SIZES["confluent"]
# For so long an answer of a registry counts, also that there is none: a page has a hundred values.
_KEPT_SECONDS = 10.0
_MOST_KEPT = 1000
_T = TypeVar("_T")


class NotAvroError(Exception):
    """It cannot be shown by a schema; the message says why."""


class Schemas:
    """The schemas of a registry, or of a folder: `TOPIC-value.avsc`, `TOPIC-key.avsc`, and `NUMBER.avsc` for what has
    Confluent's prefix. Protobuf's have the ending `.proto`. A new one needs no restart.
    """

    def __init__(
        self, place: str | None, options: Mapping[str, str] | None = None, *, takes_registries: bool = True
    ) -> None:
        """Asks nothing yet.

        Args:
            place: the registry's URL, or the folder; None: there is none.
            options: further settings of typed topics, by their names in lower case, as a login.
            takes_registries: whether the registry that a topic names is asked.

        Raises:
            InvalidConfigError, RegistryError: a setting is refused.
        """
        self._settings = {**(options or {}), **({} if place is None else {"schemaregistry": place})}
        self._source = source_of(self._settings)
        self._takes_registries = takes_registries
        self._answers: dict[object, tuple[float, object]] = {}

    def of_topic(self, topic: str, part: Part | None, configs: Mapping[str, str]) -> PartSchemas:
        """Those of a topic's keys or values; `part`: None for others; `configs`: the topic's, over its store's."""
        if not self._takes_registries:
            configs = {name: value for name, value in configs.items() if name != "schema.registry"}
        formats = {} if part is None else with_formats(self._settings, configs, (part,))
        return PartSchemas(self, topic, part, formats if f"{part}format" in formats else None)

    def decoded(self, subject: str, data: bytes) -> object:
        """The value of some bytes, whose format is not known; `subject`: of its schema. NotAvroError."""
        source = self._source
        if source is None:
            raise NotAvroError("Avro needs schemas: name their folder or registry by --schemas")
        has_prefix = len(data) > _PREFIX and data[0] == 0
        number = number_in(data[:_PREFIX]) if has_prefix else 0
        schema = self.kept((subject, number), partial(source.by_id, number, subject)) if has_prefix else None
        if schema is not None and schema.id is not None:
            return _value(schema, data, has_prefix=True)
        schema = self.kept(subject, partial(source.latest, subject))
        try:
            return _value(schema, data, has_prefix=False)
        except NotAvroError:
            if not has_prefix:
                raise
            return _value(schema, data, has_prefix=True)

    def kept(self, key: object, ask: Callable[[], _T]) -> _T:
        """An answer that is some seconds old at most, unless it is that of a folder; NotAvroError: it was none."""
        now = time.monotonic()
        if isinstance(self._source, SchemaFolder):
            self._answers.clear()
        at, answer = self._answers.get(key, (-_KEPT_SECONDS, None))
        if now - at >= _KEPT_SECONDS:
            try:
                answer = ask()
            except PylogError as error:
                answer = NotAvroError(str(error))
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            self._answers[key] = now, answer
        if isinstance(answer, NotAvroError):
            raise answer
        return answer  # type: ignore[return-value]


class PartSchemas:
    """The schemas of a topic's keys, or of its values.

    Attributes:
        is_named: whether the topic says which format they have.
    """

    def __init__(self, schemas: Schemas, topic: str, part: Part | None, formats: Mapping[str, str] | None) -> None:
        self._schemas, self._topic, self._part, self._formats = schemas, topic, part, formats
        self.is_named = formats is not None

    def decoded(self, data: bytes) -> object:
        """The value of some bytes. NotAvroError."""
        part, formats = self._part, self._formats
        if part is None or formats is None:
            return self._schemas.decoded(f"{self._topic}-{part or 'header'}", data)
        key = self._topic, part, *sorted(formats.items())
        return _decoded(self._schemas.kept(key, partial(_typed, formats, part, self._topic)), data)


def _typed(formats: Mapping[str, str], part: Part, topic: str) -> TypedValues:
    form = format_of(formats, part, topic)
    assert form is not None
    return TypedValues(form)


def _value(schema: Schema, data: bytes, *, has_prefix: bool) -> object:
    framing: Framing = "confluent" if has_prefix else "none"
    try:
        values = TypedValues(ValueFormat("value", "", framing, schema, GivenSchema(schema)))
    except PylogError as error:
        raise NotAvroError(str(error)) from None
    return _decoded(values, data)


def _decoded(values: TypedValues, data: bytes) -> object:
    try:
        array, bad = values.decode(pa.array([data], pa.binary()))
    except PylogError as error:
        raise NotAvroError(str(error)) from None
    if bad:
        raise NotAvroError(f"the schema does not fit: {bad[0].reason}")
    return shown(array[0].as_py(), values.type)
