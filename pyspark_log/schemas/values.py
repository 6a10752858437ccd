"""The keys or values of a topic as columns: how they are framed, whose schema they have, and what is none of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.errors import SchemaError
from pyspark_log.schemas.avro.decoder import AvroDecoder, fingerprint_of
from pyspark_log.schemas.framing import SIZES, Framing, NoFrameError, fingerprint_in, number_in, prefixes
from pyspark_log.schemas.json.decoder import JsonDecoder
from pyspark_log.schemas.protobuf.decoder import ProtobufDecoder
from pyspark_log.schemas.schema import Part, Schema, SchemaSource

OnBadRecord = Literal["fail", "null"]


@dataclass(frozen=True)
class ValueFormat:
    """How keys or values are decoded; it can be sent to another process.

    Attributes:
        part: whether they are keys or values.
        subject: of their schemas.
        framing: what is before each.
        reader: the schema of the columns, which does not change while they are read.
        source: where the writers' schemas are.
        message: of Protobuf, the name of the message; "": the first one of its file.
    """

    part: Part
    subject: str
    framing: Framing
    reader: Schema
    source: SchemaSource
    message: str = ""


class BadValue(NamedTuple):
    """A value that is none.

    Attributes:
        row: its place in the batch.
        reason: why.
        schema_id: the number of its schema in the registry; None: it names none.
    """

    row: int
    reason: str
    schema_id: int | None


class _Decoder(Protocol):
    type: pa.DataType

    def writer(self, schema: Schema) -> int: ...

    def left_out(self, values: Mapping[int, int]) -> dict[tuple[str, ...], int]: ...

    def decode(
        self, values: pa.Array, prefix: int, which: pa.Array | None
    ) -> tuple[pa.Array, list[tuple[int, str]]]: ...


class TypedValues:
    """Decodes batches of keys or values into columns of one type.

    Attributes:
        type: the Arrow type of a value.
    """

    def __init__(self, form: ValueFormat) -> None:
        """SchemaError: the reader's schema is none, or has what columns have not."""
        self._form = form
        self._decoder = decoder_of(form.reader, form.message)
        self.type = self._decoder.type
        self._writers: dict[bytes, int] = {}
        self._left_out: Counter[int] = Counter()
        if form.framing == "none":
            self._decoder.writer(form.reader)

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[BadValue]]:
        """Decodes values.

        Args:
            values: binary.

        Returns:
            An array of `type`, and the values that are none, which are null in it.

        Raises:
            RegistryError: a writer's schema is needed, and nothing has answered.
        """
        if self._form.framing == "none":
            array, bad = self._decoder.decode(values, 0, None)
            return array, [BadValue(row, reason, None) for row, reason in bad]
        begins = prefixes(values, self._form.framing, self._writer)
        writers = pa.array([-1 if number is None else number for number in begins.numbers], pa.int32())
        which = writers.take(begins.which).fill_null(-1)
        array, bad = self._decoder.decode(values, SIZES[self._form.framing], which)
        self._count(which)
        problems = [BadValue(row, reason, self._number(values[row].as_py())) for row, reason in bad]
        for kind, reason in begins.problems.items():
            rows = pc.indices_nonzero(pc.equal(begins.which, kind)).to_pylist()
            problems += [BadValue(row, reason, self._number(values[row].as_py())) for row in rows]
        return array, sorted(problems)

    def left_out(self) -> dict[tuple[str, ...], int]:
        """How many values had fields that the reader's schema has not, by the paths or numbers of these fields."""
        return self._decoder.left_out(self._left_out)

    def _count(self, which: pa.Array) -> None:
        for entry in pc.value_counts(which).to_pylist():
            if entry["values"] >= 0:
                self._left_out[entry["values"]] += entry["counts"]

    def _number(self, value: bytes) -> int | None:
        size = SIZES["confluent"]
        return number_in(value[:size]) if self._form.framing == "confluent" and len(value) >= size else None

    def _writer(self, begin: bytes) -> int:
        number = self._writers.get(begin)
        if number is None:
            try:
                number = self._decoder.writer(self._schema(begin))
            except SchemaError as error:
                raise NoFrameError(str(error)) from None
            self._writers[begin] = number
        return number

    def _schema(self, begin: bytes) -> Schema:
        form = self._form
        if form.framing == "confluent":
            # What other languages than Avro have says itself which fields are there.
            return form.reader if form.reader.kind != "avro" else form.source.by_id(number_in(begin), form.subject)
        crc = fingerprint_in(begin)
        for schema in (form.reader, *form.source.versions(form.subject)):
            if fingerprint_of(schema) == crc:
                return schema
        raise SchemaError(f"no schema of {form.subject} has the fingerprint {crc.hex()}")


def decoder_of(schema: Schema, message: str) -> _Decoder:
    """What decodes by a schema; `message`: as ValueFormat has it. SchemaError: it is none, or no columns have it."""
    if schema.kind == "protobuf":
        return ProtobufDecoder(schema, message)
    return AvroDecoder(schema) if schema.kind == "avro" else JsonDecoder(schema)
