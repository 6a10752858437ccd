"""Values one by one, as programs and JSON have them, are encoded to the bytes that they were decoded from."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from avro_tools import decoded_array, encoded, schemas, values_of
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log.errors import InvalidConfigError, InvalidRecordError
from pyspark_log.schemas import Schema, SchemaDeserializer, SchemaSerializer
from pyspark_log.schemas.given import GivenValues
from pyspark_log.schemas.shown import as_json, shown
from pyspark_log.schemas.values import decoder_of
from pyspark_log.schemas.writing import WriteFormat

PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
message A { int32 n = 1; google.protobuf.Timestamp at = 2; google.protobuf.Duration took = 3; map<string, B> m = 4; }
message B { repeated string names = 1; bytes data = 2; }"""


def writer(schema, kind="avro"):
    return GivenValues(WriteFormat("value", Schema(kind, schema), b""))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_shown_is_encoded_to_the_same_bytes(data):
    schema = data.draw(schemas())
    values = [encoded(schema, row) for row in data.draw(st.lists(values_of(schema), min_size=1, max_size=3))]
    columns, _ = decoded_array(values, schema)
    given = [shown(value, columns.type) for value in columns.to_pylist()]
    again, _ = decoded_array(writer(json.dumps(schema)).encode([*given, None]).to_pylist(), schema)
    # Of a union with members of the same values, as text and bytes are in JSON, another one may be taken.
    assert as_json(again).to_pylist() == [*as_json(columns).to_pylist(), None]


def record(**fields):
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": n, **t} for n, t in fields.items()]})


TEXTS = record(
    b={"type": "bytes"}, f={"type": {"type": "fixed", "name": "F", "size": 2}},
    d={"type": {"type": "int", "logicalType": "date"}}, t={"type": {"type": "long", "logicalType": "timestamp-micros"}},
    p={"type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}, x={"type": "double"},
)  # fmt: skip


def test_json_that_was_printed_is_encoded_to_the_same_bytes():
    """But bytes that are no UTF-8, which are printed as base64."""
    row = {
        "b": b"\xc5\x81", "f": b"ab", "d": date(2026, 2, 3), "t": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "p": Decimal("12.25"), "x": 1.0,
    }  # fmt: skip
    values = writer(TEXTS).encode([row]).to_pylist()
    (text,) = as_json(decoded_array(values, json.loads(TEXTS))[0]).to_pylist()
    assert writer(TEXTS).encode([json.loads(text)]).to_pylist() == values
    message = {
        "n": 1, "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "took": timedelta(days=1, microseconds=5),
        "m": {"k": {"names": ["a"], "data": b"d"}},
    }  # fmt: skip
    data = writer(PROTO, "protobuf").encode([message])
    (text,) = as_json(decoder_of(Schema("protobuf", PROTO), "").decode(data, 0, None)[0]).to_pylist()
    assert json.loads(text)["took"] == "86400.000005s"
    assert json.loads(text)["at"] == "2026-01-02T03:04:05.000006+00:00"
    assert writer(PROTO, "protobuf").encode([json.loads(text)]) == data


def test_fields_that_are_not_given_have_their_defaults():
    inner = {"type": "record", "name": "I", "fields": [{"name": "c", "type": "int", "default": 7}]}
    schema = record(a={"type": "int"}, b={"type": "string", "default": "x"}, i={"type": inner})
    rows = [{"a": 1, "i": {}}, {"a": 2, "b": "y", "i": {"c": 3}}, {"a": 3, "i": {}}]
    columns, _ = decoded_array(writer(schema).encode(rows).to_pylist(), json.loads(schema))
    assert columns.to_pylist() == [
        {"a": 1, "b": "x", "i": {"c": 7}}, {"a": 2, "b": "y", "i": {"c": 3}}, {"a": 3, "b": "x", "i": {"c": 7}},
    ]  # fmt: skip
    assert writer(schema).encode([]) == pa.array([], pa.binary())


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"n": "x"}, "does not fit its schema"),
        ({"n": True}, "expected int32, got a boolean"),
        ({"n": 2**40}, "does not fit its schema"),
        ({"n": 1, "more": 2}, "more: the schema has no such field"),
        ({}, "n: there is no such column, and the schema has no default for it"),
        ({"n": None}, "n: it is null, which the schema does not allow$"),
        ([1], "expected an object with fields, got list"),
        ({"n": 1, "u": 0.5}, "no member of the union has a value like 0.5"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(value, problem):
    schema = record(n={"type": "int"}, u={"type": ["null", "long", "string"], "default": None})
    with pytest.raises(InvalidRecordError, match=problem) as caught:
        writer(schema).encode([{"n": 1}, {"n": 2, "u": "a"}, value])
    assert caught.value.records == (2,)


def test_a_serializer_by_topic(tmp_path):
    (tmp_path / "t-value.avsc").write_text('"int"')
    (tmp_path / "u-value.avsc").write_text('"string"')
    options = {"valueFormat": "avro", "schemaRegistry": str(tmp_path)}
    serializer, deserializer = SchemaSerializer("value", **options), SchemaDeserializer("value", **options)
    assert [serializer.serialize("t", (), 5), serializer.serialize("u", (), "a")] == [b"\x0a", b"\2a"]
    assert serializer.serialize("t", (), None) is None
    assert deserializer.deserialize("u", (), b"\2a") == "a"
    with pytest.raises(InvalidConfigError, match="expected the option keyFormat"):
        SchemaSerializer("key", valueFormat="avro")
