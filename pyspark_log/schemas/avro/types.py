"""Which Arrow type the values of an Avro schema have: as Spark's `from_avro`, where that has one."""

from __future__ import annotations

import pyarrow as pa

from pyspark_log.errors import SchemaError
from pyspark_log.schemas.avro.schema import AvroType

_TYPES = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "null": pa.null(),
}  # fmt: skip
# Times of day stay numbers.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
# Numbers of two sizes in a union are one column of the larger one.
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
_MOST_DIGITS = 38
# Also a null takes as many.
_MOST_BYTES = 4096


def arrow_type(kind: AvroType) -> pa.DataType:
    """The type of a column for values of a schema.

    Raises:
        SchemaError: no column has such values.
    """
    return _type(kind, "", ())


def _type(kind: AvroType, path: str, inside: tuple[AvroType, ...]) -> pa.DataType:  # noqa: PLR0911
    if kind.kind == "union":
        return _union(kind, path, inside)
    if any(kind is part for part in inside):
        raise SchemaError(f"{path or kind.name}: {kind.name} refers to itself, and no column has values of any depth")
    if kind.kind == "record":
        inside = (*inside, kind)
        fields = [pa.field(part.name, _type(part.type, _within(path, part.name), inside)) for part in kind.fields]
        if not fields:
            raise SchemaError(f"{path or kind.name}: the record {kind.name} is empty: it has no fields")
        return pa.struct(fields)
    if kind.kind == "array":
        return pa.list_(_type(kind.parts[0], _within(path, "element"), inside))
    if kind.kind == "map":
        return pa.map_(pa.string(), _type(kind.parts[0], _within(path, "value"), inside))
    if kind.logical == "decimal":
        if kind.precision > _MOST_DIGITS:
            raise SchemaError(f"{path}: a decimal of {kind.precision} digits; a column has at most {_MOST_DIGITS}")
        return pa.decimal128(kind.precision, kind.scale)
    if kind.kind == "fixed":
        if not kind.size:
            raise SchemaError(f"{path or kind.name}: the fixed {kind.name} is empty: its size is 0")
        if kind.size > _MOST_BYTES:
            raise SchemaError(f"{path}: a fixed of {kind.size} bytes; a column has at most {_MOST_BYTES}")
        return pa.binary(kind.size)
    return _LOGICAL.get((kind.kind, kind.logical)) or _TYPES[kind.kind]


def _union(kind: AvroType, path: str, inside: tuple[AvroType, ...]) -> pa.DataType:
    single = single_branch(kind)
    if single is not None:
        return _type(single, path, inside)
    branches = branches_of(kind)
    return pa.struct(
        [pa.field(f"member{number}", _type(branch, path, inside)) for number, branch in enumerate(branches)]
    )


def branches_of(kind: AvroType) -> list[AvroType]:
    """The branches of a union that are not null."""
    return [branch for branch in kind.parts if branch.kind != "null"]


def single_branch(kind: AvroType) -> AvroType | None:
    """The one type that a column for a union has; None: it is a struct with a field `memberN` for each branch."""
    branches = branches_of(kind)
    if not branches:
        return AvroType("null")
    if len(branches) == 1:
        return branches[0]
    wider = _WIDER.get(frozenset(branch.kind for branch in branches))
    return AvroType(wider) if wider is not None and len(branches) == 2 else None


def _within(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
