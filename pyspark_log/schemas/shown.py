"""Decoded values one by one, in the shape that a person or JSON has them."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pyspark_log.errors import BadValueError, InvalidConfigError
from pyspark_log.schemas.schema import Part
from pyspark_log.schemas.settings import format_of
from pyspark_log.schemas.values import TypedValues


def is_union(kind: pa.DataType) -> bool:
    """Whether a struct is the column of a union, of which each value has one field at most."""
    return kind.num_fields > 1 and all(kind.field(at).name == f"member{at}" for at in range(kind.num_fields))


def shown(value: Any, kind: pa.DataType) -> object:  # noqa: ANN401  (what Arrow has)
    """A value as `as_py` gives it, with maps as dicts, and of a union the one member that it has."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        if is_union(kind):
            members = (shown(value[field.name], field.type) for field in fields if value[field.name] is not None)
            return next(members, None)
        return {field.name: shown(value[field.name], field.type) for field in fields}
    if pa.types.is_map(kind):
        return {key: shown(part, kind.item_type) for key, part in value}
    return [shown(part, kind.value_type) for part in value] if pa.types.is_list(kind) else value


def as_json(values: pa.Array) -> pa.Array:
    """Decoded values as JSON, in a binary array; what JSON has not is text, and bytes that are no UTF-8 base64."""
    kind = values.type
    rows = (shown(value, kind) for value in values.to_pylist())
    texts = [None if row is None else json.dumps(row, ensure_ascii=False, default=_text).encode() for row in rows]
    return pa.array(texts, pa.binary())


def _text(value: object) -> str:
    if isinstance(value, datetime.timedelta):  # as Protobuf has it in JSON
        return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, (datetime.date, datetime.time)):  # a time with its day is a date, too
        return value.isoformat()
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


class SchemaDeserializer:
    """Makes keys or values of bytes by their schema: a `key_deserializer` or `value_deserializer` of Consumer.

    Each record costs a call; for many at a time, Spark's source has the same options and columns.
    """

    def __init__(self, part: Part, **options: str) -> None:
        """For keys or values.

        Args:
            part: "key" or "value".
            options: those of typed topics, as `valueFormat="confluent"`, `schemaRegistry="http://host:8081"`; those
                with a dot in their name by `**{"schemaRegistry.user": "anna"}`.
        """
        self._part: Part = part
        self._settings: Mapping[str, str] = {name.lower(): value for name, value in options.items()}
        if f"{part}format" not in self._settings:
            raise InvalidConfigError(f"expected the option {part}Format, got {', '.join(options) or 'none'}")
        self._by_topic: dict[str, TypedValues] = {}

    def deserialize(self, topic: str, headers: object, data: bytes) -> object:
        """The value of some bytes.

        Raises:
            BadValueError: they do not fit their schema; without the record's place, which the consumer adds.
            SchemaError, RegistryError: there is no schema, or no answer.
        """
        values = self._by_topic.get(topic)
        if values is None:
            form = format_of(self._settings, self._part, topic)
            if form is None:
                raise InvalidConfigError(f"{self._part}Format=bytes needs no deserializer")
            values = self._by_topic[topic] = TypedValues(form)
        array, bad = values.decode(pa.array([data], pa.binary()))
        if bad:
            raise BadValueError(bad[0].reason, self._part, "", -1, -1, bad[0].schema_id)
        return shown(array[0].as_py(), values.type)
