"""Values in Avro, Protobuf or JSON, by schemas in a folder, as JSON shows them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_log.errors import SchemaError
from pyspark_log.schemas import GivenSchema, Schema, SchemaFolder, TypedValues, ValueFormat
from pyspark_log.schemas.framing import SIZES, Framing, number_in

_PREFIX = SIZES["confluent"]


class NotAvroError(Exception):
    """It cannot be shown by a schema; the message says why."""


class Schemas:
    """The schemas in a folder: `TOPIC-value.avsc`, `TOPIC-key.avsc`, and `NUMBER.avsc` for what has Confluent's prefix.

    Files are read when a value is shown, so a new one needs no restart. Protobuf's have the ending `.proto`.
    """

    def __init__(self, folder: str | None) -> None:
        """`folder`: where they are; None: there are none."""
        self._folder = SchemaFolder(folder) if folder is not None else None

    def decoded(self, subject: str, data: bytes) -> object:
        """The value of some bytes; `subject`: the name of a file, without its ending. NotAvroError."""
        if self._folder is None:
            raise NotAvroError("Avro needs schemas: name their folder by --schemas")
        has_prefix = len(data) > _PREFIX and data[0] == 0
        try:
            schema = self._folder.by_id(number_in(data[:_PREFIX]), subject) if has_prefix else None
            if schema is not None and schema.id is not None:
                return _value(schema, data, has_prefix=True)
            schema = self._folder.latest(subject)
            try:
                return _value(schema, data, has_prefix=False)
            except NotAvroError:
                if not has_prefix:
                    raise
                return _value(schema, data, has_prefix=True)
        except SchemaError as error:
            raise NotAvroError(str(error)) from None


def _value(schema: Schema, data: bytes, *, has_prefix: bool) -> object:
    framing: Framing = "confluent" if has_prefix else "none"
    values = TypedValues(ValueFormat("value", "", framing, schema, GivenSchema(schema)))
    array, bad = values.decode(pa.array([data], pa.binary()))
    if bad:
        raise NotAvroError(f"the schema does not fit: {bad[0].reason}")
    return _shown(array[0].as_py(), values.type)


def _shown(value: Any, kind: pa.DataType) -> object:  # noqa: ANN401  (what Arrow has)
    """A value with maps as objects, and of a union the one member that it has."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        if all(field.name == f"member{at}" for at, field in enumerate(fields)) and len(fields) > 1:
            return next(
                (_shown(value[field.name], field.type) for field in fields if value[field.name] is not None), None
            )
        return {field.name: _shown(value[field.name], field.type) for field in fields}
    if pa.types.is_map(kind):
        return {str(key): _shown(part, kind.item_type) for key, part in value}
    return [_shown(part, kind.value_type) for part in value] if pa.types.is_list(kind) else value
