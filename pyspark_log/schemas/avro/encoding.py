"""Columns as Avro values of one schema: a program for the kernel `avro_encoder`."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from pyspark_log.errors import IncompatibleSchemaError, InvalidRecordError
from pyspark_log.schemas.avro.defaults import encoded_default
from pyspark_log.schemas.avro.encoder import AvroEncoder
from pyspark_log.schemas.avro.schema import AvroType, parse_avro
from pyspark_log.schemas.avro.types import arrow_type, branches_of, single_branch
from pyspark_log.schemas.schema import Schema
from pyspark_log.schemas.slots import Slot, arrays_of, slot_of


class Op(IntEnum):
    """What a step does, as encoder.pyx has it."""

    NOTHING = 0
    BOOLEAN = 1
    NUMBER32 = 2
    NUMBER64 = 3
    PLAIN = 4
    TEXT = 5
    FIXED = 6
    DECIMAL = 7
    ENUM = 8
    ARRAY = 9
    MAP = 10
    RECORD = 11
    OPTIONAL = 12
    MEMBERS = 13
    DEFAULT = 14


_PLAIN = {
    "null": Op.NOTHING, "boolean": Op.BOOLEAN, "int": Op.NUMBER32, "long": Op.NUMBER64, "float": Op.PLAIN,
    "double": Op.PLAIN, "bytes": Op.TEXT, "string": Op.TEXT,
}  # fmt: skip
_NULL = "null"


class AvroValuesWriter:
    """Encodes columns as values of a schema.

    Attributes:
        type: the Arrow type that the columns are cast to.
    """

    def __init__(self, schema: Schema, columns: pa.DataType) -> None:
        """`columns`: the type of what is to be written.

        Raises:
            SchemaError: the schema is none, or no columns fit.
            IncompatibleSchemaError: a column has no field, or a field without a default no column.
        """
        kind = parse_avro(schema.text, tuple(text for _, text in schema.references))
        self._steps: list[tuple[int, int, int, tuple[int, ...]]] = []
        self._blobs: list[bytes] = []
        self._paths: list[str] = []
        self._absent: dict[int, pa.DataType] = {}
        self.type = arrow_type(kind)
        self._slot = slot_of(self.type)
        self._step(Op.NOTHING, self._slot, "")
        self._steps[0] = self._steps[self._added(kind, self._slot, columns, "")]
        self._encoder = AvroEncoder(self._steps, self._blobs)

    def encode(self, values: pa.Array, prefix: bytes) -> pa.Array:
        """Encodes values, after a prefix; a null is null.

        Raises:
            InvalidRecordError: a value does not fit the schema.
        """
        arrays = arrays_of(values, self._slot)
        encoded = self._encoder.encode(arrays, len(values), prefix, self._steps[0][0] != Op.NOTHING)
        if isinstance(encoded, tuple):
            row, step, reason = encoded
            path = self._paths[step] or "the value"
            raise InvalidRecordError(f"a value does not fit its schema: {path}: {reason} (row {row} of its batch)")
        return encoded

    def _step(self, op: Op, slot: Slot, path: str, number: int = 0, links: tuple[int, ...] = ()) -> int:
        self._steps.append((op, slot.number, number, links))
        self._paths.append(path)
        return len(self._steps) - 1

    def _blob(self, data: bytes) -> int:
        self._blobs.append(data)
        return len(self._blobs) - 1

    def _added(self, kind: AvroType, slot: Slot, columns: pa.DataType, path: str) -> int:  # noqa: PLR0911
        """The step that writes values of a type from columns of another."""
        if kind.kind == "union":
            return self._union(kind, slot, columns, path)
        if kind.kind == "record":
            return self._record(kind, slot, columns, path)
        if kind.kind == "array":
            of = columns.value_type if pa.types.is_list(columns) else columns
            link = self._added(kind.parts[0], slot.children[0], of, f"{path}.element")
            return self._step(Op.ARRAY, slot, path, links=(link,))
        if kind.kind == "map":
            key, item = slot.children[0].children
            of = columns.item_type if pa.types.is_map(columns) else columns
            links = self._step(Op.TEXT, key, path), self._added(kind.parts[0], item, of, f"{path}.value")
            return self._step(Op.MAP, slot, path, links=links)
        if kind.logical == "decimal":
            return self._step(Op.DECIMAL, slot, path, kind.size if kind.kind == "fixed" else -1)
        if kind.kind == "fixed":
            return self._step(Op.FIXED, slot, path, kind.size)
        if kind.kind == "enum":
            return self._step(Op.ENUM, slot, path, links=tuple(self._blob(symbol.encode()) for symbol in kind.symbols))
        return self._step(_PLAIN[kind.kind], slot, path)

    def _union(self, kind: AvroType, slot: Slot, columns: pa.DataType, path: str) -> int:
        null = next((number for number, branch in enumerate(kind.parts) if branch.kind == _NULL), -1)
        single = single_branch(kind)
        if single is None:
            links = list[int]()
            for branch, child in zip(branches_of(kind), slot.children, strict=True):
                links += [kind.parts.index(branch), self._added(branch, child, child.type, path)]
            return self._step(Op.MEMBERS, slot, path, null, tuple(links))
        if single.kind == _NULL:
            return self._step(Op.DEFAULT, slot, path, links=(self._blob(b"\0"),))
        number = next(at for at, branch in enumerate(kind.parts) if branch.kind == single.kind)
        link = self._added(kind.parts[number], slot, columns, path)
        if null < 0:
            return self._step(Op.MEMBERS, slot, path, null, (number, link))
        return self._step(Op.OPTIONAL, slot, path, null, (number, link))

    def _record(self, kind: AvroType, slot: Slot, columns: pa.DataType, path: str) -> int:
        if not pa.types.is_struct(columns):
            raise IncompatibleSchemaError(f"{path or 'the value'}: the schema has a record, the column is {columns}")
        fields = {columns.field(at).name: columns.field(at).type for at in range(columns.num_fields)}
        names = {field.name for field in kind.fields}
        extra = next((name for name in fields if name not in names), None)
        if extra is not None:
            raise IncompatibleSchemaError(f"{_within(path, extra)}: the schema has no such field, so it would be lost")
        links = list[int]()
        for field, child in zip(kind.fields, slot.children, strict=True):
            inner = _within(path, field.name)
            if field.name in fields:
                links.append(self._added(field.type, child, fields[field.name], inner))
            elif field.has_default:
                data = encoded_default(field.type, field.default, inner)
                links.append(self._step(Op.DEFAULT, child, inner, links=(self._blob(data),)))
            else:
                raise IncompatibleSchemaError(f"{inner}: there is no such column, and the schema has no default for it")
        return self._step(Op.RECORD, slot, path, links=tuple(links))


def _within(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
