"""Values in Avro, decoded into columns by fastavro, a batch at a time.

The values of a batch become one block of a container file in memory (Avro specification, "Object Container Files"),
each with a mark after it. Of a value that is shorter or longer than its schema says, the mark is in another place.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.jobs.export.parsed_values import ParsedValues

# Confluent's registry has values begin with a zero byte and the number of their schema, big-endian.
_PREFIX = 5
# Of the mark after each value, and of what ends a block; in bytes.
_MARK_SIZE = _SYNC_SIZE = 16


@dataclass(frozen=True)
class AvroValues(ParsedValues):
    """How values in Avro are decoded.

    Attributes:
        avro_schema: the schema of the values, a record, in JSON.
        registry_id: the number of that schema in a registry of Confluent's, which each value begins with; None: values
            are bare.
    """

    avro_schema: str = ""
    registry_id: int | None = None

    def parse(self, values: pa.Array) -> pa.StructArray:
        """Decodes values into structs of the fields; a null has nulls. ArrowInvalid: one of them does not fit."""
        kind = pa.struct(list(self.schema))
        if self.registry_id is not None and self.bad_as_null:
            # Values of another schema are not searched for one by one.
            values = pc.if_else(pc.starts_with(values, self._prefix), values, None)
        present = values.drop_null()
        if not len(present):
            return pa.nulls(len(values), kind)
        decoded = _decode(self._bare(present), self.avro_schema, kind)
        if len(present) == len(values):
            return decoded
        valid = values.is_valid()
        numbers = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
        return decoded.take(pc.if_else(valid, numbers, None))

    @property
    def _prefix(self) -> bytes:
        assert self.registry_id is not None
        return b"\0" + self.registry_id.to_bytes(_PREFIX - 1, "big")

    def _bare(self, values: pa.Array) -> pa.Array:
        if self.registry_id is None:
            return values
        if not pc.all(pc.starts_with(values, self._prefix)).as_py():
            found = next(value.as_py() for value in values if not value.as_py().startswith(self._prefix))
            raise pa.ArrowInvalid(f"it begins with {found[:_PREFIX]!r}, not with the schema id {self.registry_id}")
        return pc.binary_slice(values, _PREFIX)


def _decode(values: pa.Array, avro_schema: str, kind: pa.DataType) -> pa.StructArray:
    import fastavro  # noqa: PLC0415  (most exports do without)

    # No value knows it, so none can have it at its end.
    mark = pa.scalar(secrets.token_bytes(_MARK_SIZE))
    marked = pc.binary_join_element_wise(values, mark, b"")
    body = pc.binary_join(pa.ListArray.from_arrays([0, len(marked)], marked), b"")[0].as_buffer()
    framed = {
        "type": "record",
        "name": f"Framed{mark.as_py().hex()}",
        "fields": [
            {"name": "value", "type": json.loads(avro_schema)},
            {"name": "mark", "type": {"type": "fixed", "name": f"Mark{mark.as_py().hex()}", "size": _MARK_SIZE}},
        ],
    }
    container = io.BytesIO()
    fastavro.writer(container, framed, [])
    end = container.getvalue()[-_SYNC_SIZE:]
    container.write(_long(len(marked)) + _long(body.size))
    container.write(body)
    container.write(end)
    container.seek(0)
    try:
        rows = pa.array(fastavro.reader(container), pa.struct([("value", _stored(kind)), ("mark", pa.binary())]))
    except Exception as error:  # What fastavro raises depends on where a wrong value leads it.
        raise pa.ArrowInvalid(f"{type(error).__name__}: {error}") from error
    if not pc.all(pc.equal(rows.field("mark"), mark)).as_py():
        raise pa.ArrowInvalid("it is shorter or longer than a value of that schema")
    return rows.field("value").cast(kind)


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type with the numbers that Avro stores for times: to make objects of them would take most of the time."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _stored(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def _long(number: int) -> bytes:
    """Avro's encoding of a number from 0 on: zigzag, seven bits a byte."""
    number, data = number << 1, bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def avro_values(text: str, registry_id: int | None, *, bad_as_null: bool) -> AvroValues:
    """How values of an Avro schema, a record, are decoded. click.UsageError: it is none, or no columns fit."""
    try:
        import fastavro  # noqa: PLC0415
        import fastavro.schema  # noqa: PLC0415
    except ImportError:
        raise click.UsageError("Avro values need the package fastavro: pip install fastavro") from None
    try:
        avro_schema = json.loads(text)
        expanded: Any = fastavro.schema.expand_schema(fastavro.parse_schema(avro_schema))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise click.UsageError(f"--schema: not an Avro schema: {error}") from None
    fields = pa.schema([pa.field(one["name"], _type(one["name"], one["type"])) for one in expanded["fields"]])
    return AvroValues(fields, bad_as_null, json.dumps(_plain(avro_schema)), registry_id)


_TYPES = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "null": pa.null(),
}  # fmt: skip
# As Spark's from_avro has them: times of day stay numbers.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def _type(name: str, given: Any) -> pa.DataType:  # noqa: ANN401  (what JSON has)
    """The type of a column for one of Avro's, which is written out. click.UsageError: no type fits."""
    if isinstance(given, list):
        kinds = [one for one in given if one != "null"]
        if len(kinds) > 1:
            raise click.UsageError(
                f"--schema: a column has one type, but {name!r} has several types: {json.dumps(given)}"
            )
        return _type(name, kinds[0] if kinds else "null")
    if not isinstance(given, dict):
        given = {"type": given}
    kind = given["type"]
    if isinstance(kind, (dict, list)):
        return _type(name, kind)
    if (kind, given.get("fields")) == ("record", []) or (kind, given.get("size")) == ("fixed", 0):
        raise click.UsageError(f"--schema: {name!r} is empty, which Parquet cannot store: {json.dumps(given)}")
    if kind in _NESTED:
        return _NESTED[kind](name, given)
    logical = given.get("logicalType", "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return pa.decimal128(given["precision"], given.get("scale", 0))
    found = pa.binary(given["size"]) if kind == "fixed" else _LOGICAL.get((kind, logical)) or _TYPES.get(kind)
    if found is None:
        raise click.UsageError(f"--schema: no column type fits {name!r}: {kind!r}; a record cannot hold itself")
    return found


_NESTED: dict[str, Callable[[str, dict[str, Any]], pa.DataType]] = {
    "record": lambda _, given: pa.struct(
        [pa.field(one["name"], _type(one["name"], one["type"])) for one in given["fields"]]
    ),
    "array": lambda name, given: pa.list_(_type(name, given["items"])),
    "map": lambda name, given: pa.map_(pa.string(), _type(name, given["values"])),
}


def _plain(given: Any) -> Any:  # noqa: ANN401  (what JSON has)
    """The schema without logical types but decimals: the values stay numbers and text, and become columns as such."""
    if isinstance(given, list):
        return [_plain(one) for one in given]
    if isinstance(given, dict):
        kept = {name: _plain(one) for name, one in given.items()}
        if kept.get("logicalType", "decimal") != "decimal":
            del kept["logicalType"]
        return kept
    return given
