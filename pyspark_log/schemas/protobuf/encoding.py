"""Columns as Protobuf messages of one schema."""

from __future__ import annotations

import pyarrow as pa

from pyspark_log.errors import IncompatibleSchemaError, InvalidRecordError
from pyspark_log.schemas.framing import encoded_long
from pyspark_log.schemas.protobuf.columns import ProtobufProgram
from pyspark_log.schemas.protobuf.encoder import encode
from pyspark_log.schemas.protobuf.program import arrow_type, message_of, program_of
from pyspark_log.schemas.schema import Schema
from pyspark_log.schemas.slots import arrays_of, slot_of


class ProtobufValuesWriter:
    """Encodes columns as messages; a field that is null, or has no column, is left out.

    Attributes:
        type: the Arrow type that the columns are cast to.
    """

    def __init__(self, schema: Schema, columns: pa.DataType, message: str = "") -> None:
        """`columns`: the type of what is written; `message`: as for ProtobufDecoder.

        Raises:
            SchemaError: the schema is none, or no columns fit.
            IncompatibleSchemaError: a column has no field.
        """
        file, root = message_of(schema, message)
        self.type = arrow_type(file, root)
        _check(columns, self.type, "")
        self._slot = slot_of(self.type)
        program = program_of(file, root, self._slot)
        self._names = [str(field[0]) for _, fields in program.messages for field in fields]
        self._program = ProtobufProgram(program.messages, program.enums)
        numbers = b"".join(encoded_long(number) for number in root.place)
        # The first message of a file is so frequent that it has a form of its own.
        self._place = b"\0" if root.place == (0,) else encoded_long(len(root.place)) + numbers

    def encode(self, values: pa.Array, prefix: bytes) -> pa.Array:
        """Encodes values, after a prefix, which the place of the message in its file follows; a null is null.

        Raises:
            InvalidRecordError: a value does not fit the schema.
        """
        arrays = arrays_of(values, self._slot)
        encoded = encode(self._program, arrays, len(values), prefix + self._place if prefix else b"")
        if isinstance(encoded, tuple):
            row, field, reason = encoded
            raise InvalidRecordError(
                f"a value does not fit its schema: field number {self._names[field]}: {reason} (row {row} of its batch)"
            )
        return encoded


def _check(columns: pa.DataType, fields: pa.DataType, path: str) -> None:
    """Refuses columns that a message has no field for."""
    if not pa.types.is_struct(columns):
        raise IncompatibleSchemaError(f"{path or 'the value'}: the schema has a message, the column is {columns}")
    types = {fields.field(at).name: fields.field(at).type for at in range(fields.num_fields)}
    for at in range(columns.num_fields):
        name, kind = columns.field(at).name, columns.field(at).type
        inner = f"{path}.{name}" if path else name
        if name not in types:
            raise IncompatibleSchemaError(f"{inner}: the schema has no such field, so it would be lost")
        if pa.types.is_struct(types[name]):
            _check(kind, types[name], inner)
