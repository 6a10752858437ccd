"""Columns become Avro values as fastavro writes them; what does not fit is refused, with its place."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from avro_tools import by_fastavro, decoded_array, encoded, schemas, values_of
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log.errors import IncompatibleSchemaError, InvalidRecordError, SchemaError
from pyspark_log.schemas.avro.derived import schema_of
from pyspark_log.schemas.avro.encoding import AvroValuesWriter
from pyspark_log.schemas.schema import Schema


def record(*fields):
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind, **more} for name, kind, more in fields],
    }


def written(schema, values, prefix=b""):
    return AvroValuesWriter(Schema("avro", json.dumps(schema)), values.type).encode(values, prefix).to_pylist()


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_what_was_decoded_is_encoded_to_the_same_bytes(data):
    schema = data.draw(schemas())
    values = [encoded(schema, row) for row in data.draw(st.lists(values_of(schema), min_size=1, max_size=5))]
    columns, _ = decoded_array([None, *values, None], schema)
    assert written(schema, columns) == [None, *values, None]
    assert written(schema, columns[2:], b"12345")[:-1] == [b"12345" + value for value in values[1:]]


def test_columns_are_cast_ordered_and_filled():
    schema = record(
        ("id", "long", {}), ("name", ["null", "string"], {"default": None}), ("kind", "string", {"default": "new"}),
        ("score", ["double"], {}),
    )  # fmt: skip
    rows = pa.array([{"score": 1.0, "id": 5, "name": "x"}, {"score": 2.0, "id": 6, "name": None}])
    rows = rows.cast(pa.struct([("score", pa.float32()), ("id", pa.int32()), ("name", pa.string())]))
    assert [by_fastavro(value, schema) for value in written(schema, rows)] == [
        {"id": 5, "name": "x", "kind": "new", "score": 1.0},
        {"id": 6, "name": None, "kind": "new", "score": 2.0},
    ]
    assert written("string", pa.array(["a", None])) == [b"\2a", None]


@pytest.mark.parametrize("size", [2, 16, 100])
def test_decimals_of_a_fixed(size):
    kind = {"type": "fixed", "name": "F", "size": size, "logicalType": "decimal", "precision": 4}
    numbers = pa.array([-9999, -1, 0, 9999]).cast(pa.decimal128(19, 0)).cast(pa.decimal128(4, 0))
    assert written(kind, numbers) == [number.to_bytes(size, "big", signed=True) for number in (-9999, -1, 0, 9999)]


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        ("int", pa.array([None], pa.int32()), "it: it is null"),
        ({"type": "array", "items": "string"}, pa.array([["a", None]]), "it.element: it is null"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["B"]), "no such symbol"),
        ("int", pa.array([2**40]), "do not fit their schema"),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.array([1], pa.timestamp("us", "UTC")), "lose data"),
        (
            {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4},
            # Arrow has no check of the digits of bytes.
            pa.Array.from_buffers(pa.decimal128(4, 0), 1, [None, pa.py_buffer((2**15).to_bytes(16, "little"))]),
            "does not fit the schema's fixed",
        ),
    ],
)
def test_values_that_do_not_fit(kind, values, problem):
    rows = pa.StructArray.from_arrays([values], ["it"])
    with pytest.raises(InvalidRecordError, match=problem):
        written(record(("it", kind, {})), rows)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([("id", pa.int64()), ("more", pa.int64())], "more: the schema has no such field, so it would be lost"),
        ([], "id: there is no such column, and the schema has no default"),
    ],
)
def test_columns_that_are_not_the_schemas_fields(columns, problem):
    schema = Schema("avro", json.dumps(record(("id", "long", {}))))
    with pytest.raises(IncompatibleSchemaError, match=problem):
        AvroValuesWriter(schema, pa.struct(columns))
    with pytest.raises(IncompatibleSchemaError, match="the schema has a record, the column is int64"):
        AvroValuesWriter(schema, pa.int64())


def test_the_schema_of_columns():
    """Values by it are the columns again; and a record within a record has a name of its own."""
    inner = pa.struct([pa.field("x", pa.float64(), False), ("tags", pa.list_(pa.string()))])
    kind = pa.struct([
        pa.field("id", pa.int64(), False), ("on", pa.bool_()), ("small", pa.int16()), ("f", pa.float32()),
        ("b", pa.binary()), ("d", pa.date32()), ("price", pa.decimal128(9, 2)), ("at", pa.timestamp("us", "UTC")),
        ("here", pa.timestamp("us")), ("m", pa.map_(pa.string(), pa.int32())), ("p", inner), ("q", pa.list_(inner)),
    ])  # fmt: skip
    at = datetime(2026, 1, 2, 3, 4, 5, 6)
    row = {
        "id": 1, "on": True, "small": 2, "f": 0.5, "b": b"x", "d": at.date(), "price": Decimal("1.25"),
        "at": at.replace(tzinfo=UTC), "here": at, "m": [("k", 1)], "p": {"x": 1.0, "tags": ["a"]},
        "q": [{"x": 2.0, "tags": None}],
    }  # fmt: skip
    rows = [row, dict.fromkeys(row) | {"id": 2}]
    schema = json.loads(schema_of(kind, "7 orders-value"))
    assert (schema["name"], schema["fields"][0]) == ("_7_orders_value", {"name": "id", "type": "long"})
    assert schema["fields"][1] == {"name": "on", "type": ["null", "boolean"], "default": None}
    array, bad = decoded_array(written(schema, pa.array(rows, kind)), schema)
    assert (array.to_pylist(), bad) == (rows, [])
    assert schema_of(pa.int32(), "t") == '"int"'


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (
            pa.struct([("a", pa.struct([("b", pa.duration("us"))]))]),
            "a.b: no schema of Avro can be derived from duration",
        ),
        (pa.map_(pa.int32(), pa.int32()), "the value: no schema of Avro can be derived from map"),
        (pa.struct([("a b", pa.int32())]), "'a b' is no name of a field in Avro"),
    ],
)
def test_columns_without_a_schema(kind, problem):
    with pytest.raises(SchemaError, match=problem):
        schema_of(kind, "t")
