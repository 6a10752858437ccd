"""Values one by one, as programs and lines of JSON give them, to bytes: the way back of what shown.py shows."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from pyspark_log.errors import IncompatibleSchemaError, InvalidConfigError, InvalidRecordError
from pyspark_log.schemas.schema import Part
from pyspark_log.schemas.shown import is_union
from pyspark_log.schemas.values import decoder_of
from pyspark_log.schemas.writing import ValuesWriter, WriteFormat, write_format_of

_REFUSED = (ValueError, TypeError, OverflowError, decimal.InvalidOperation, pa.ArrowException, IncompatibleSchemaError)


class GivenValues:
    """Encodes values that are given as Python has them: dicts, lists, numbers, text, times."""

    def __init__(self, form: WriteFormat) -> None:
        """SchemaError: the schema is none, or has what columns have not."""
        self._form = form
        self._type: pa.DataType = decoder_of(form.schema, form.message).type
        self._writers: dict[pa.DataType, ValuesWriter] = {}

    def encode(self, values: Sequence[object]) -> pa.Array:
        """The bytes of values, in a binary array; None is null.

        A field that is not given has its default. Bytes (as UTF-8), dates, times (ISO 8601), durations (`5s`) and
        decimals can be text. Of a union the first member counts that a value fits.

        Raises:
            InvalidRecordError: one does not fit its schema; `records` has its place.
        """
        try:
            return self._encoded(values)
        except InvalidRecordError:
            for row, value in enumerate(values):
                try:
                    self._encoded([value])
                except InvalidRecordError as error:
                    refusal = InvalidRecordError(str(error).partition(" (row ")[0])
                    refusal.records = (row,)
                    raise refusal from None
            raise

    def _encoded(self, values: Sequence[object]) -> pa.Array:
        try:
            fitting = [_with_type(value, self._type) for value in values]
            arrays = [
                self._writer(kind).encode(pa.array([value for _, value in rows], kind), self._form.prefix)
                for kind, rows in groupby(fitting, key=lambda row: row[0])
            ]
        except _REFUSED as error:
            raise InvalidRecordError(f"a value does not fit its schema: {error}") from None
        return pa.concat_arrays(arrays) if arrays else pa.array([], pa.binary())

    def _writer(self, kind: pa.DataType) -> ValuesWriter:
        writer = self._writers.get(kind)
        if writer is None:
            writer = self._writers[kind] = self._form.writer(kind)
        return writer


def _with_type(value: object, kind: pa.DataType) -> tuple[pa.DataType, object]:
    """A value for Arrow, and the type with those fields alone that it has: the encoder knows the defaults of others."""
    if value is None or not pa.types.is_struct(kind) or is_union(kind):
        return kind, _fitting(value, kind)
    parts = {name: _with_type(part, kind.field(name).type) for name, part in _fields(value, kind).items()}
    return pa.struct([(name, own) for name, (own, _) in parts.items()]), {name: own for name, (_, own) in parts.items()}


def _fields(value: object, kind: pa.DataType) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object with fields, got {type(value).__name__}")
    unknown = next((name for name in value if kind.get_field_index(name) < 0), None)
    if unknown is not None:
        raise ValueError(f"{unknown}: the schema has no such field, so it would be lost")
    return value


def _fitting(value: Any, kind: pa.DataType, *, takes_text: bool = True) -> object:  # noqa: ANN401  (what programs have)
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if is_union(kind):
            return _member(value, kind)
        return {name: _fitting(part, kind.field(name).type) for name, part in _fields(value, kind).items()}
    if pa.types.is_map(kind):
        return [(key, _fitting(part, kind.item_type)) for key, part in dict(value).items()]
    if pa.types.is_list(kind):
        return [_fitting(part, kind.value_type) for part in value]
    return _plain(value, kind, takes_text=takes_text)


def _member(value: object, kind: pa.DataType) -> dict[str, object]:
    for takes_text in (False, True):
        for field in kind:
            try:
                fitting = _fitting(value, field.type, takes_text=takes_text)
                pa.scalar(fitting, field.type)
            except _REFUSED:
                continue
            return {field.name: fitting}
    raise ValueError(f"no member of the union has a value like {value!r:.80}")


def _plain(value: object, kind: pa.DataType, *, takes_text: bool) -> object:
    if isinstance(value, str) and takes_text:
        return _from_text(value, kind)
    if pa.types.is_decimal(kind) and isinstance(value, (int, float)):
        return decimal.Decimal(str(value))
    if isinstance(value, bool) and not pa.types.is_boolean(kind):
        raise TypeError(f"expected {kind}, got a boolean")
    if pa.types.is_integer(kind) and isinstance(value, float):  # Arrow would cut it
        raise TypeError(f"expected {kind}, got {value}")
    return value


def _from_text(text: str, kind: pa.DataType) -> object:
    if pa.types.is_decimal(kind):
        return decimal.Decimal(text)
    if pa.types.is_timestamp(kind):
        return datetime.datetime.fromisoformat(text)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(text)
    if pa.types.is_duration(kind):
        return datetime.timedelta(seconds=float(text.removesuffix("s")))
    return text.encode() if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) else text


class SchemaSerializer:
    """Makes bytes of keys or values by their schema: a `key_serializer` or `value_serializer` of Producer.

    Each record costs a call; for many at a time, Spark's sink has the same options.
    """

    def __init__(self, part: Part, **options: str) -> None:
        """For keys or values. Arguments as those of SchemaDeserializer, and `registerSchemas`."""
        self._part: Part = part
        self._settings: Mapping[str, str] = {name.lower(): value for name, value in options.items()}
        if f"{part}format" not in self._settings:
            raise InvalidConfigError(f"expected the option {part}Format, got {', '.join(options) or 'none'}")
        self._by_topic: dict[str, GivenValues] = {}

    def serialize(self, topic: str, headers: object, value: object) -> bytes | None:
        """The bytes of a value, as GivenValues.encode has it; None has none.

        Raises:
            InvalidRecordError: it does not fit its schema.
            SchemaError, RegistryError: there is no schema, or no answer.
        """
        values = self._by_topic.get(topic)
        if values is None:
            form = write_format_of(self._settings, self._part, topic)
            if form is None:
                raise InvalidConfigError(f"{self._part}Format=bytes needs no serializer")
            values = self._by_topic[topic] = GivenValues(form)
        data: bytes | None = values.encode([value])[0].as_py()
        return data
