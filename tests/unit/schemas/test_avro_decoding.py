"""Avro values become columns as fastavro reads them; bytes that are no value become a null and a reason."""

import json

import pyarrow as pa
import pytest
from avro_tools import by_fastavro, decoded, decoded_array, encoded, schemas, values_of
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log.errors import IncompatibleSchemaError, SchemaError
from pyspark_log.schemas.avro.schema import parse_avro
from pyspark_log.schemas.avro.types import arrow_type

SMALL = {
    "type": "record",
    "name": "Small",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
}
FEW = settings(max_examples=80, deadline=None)


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": [{"name": at, "type": kind} for at, kind in fields]}


@FEW
@given(st.data())
def test_values_are_as_fastavro_reads_them(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(values_of(schema), min_size=1, max_size=5))
    values = [encoded(schema, row) for row in rows]
    found, bad = decoded([*values, None], schema)
    assert bad == []
    assert found == [*(by_fastavro(value, schema) for value in values), None]


@FEW
@given(st.data())
def test_damaged_bytes_are_a_value_or_a_null_and_move_no_other(data):
    schema = data.draw(schemas())
    value = encoded(schema, data.draw(values_of(schema)))
    damaged = []
    for _ in range(20):
        made = bytearray(value)
        for _ in range(data.draw(st.integers(1, 3))):
            if made:
                made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
        damaged.append(bytes(made[: data.draw(st.integers(0, len(made)))]))
    found, bad = decoded_array([one for pair in zip(damaged, [value] * 20, strict=True) for one in pair], schema)
    found.validate(full=True)
    # Times of damaged values may be none of Python's.
    assert found.take(pa.array(range(1, 40, 2))).to_pylist() == [by_fastavro(value, schema)] * 20
    assert [row for row in range(40) if not found[row].is_valid] == [row for row, _ in bad]


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("int", b"", "too early"),
        ("int", b"\xff\xff\xff\xff\x7f", "too large"),
        ("long", b"\xff" * 10 + b"\1", "too large"),
        ("long", b"\xff" * 9 + b"\2", "too large"),
        ("double", b"1234567", "too early"),
        ("boolean", b"\2", "neither 0 nor 1"),
        ("string", b"\2\xff", "not UTF-8"),
        ("string", b"\4\xc0\x80", "not UTF-8"),
        ("string", b"\6\xed\xa0\x80", "not UTF-8"),
        ("string", b"\1a", "length"),
        ("bytes", b"\x80\x80\x80\x80\x20a", "length"),
        (["null", "int"], b"\4", "no branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "no such symbol"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "length"),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\1", "length"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\2\x64", "more digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22\1" + b"\0" * 16, "more digits"),
        ("int", b"\2\2", "bytes are left"),
    ],
)
def test_why_bytes_are_no_value(kind, data, reason):
    found, [(row, why)] = decoded([data], record(("it", kind)))
    assert (found, row) == ([None], 0)
    assert reason in why


def test_a_key_need_not_be_a_record():
    assert decoded([b"\2", None, b"\4"], "long") == ([1, None, 2], [])


def test_a_value_begins_after_its_prefix():
    values = [b"\0\0\0\0\7" + encoded(SMALL, {"id": 7, "name": "x"})] * 3
    assert decoded(values, SMALL, prefix=5)[0] == [{"id": 7, "name": "x"}] * 3


def test_a_decimal_with_more_digits_than_its_bytes_is_none():
    fixed = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal"}
    assert [arrow_type(parse_avro(json.dumps({**fixed, "precision": digits}))) for digits in (4, 5)] == [
        pa.decimal128(4, 0), pa.binary(2),
    ]  # fmt: skip


def test_decimals_of_all_sizes():
    schema = record(("it", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}))
    numbers = [0, 1, -1, 127, -128, 10**38 - 1, 1 - 10**38, 2**64, -(2**64), *range(-3, 3)]
    values = [
        bytes([2 * size]) + number.to_bytes(size, "big", signed=True)
        for number in numbers
        for size in range(number.bit_length() // 8 + 1, 20)
    ]
    found, bad = decoded(values, schema)
    assert bad == []
    expected = [number for number in numbers for _ in range(number.bit_length() // 8 + 1, 20)]
    assert [int(row["it"]) for row in found] == expected


# ---- evolution


@pytest.mark.parametrize(
    ("writer", "reader", "row", "expected"),
    [
        ("int", "long", -5, -5),
        ("int", "double", 7, 7.0),
        ("long", "float", 2**40, float(2**40)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"a", "a"),
        ("int", ["null", "long"], 3, 3),
        (["null", "int"], "long", 3, 3),
        (["int", "string"], ["null", "string", "long"], "a", {"member0": "a", "member1": None}),
        (["int", "string"], ["null", "string", "long"], 5, {"member0": None, "member1": 5}),
        (["int", "long"], ["int", "long"], 5, 5),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A", "C"], "default": "C"},
            "B",
            "C",
        ),
    ],
)
def test_a_writers_type_becomes_the_readers(writer, reader, row, expected):
    wrote, read = record(("it", writer)), record(("it", reader))
    assert decoded([encoded(wrote, {"it": row})], wrote, read) == ([{"it": expected}], [])


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("string", "é", "é"),
        ("bytes", "ÿ", b"\xff"),
        ("double", 1, 1.0),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        ({"type": "array", "items": "long"}, [1, -2], [1, -2]),
        ({"type": "map", "values": "string"}, {"a": "b"}, [("a", "b")]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "record", "name": "P", "fields": [{"name": "x", "type": "int", "default": 3}]}, {}, {"x": 3}),
    ],
)
def test_a_field_that_the_writer_has_not_has_its_default(kind, default, expected):
    reader = {**SMALL, "fields": [*SMALL["fields"], {"name": "new", "type": kind, "default": default}]}
    found, _ = decoded([encoded(SMALL, {"id": 1, "name": None})], SMALL, reader)
    assert found == [{"id": 1, "name": None, "new": expected}]


def test_fields_that_the_reader_has_not_are_left_out_whatever_they_have():
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    writer = record(("a", {"type": "array", "items": {"type": "map", "values": node}}), ("b", "int"), ("c", "string"))
    row = {"a": [{"x": {"next": {"next": None}}}], "b": 4, "c": "text"}
    assert decoded([encoded(writer, row)], writer, record(("b", "long"))) == ([{"b": 4}], [])
    endless = record(("a", node), ("b", "int"))
    assert decoded([b"\2" * 5000], endless, record(("b", "int")))[1] == [(0, "it is nested too deep")]


WIDER = {"int": "long", "float": "double", "string": "bytes"}
EVOLVED = [
    lambda field: field,
    lambda field: None,
    lambda field: {**field, "type": WIDER.get(str(field["type"]), field["type"])},
    lambda field: {**field, "type": ["null", field["type"]]} if not isinstance(field["type"], list) else field,
    lambda field: {"name": field["name"] + "_renamed", "aliases": [field["name"]], "type": field["type"]},
    lambda field: {"name": field["name"] + "_new", "type": ["null", "int"], "default": None},
]


@FEW
@given(st.data())
def test_pairs_of_schemas_are_resolved_as_by_fastavro(data):
    writer = data.draw(schemas())
    changed = [data.draw(st.sampled_from(EVOLVED))(field) for field in writer["fields"]]
    fields = data.draw(st.permutations([one for one in changed if one is not None]))
    reader = {**writer, "fields": [*fields, {"name": "added", "type": "long", "default": 5}]}
    value = encoded(writer, data.draw(values_of(writer)))
    assert decoded([value], writer, reader) == ([by_fastavro(value, writer, json.loads(json.dumps(reader)))], [])


@pytest.mark.parametrize(
    ("writer", "reader", "problem"),
    [
        ("string", "int", "it: string as int cannot be read"),
        ("long", "int", "it: long as int"),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5}, "4 bytes and 5"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "O", "symbols": ["A"]}, "names"),
        ({"type": "array", "items": "null"}, {"type": "array", "items": "null"}, "take no bytes"),
        (["string", "bytes"], "int", "cannot be read"),
        (
            record(("x", "int"), name="A"),
            [record(("x", "string"), name="A"), record(("x", "long"), name="B")],
            "it.x: int",
        ),
        ("string", {"type": "bytes", "logicalType": "decimal", "precision": 9}, "it: string as bytes"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "other units",
        ),
    ],
)
def test_schemas_that_do_not_fit(writer, reader, problem):
    with pytest.raises(IncompatibleSchemaError, match=problem):
        decoded([], record(("it", writer)), record(("it", reader)))


def test_a_new_field_without_a_default_does_not_fit():
    with pytest.raises(IncompatibleSchemaError, match="new: the writer has no such field"):
        decoded([], SMALL, {**SMALL, "fields": [{"name": "new", "type": "int"}]})


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "not an Avro schema"),
        ('{"type": "record", "name": "A"}', "not an Avro schema"),
        ('["null", "Other"]', "no type 'Other'"),
        ("[" * 300 + "]" * 300, "more than 200"),
        (json.dumps(record(("next", ["null", "R"]))), "refers to itself"),
        (json.dumps(record()), "is empty"),
        ("[]", "no branch"),
        (json.dumps(record(("\ud800", "int"))), "surrogates"),
        (json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 39}), "39 digits"),
        (json.dumps({"type": "fixed", "name": "F", "size": 2**20}), "a fixed of 1048576 bytes"),
        (json.dumps({"type": "fixed", "name": "F", "size": 2**31}), "has the size 2147483648"),
    ],
)
def test_a_schema_without_columns_is_refused(schema, problem):
    with pytest.raises(SchemaError, match=problem):
        arrow_type(parse_avro(schema))


def test_values_of_a_slice():
    values = pa.array([encoded(SMALL, {"id": at, "name": str(at)}) for at in range(100)], pa.binary())
    found, _ = decoded(values[31:77], SMALL)
    assert [row["id"] for row in found] == list(range(31, 77))
