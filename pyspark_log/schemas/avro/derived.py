"""The Avro schema of columns, for values that have none yet: as Spark's `to_avro` has it."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from pyspark_log.errors import SchemaError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = {
    pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "long",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}  # fmt: skip


def schema_of(kind: pa.DataType, name: str) -> str:
    """The schema of values, in JSON. A field that may be null is a union, whose default is null.

    Args:
        kind: their type.
        name: of the topic, from which records have their names.

    Raises:
        SchemaError: Avro has no such type, or no such name of a field.
    """
    return json.dumps(_type(kind, re.sub(r"^(?=\d)|[^A-Za-z0-9_]", "_", name), ""))


def _type(kind: pa.DataType, name: str, path: str) -> Any:  # noqa: ANN401  (what JSON has)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-micros"}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": name, "fields": [_field(field, name, path) for field in kind]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, name, f"{path}.element")}
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return {"type": "map", "values": _nullable(kind.item_field, name, f"{path}.value")}
    raise SchemaError(f"{path.lstrip('.') or 'the value'}: no schema of Avro can be derived from {kind}")


def _field(field: pa.Field, name: str, path: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise SchemaError(f"{field.name!r} is no name of a field in Avro: letters, digits and _")
    own = {"name": field.name, "type": _nullable(field, f"{name}_{field.name}", f"{path}.{field.name}")}
    return {**own, "default": None} if field.nullable else own


def _nullable(field: pa.Field, name: str, path: str) -> Any:  # noqa: ANN401
    kind = _type(field.type, name, path)
    return ["null", kind] if field.nullable else kind
