"""Values in Protobuf as columns."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyspark_log.schemas.protobuf.columns import ProtobufProgram, decode
from pyspark_log.schemas.protobuf.program import arrow_type, message_of, program_of
from pyspark_log.schemas.schema import Schema
from pyspark_log.schemas.slots import slot_of


class ProtobufDecoder:
    """Decodes messages into columns. What fields a message has its bytes say: no writer's schema is needed.

    Attributes:
        type: the Arrow type of a value.
    """

    def __init__(self, reader: Schema, message: str = "") -> None:
        """`message`: its name; "": the first one of the file. SchemaError: no columns fit."""
        file, root = message_of(reader, message)
        self.type = arrow_type(file, root)
        self._place = root.place
        self._slot = slot_of(self.type)
        program = program_of(file, root, self._slot)
        self._program = ProtobufProgram(program.messages, program.enums)

    def writer(self, schema: Schema) -> int:
        """The number of any writer."""
        return 0

    def left_out(self, values: Mapping[int, int]) -> dict[tuple[str, ...], int]:
        """How many values had fields that the schema has not, by the numbers of these fields."""
        count, numbers = self._program.left_out()
        return {tuple(f"number {number}" for number in sorted(numbers)): count} if count else {}

    def decode(self, values: pa.Array, prefix: int, which: pa.Array | None) -> tuple[pa.Array, list[tuple[int, str]]]:
        """Decodes values; arguments and result as those of AvroDecoder. After a prefix each has its message's place."""
        return decode(values, prefix, which, self._program, self._place if prefix else (), self._slot)
