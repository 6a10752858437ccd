"""Values in Avro, Protobuf or JSON, by schemas in a folder, as JSON shows them."""

from __future__ import annotations

import pyarrow as pa

from pyspark_log.errors import SchemaError
from pyspark_log.schemas import GivenSchema, Schema, SchemaFolder, TypedValues, ValueFormat
from pyspark_log.schemas.framing import SIZES, Framing, number_in
from pyspark_log.schemas.shown import shown

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
    return shown(array[0].as_py(), values.type)
