"""Avro schemas and values drawn by chance, and what fastavro makes of them, in the shape of Arrow's rows."""

import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from pyspark_log.schemas.avro.columns import AvroProgram, decode
from pyspark_log.schemas.avro.resolution import resolve
from pyspark_log.schemas.avro.schema import parse_avro
from pyspark_log.schemas.avro.types import arrow_type, branches_of, single_branch
from pyspark_log.schemas.slots import slot_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
]


class Names:
    """Names that no other type of a schema has."""

    def __init__(self):
        self.given = 0

    def next(self):
        self.given += 1
        return f"N{self.given}"


@st.composite
def types(draw, names, depth=3):  # noqa: PLR0911  (one for each type)
    kinds = ["plain", "plain", "logical", "enum", "fixed"]
    kinds += ["record", "array", "map", "optional", "union"] * (depth > 0)
    kind = draw(st.sampled_from(kinds))
    if kind == "plain":
        return draw(st.sampled_from(PLAIN))
    if kind == "logical":
        return draw(st.sampled_from(LOGICAL))
    if kind == "enum":
        return {"type": "enum", "name": names.next(), "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
    if kind == "fixed":
        return {"type": "fixed", "name": names.next(), "size": draw(st.integers(1, 20))}
    if kind == "record":
        fields = draw(st.integers(1, 4))
        return {
            "type": "record",
            "name": names.next(),
            "fields": [{"name": f"f{at}", "type": draw(types(names, depth - 1))} for at in range(fields)],
        }
    inner = types(names, depth - 1).filter(lambda one: not isinstance(one, list))
    if kind == "array":
        return {"type": "array", "items": draw(inner)}
    if kind == "map":
        return {"type": "map", "values": draw(inner)}
    if kind == "optional":
        return draw(st.permutations(["null", draw(inner)]))
    chosen = draw(st.lists(st.sampled_from(["null", "boolean", "long", "string"]), min_size=2, unique=True))
    return [*chosen, draw(types(names, 0).filter(lambda one: isinstance(one, dict) and "name" in one))]


@st.composite
def schemas(draw):
    names = Names()
    fields = draw(st.integers(1, 6))
    return {
        "type": "record",
        "name": "Root",
        "fields": [{"name": f"f{at}", "type": draw(types(names))} for at in range(fields)],
    }


def values_of(schema):  # noqa: PLR0911  (one for each type)
    """A strategy for the values of a type, as fastavro takes them."""
    if isinstance(schema, list):
        return st.one_of(*(_branch(one) for one in schema))
    if isinstance(schema, str):
        return _PLAIN_VALUES[schema]
    kind = schema["type"]
    if kind == "record":
        return st.fixed_dictionaries({one["name"]: values_of(one["type"]) for one in schema["fields"]})
    if kind == "array":
        return st.lists(values_of(schema["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=4), values_of(schema["values"]), max_size=4)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    return _LOGICAL_VALUES[schema["logicalType"]]


def _branch(schema):
    """fastavro takes a branch by its name from a pair."""
    if schema == "null":
        return st.none()
    name = schema if isinstance(schema, str) else schema.get("name", schema["type"])
    return values_of(schema).map(lambda value: (name, value)) if name not in ("array", "map") else values_of(schema)


_PLAIN_VALUES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}
_LOGICAL_VALUES = {
    "date": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "timestamp-millis": st.integers(-(2**40), 2**41).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
    "timestamp-micros": st.integers(-(2**50), 2**51).map(lambda us: EPOCH + timedelta(microseconds=us)),
    # fastavro writes these with a byte too many; Java and we do not.
    "decimal": st.integers(-(10**9) + 1, 10**9 - 1)
    .filter(lambda number: number not in (-(2**7), -(2**15), -(2**23)))
    .map(lambda number: Decimal(number).scaleb(-2)),
}


def encoded(schema, value):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, value)
    return data.getvalue()


def decoded(values, writer, reader=None, prefix=0):
    """The rows of some bytes, as Python has them, and which are none."""
    array, bad = decoded_array(values, writer, reader, prefix)
    array.validate(full=True)
    return array.to_pylist(), bad


def decoded_array(values, writer, reader=None, prefix=0):
    wrote = parse_avro(json.dumps(writer))
    read = wrote if reader is None else parse_avro(json.dumps(reader))
    slot = slot_of(arrow_type(read))
    made = resolve(wrote, read, slot)
    return decode(pa.array(values, pa.binary()), prefix, [AvroProgram(made.steps, made.blobs)], None, slot)


def by_fastavro(data, writer, reader=None):
    """The value of some bytes in the shape of a row. Raises what fastavro raises, and ValueError if bytes are left."""
    stream = io.BytesIO(data)
    found = fastavro.schemaless_reader(stream, writer, reader, return_record_name=True, return_named_type=True)
    if stream.read():
        raise ValueError("bytes are left")
    return shaped(parse_avro(json.dumps(reader or writer)), found)


def shaped(kind, value):
    """fastavro's value as Arrow has it: maps are pairs, unions of several types are structs."""
    if kind.kind == "union":
        name, value = _named(value)
        single = single_branch(kind)
        if value is None or single is not None:
            return None if value is None else shaped(single, value)
        branches = branches_of(kind)
        chosen = next(one for one in branches if _is_of(one, name, value))
        return {f"member{at}": shaped(one, value) if one is chosen else None for at, one in enumerate(branches)}
    if kind.kind == "record":
        return {one.name: shaped(one.type, value[one.name]) for one in kind.fields}
    if kind.kind == "array":
        return [shaped(kind.parts[0], one) for one in value]
    if kind.kind == "map":
        return [(name, shaped(kind.parts[0], one)) for name, one in value.items()]
    return value


def _named(value):
    return value if isinstance(value, tuple) else ("", value)


def _is_of(kind, name, value):
    if name or kind.name:
        return kind.name == name
    return isinstance(value, {"boolean": bool, "long": int, "double": float, "string": str}[kind.kind]) and (
        kind.kind == "boolean" or not isinstance(value, bool)
    )
