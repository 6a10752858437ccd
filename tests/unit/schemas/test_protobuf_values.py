"""Protobuf messages become columns as Google's library reads them."""

import base64
import importlib
from pathlib import Path

import google.api
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from proto_tools import comparable, decoded, decoder_of, files, fill, message_class, schema_of, shaped

from pyspark_log.errors import IncompatibleSchemaError, InvalidRecordError, SchemaError
from pyspark_log.schemas import TypedValues, format_of
from pyspark_log.schemas.given import GivenValues
from pyspark_log.schemas.protobuf.descriptor import add_descriptor
from pyspark_log.schemas.protobuf.encoding import ProtobufValuesWriter
from pyspark_log.schemas.protobuf.file import ProtoFile, parse_proto
from pyspark_log.schemas.schema import Schema
from pyspark_log.schemas.writing import WriteFormat
from tests.registry_server import registry_server

FEW = settings(max_examples=60, deadline=None)
ORDER = """
syntax = "proto3"; // the shop's
package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 n = 1; }
message Order {
  option deprecated = true;
  reserved 9, 11 to 13; reserved "old";
  message Line { string name = 1; uint32 count = 2 [json_name = "n", deprecated = false];
    enum State { NEW = 0; } State state = 3; }
  enum Kind { option allow_alias = true; PLAIN = 0; SIMPLE = 0; LARGE = 0x2; BELOW = -1; }
  int64 id = 1; /* a number */
  repeated Line lines = 2;
  map<string, .shop.Other> others = 3;
  Kind kind = 4;
  oneof how { string card = 5; bool cash = 6; }
  optional double tip = 7;
  google.protobuf.Timestamp at = 8;
  google.protobuf.Duration took = 10;
}
service Shop { rpc Get (Order) returns (Order) { option x = { a: "}" }; } }
"""


def typed(settings):
    return TypedValues(format_of({"valueformat": "protobuf", **settings}, "value", "t"))


def rows(settings, values):
    array, bad = typed(settings).decode(pa.array(values, pa.binary()))
    return array.to_pylist(), bad


@FEW
@given(st.data())
def test_messages_are_as_googles_library_reads_them(data):
    file = data.draw(files())
    messages = [message_class(file)() for _ in range(3)]
    for message in messages:
        fill(data.draw, message)
    found, bad = decoded(file, [*(message.SerializeToString() for message in messages), None])
    assert bad == []
    assert found == [*map(shaped, messages), None]


@FEW
@given(st.data())
def test_damaged_bytes_are_a_message_or_a_null_and_move_no_other(data):
    file = data.draw(files())
    kind = message_class(file)
    message = kind()
    fill(data.draw, message)
    value = message.SerializeToString()
    damaged = []
    for _ in range(10):
        made = bytearray(value + data.draw(st.binary(max_size=3)))
        for _ in range(data.draw(st.integers(1, 3)) if made else 0):
            made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
        damaged.append(bytes(made[: data.draw(st.integers(0, len(made)))]))
    found, bad = decoded(file, [one for pair in zip(damaged, [value] * 10, strict=True) for one in pair])
    assert found[1::2] == [shaped(message)] * 10
    refused = dict(bad)
    for number, bytes_of_it in enumerate(damaged):
        row = found[2 * number]
        assert (row is None) == (2 * number in refused)
        try:
            read = kind.FromString(bytes_of_it)
            size = read.ByteSize()
            read.DiscardUnknownFields()
            expected = shaped(read)
        except (DecodeError, OverflowError, ValueError):
            continue
        # Google's library drops an entry of a map that has more than a key and a value.
        if row is not None and read.ByteSize() == size:
            assert comparable(row) == comparable(expected)


def test_a_file_with_everything():
    kind = typed({"valueschema": ORDER, "valuemessage": "Order"}).type
    assert {field.name: str(field.type) for field in kind} == {
        "id": "int64", "lines": "list<item: struct<name: string, count: int64, state: string>>",
        "others": "map<string, struct<n: int32>>", "kind": "string", "card": "string", "cash": "bool", "tip": "double",
        "at": "timestamp[us, tz=UTC]", "took": "duration[us]",
    }  # fmt: skip
    value = b"\x08\x05\x12\x03\x0a\x01x\x1a\x05\x0a\x01k\x12\x00\x20\x02\x30\x01\x42\x02\x08\x01\xa0\x06\x07"
    [row], bad = rows({"valueschema": ORDER, "valuemessage": "shop.Order"}, [value])
    assert bad == []
    assert (row["lines"], row["others"]) == ([{"name": "x", "count": 0, "state": "NEW"}], [("k", {"n": 0})])
    assert (row["kind"], row["card"], row["cash"], row["tip"], str(row["at"])) == (
        "LARGE", None, True, None, "1970-01-01 00:00:01+00:00",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x08", "too early"),
        (b"\x08" + b"\xff" * 10 + b"\1", "more than 64 bits"),
        (b"\x0b\x13\x0c", "wire type"),
        (b"\x0c", "wire type"),
        (b"\x0f", "wire type"),
        (b"\0\1", "number 0"),
        (b"\x12\x05a", "beyond its end"),
        (b"\x2a\x01\xff", "not UTF-8"),
        (b"\x42\x00\x42\x00", "there twice"),
        (b"\x42\x0a\x08" + b"\xff" * 8 + b"\x7f", "years 1 and 9999"),
        (b"\x5b" * 101 + b"\x5c" * 101, "nested too deep"),
    ],
)
def test_why_bytes_are_no_message(value, reason):
    [row], [bad] = rows({"valueschema": ORDER, "valuemessage": "Order"}, [value])
    assert row is None
    assert reason in bad.reason


def test_the_message_can_be_named():
    schema = 'syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; message C { int32 c = 1; } }'
    assert rows({"valueschema": schema}, [b"\x08\x05"])[0] == [{"a": 5}]
    assert rows({"valueschema": schema, "valuemessage": "B"}, [b"\x08\x05"])[0] == [{"b": 5}]
    form = format_of({"keyformat": "protobuf", "keyschema": schema, "keymessage": "C"}, "key", None)
    assert TypedValues(form).type.names == ["c"]
    own = 'syntax = "proto3"; package google.protobuf; message Timestamp { int32 a = 1; }'
    assert typed({"valueschema": own}).type.names == ["a"]
    with pytest.raises(SchemaError, match=r"no message D; it has A, B, B\.C"):
        typed({"valueschema": schema, "valuemessage": "D"})


def test_confluents_serializer_is_read():
    """Also of a message that is not the first of its file, or is within another: its place is after the five bytes."""
    with registry_server() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        kind = descriptor_pb2.UninterpretedOption.NamePart
        serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        message = kind(name_part="x", is_extension=True)
        value = serializer(message, SerializationContext("t", MessageField.VALUE))
        settings = {"schemaregistry": registry.url, "valuemessage": "NamePart"}
        assert rows(settings, [value]) == ([{"name_part": "x", "is_extension": True}], [])
        other = rows({**settings, "valuemessage": "EnumReservedRange"}, [value])
        assert "another message" in other[1][0].reason


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("message", "ends too early"),
        ("message A { int32 a = 1 }", "expected ;"),
        ("message A { int32 a = x; }", "not a file"),
        ("message A { int32 a = 0; }", "has the number 0"),
        ("message A { int32 a = 1; int32 b = 1; }", "have one number"),
        ("message A { repeated group G = 1 { } }", "a group"),
        ("message A { Other a = 1; }", "no message or enum Other"),
        ("message A { A a = 1; }", "refers to itself"),
        ("message A { map<A, int32> a = 1; }", "no keys of the type A"),
        ("message A { google.protobuf.Struct a = 1; }", "refers to itself"),
        ("message A { }", "is empty"),
        ("syntax = 'proto3';", "no message"),
        ("$", "is nothing in it"),
        ("message A { " * 60, "messages within each other"),
    ],
)
def test_a_schema_without_columns(schema, problem):
    with pytest.raises(SchemaError, match=problem):
        typed({"valueschema": schema})


def test_files_of_google_are_parsed_as_its_compiler_does():
    root = Path(next(iter(google.api.__path__))).parents[1]
    compared = 0
    for path in sorted(root.glob("google/**/*.proto")):
        try:
            module = importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts) + "_pb2")
        except ImportError:
            continue
        file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        by_compiler, text = ProtoFile(), path.read_text()
        if "group " in text:
            continue
        assert add_descriptor(base64.b64encode(file.SerializeToString()).decode(), by_compiler)
        parsed = parse_proto(text)
        assert parsed.enums == by_compiler.enums
        assert parsed.messages.keys() == by_compiler.messages.keys()
        for name, message in by_compiler.messages.items():
            fields = parsed.messages[name].fields
            assert [(one.name, one.number, one.repeated, one.oneof) for one in fields] == [
                (one.name, one.number, one.repeated, one.oneof) for one in message.fields
            ]
            compared += len(fields)
    assert compared > 300


# ---- from columns


@FEW
@given(st.data())
def test_what_was_decoded_is_encoded_to_an_equal_message(data):
    file = data.draw(files())
    kind = message_class(file)
    messages = [kind() for _ in range(3)]
    for message in messages:
        fill(data.draw, message)
    decoder = decoder_of(file)
    values = [None, *(message.SerializeToString() for message in messages)]
    columns, _ = decoder.decode(pa.array(values, pa.binary()), 0, None)
    writer = ProtobufValuesWriter(schema_of(file), columns.type)
    first, *others = writer.encode(columns, b"").to_pylist()
    assert (first, [kind.FromString(value) for value in others]) == (None, messages)
    assert writer.encode(columns[2:], b"12345").to_pylist() == [b"12345\0" + value for value in others[1:]]


def test_the_place_of_a_message_is_before_it():
    schema = Schema("protobuf", 'syntax = "proto3"; message A { } message B { message C { int32 c = 1; } }')
    rows = pa.array([{"c": 5}])
    assert ProtobufValuesWriter(schema, rows.type, "C").encode(rows, b"\0\0\0\0\7").to_pylist() == [
        b"\0\0\0\0\7" + b"\4\2\0" + b"\x08\5"
    ]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (pa.array([{"count": -1}]), "field number 2: a number is below 0"),
        (pa.array([{"count": 2**32}]), "too large for its type"),
        (pa.array([{"state": "OLD"}]), "no such name"),
        (pa.array([{"tags": ["a", None]}]), "an item of a list or a map is null"),
        (pa.array([{"count": "x"}]), "do not fit their schema"),
        (pa.array([{"big": -1}]), "field number 5: a number is below 0"),
    ],
)
def test_values_that_are_not_encoded(values, problem):
    text = (
        'syntax = "proto3"; enum E { NEW = 0; } message A { E state = 1; uint32 count = 2; repeated string tags = 4;'
        " uint64 big = 5; A.B b = 6; message B { int32 n = 1; } }"
    )
    with pytest.raises(InvalidRecordError, match=problem):
        ProtobufValuesWriter(Schema("protobuf", text), values.type).encode(values, b"")
    with pytest.raises(IncompatibleSchemaError, match=r"b\.m: the schema has no such field"):
        ProtobufValuesWriter(Schema("protobuf", text), pa.struct([("b", pa.struct([("m", pa.int32())]))]))


def test_values_with_fields_that_the_schema_has_not_are_counted():
    """In the messages within them, too; but not those of a value that is none."""
    newer = """syntax = "proto3"; message A { int32 n = 1; B b = 2; string more = 7; }
        message B { int32 m = 1; bool o = 9; }"""
    older = """syntax = "proto3"; message A { int32 n = 1; B b = 2; } message B { int32 m = 1; }"""
    values = TypedValues(format_of({"valueformat": "protobuf", "valueschema": older}, "value", None))
    rows = [{"n": 1}, {"n": 2, "more": "x"}, {"b": {"m": 1, "o": True}}, {"more": "y"}]
    data = GivenValues(WriteFormat("value", Schema("protobuf", newer), b"")).encode(rows)
    decoded, bad = values.decode(pa.array([*data.to_pylist(), data[1].as_py() + b"\x08"]))
    assert (decoded.null_count, [value.row for value in bad]) == (1, [4])
    assert values.left_out() == {("number 7", "number 9"): 3}
