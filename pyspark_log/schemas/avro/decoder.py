"""Values in Avro as columns: each by its writer's schema, into the reader's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from pyspark_log.schemas.avro.columns import AvroProgram, decode
from pyspark_log.schemas.avro.resolution import resolve
from pyspark_log.schemas.avro.schema import AvroType, fingerprint, parse_avro
from pyspark_log.schemas.avro.types import arrow_type
from pyspark_log.schemas.schema import Schema
from pyspark_log.schemas.slots import slot_of


class AvroDecoder:
    """Decodes values into columns of one reader's schema.

    Attributes:
        type: the Arrow type of a value.
    """

    def __init__(self, reader: Schema) -> None:
        """SchemaError: the schema is none, or no columns fit."""
        self._reader = parse_avro(reader.text, _texts(reader))
        self.type = arrow_type(self._reader)
        self._slot = slot_of(self.type)
        self._programs: list[AvroProgram] = []
        self._left_out: list[tuple[str, ...]] = []

    def writer(self, schema: Schema) -> int:
        """Adds a writer's schema, and returns its number. SchemaError: its values cannot become the reader's."""
        resolution = resolve(parse_avro(schema.text, _texts(schema)), self._reader, self._slot)
        self._programs.append(AvroProgram(resolution.steps, resolution.blobs))
        self._left_out.append(tuple(dict.fromkeys(resolution.left_out)))
        return len(self._programs) - 1

    def left_out(self, values: Mapping[int, int]) -> dict[tuple[str, ...], int]:
        """How many values had fields that the reader has not, by the paths of these fields.

        Args:
            values: how many values there were of each writer.
        """
        counts: Counter[tuple[str, ...]] = Counter()
        for writer, count in values.items():
            if fields := self._left_out[writer]:
                counts[fields] += count
        return dict(counts)

    def decode(self, values: pa.Array, prefix: int, which: pa.Array | None) -> tuple[pa.Array, list[tuple[int, str]]]:
        """Decodes values.

        Args:
            values: binary.
            prefix: bytes before each that are no part of it.
            which: int32, the number of each value's writer; -1: it becomes null. None: the first is that of all.

        Returns:
            An array of `type`, and pairs of a row and why its value is none; it is null then.
        """
        return decode(values, prefix, self._programs, which, self._slot)


def _texts(schema: Schema) -> tuple[str, ...]:
    return tuple(text for _, text in schema.references)


def fingerprint_of(schema: Schema) -> bytes:
    """The fingerprint of a schema, as single objects have it. SchemaError: it is none of Avro's."""
    kind: AvroType = parse_avro(schema.text, _texts(schema))
    return fingerprint(kind)
