"""Framed values become columns; those of newer writers lose fields, which are counted; what is no value is found."""

import json

import pyarrow as pa
import pytest
from avro_tools import encoded
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pyspark_log.errors import InvalidConfigError, RegistryError, SchemaError
from pyspark_log.schemas import BadValue, Registry, TypedValues, format_of
from pyspark_log.schemas.avro.decoder import fingerprint_of
from pyspark_log.schemas.framing import confluent_prefix, single_object_prefix
from pyspark_log.schemas.schema import Schema
from tests.registry_server import registry_server


def record(*fields):
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


ID, NAME = {"name": "id", "type": "int"}, {"name": "name", "type": "string"}
CITY = {"name": "city", "type": ["null", "string"], "default": None}
OLD, NEW = record(ID), record(ID, CITY, NAME)
JSON = json.dumps(
    {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date"}}}
)


@pytest.fixture
def registry():
    with registry_server() as server:
        yield server


def decoded(settings, values, topic="t"):
    form = format_of(settings, "value", topic)
    array, bad = TypedValues(form).decode(pa.array(values, pa.binary()))
    return array.to_pylist(), bad


def body(schema, **row):
    return encoded(json.loads(schema), row)


def test_confluents_serializer_is_read(registry):
    client = SchemaRegistryClient({"url": registry.url})
    serializer = AvroSerializer(client, NEW)
    row = {"id": 5, "city": "Łódź", "name": "x"}
    value = serializer(row, SerializationContext("t", MessageField.VALUE))
    assert decoded({"valueformat": "confluent", "schemaregistry": registry.url}, [value, None]) == ([row, None], [])


def test_each_value_is_read_by_its_writers_schema_into_the_readers(registry):
    new, middle = registry.register("t-value", NEW), registry.register("t-value", record(ID, CITY))
    old = registry.register("t-value", OLD)
    form = format_of(
        {"valueformat": "avro", "schemaregistry": registry.url, "valueschema": record(ID, CITY)}, "value", "t"
    )
    values = TypedValues(form)
    rows = [
        confluent_prefix(old) + body(OLD, id=1), confluent_prefix(new) + body(NEW, id=2, city="x", name="y"), None,
        confluent_prefix(middle) + body(record(ID, CITY), id=3, city=None),
    ] * 2  # fmt: skip
    array, bad = values.decode(pa.array(rows, pa.binary()))
    expected = [{"id": 1, "city": None}, {"id": 2, "city": "x"}, None, {"id": 3, "city": None}] * 2
    assert (array.to_pylist(), bad) == (expected, [])
    assert values.left_out() == {("name",): 2}


def test_what_is_no_value_is_found_with_the_number_of_its_schema(registry):
    number, unfit = registry.register("t-value", OLD), registry.register("u", record(NAME))
    good = confluent_prefix(number) + body(OLD, id=1)
    values = [good, b"\0\0", b"", b"\1\0\0\0\1\2", good + b"\0", confluent_prefix(9) + b"\2", good]
    values.append(confluent_prefix(unfit) + b"\0")
    settings = {"valueformat": "avro", "schemaregistry": registry.url, "valueschema": OLD}
    rows, bad = decoded(settings, values)
    assert rows == [{"id": 1}, None, None, None, None, None, {"id": 1}, None]
    assert [(one.row, one.schema_id) for one in bad] == [(1, None), (2, None), (3, 1), (4, number), (5, 9), (7, unfit)]
    for one, reason in zip(
        bad, ["2 bytes", "nothing", "begins with 01 00", "left", "id 9", "no such field"], strict=True
    ):
        assert reason in one.reason


def test_no_answer_is_no_bad_value(registry):
    number = registry.register("t-value", OLD)
    form = format_of({"valueformat": "avro", "schemaregistry": registry.url, "valueschema": OLD}, "value", "t")
    registry.login = "other:login"
    with pytest.raises(RegistryError, match="401"):
        TypedValues(form).decode(pa.array([confluent_prefix(number) + b"\2"], pa.binary()))


def test_single_objects(registry, tmp_path):
    (tmp_path / "t-value.avsc").write_text(OLD)
    registry.register("t-value", NEW)
    registry.register("t-value", OLD)
    value = single_object_prefix(fingerprint_of(Schema("avro", OLD))) + body(OLD, id=3)
    newer = single_object_prefix(fingerprint_of(Schema("avro", NEW))) + body(NEW, id=4, city="x", name="y")
    settings = {"valueformat": "avro", "valueframing": "single-object"}
    rows, [bad] = decoded({**settings, "schemaregistry": str(tmp_path)}, [value, newer])
    assert rows == [{"id": 3}, None]
    assert (bad.row, "has the fingerprint" in bad.reason) == (1, True)
    assert decoded({**settings, "schemaregistry": registry.url}, [value, newer]) == ([{"id": 3}, {"id": 4}], [])


def test_values_without_a_frame():
    assert decoded({"valueformat": "avro", "valueschema": OLD}, [body(OLD, id=3), b"\2\2"]) == (
        [{"id": 3}, None],
        [BadValue(1, "bytes are left after it", None)],
    )


def test_json(registry):
    number = registry.register("t-value", JSON, "JSON")
    texts = [
        b'{"id": 1, "more": [1]}',
        b'{"at": "2026-01-02"}',
        None,
        b"{",
        b'{"id": "x"}',
        b'{"id": 1} {"id": 2}',
        b"{}",
    ]
    rows, bad = decoded({"valueformat": "json", "valueschema": JSON}, texts)
    assert [row and row["id"] for row in rows] == [1, None, None, None, None, None, None]
    assert (str(rows[1]["at"]), rows[6]) == ("2026-01-02", {"id": None, "at": None})
    assert [one.row for one in bad] == [3, 4, 5]
    framed = [one and confluent_prefix(number) + one for one in texts]
    found, problems = decoded({"valueformat": "confluent", "schemaregistry": registry.url}, [*framed, b'{"id": 1}'])
    assert found == [*rows, None]
    assert [(one.row, one.schema_id) for one in problems][:3] == [(3, number), (4, number), (5, number)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"type": ["null", "string"]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "int64"),
        ({"$ref": "#/definitions/a~1b"}, "list<item: double>"),
        ({"enum": ["A", "B"]}, "string"),
        ({"properties": {"x": {"type": "boolean"}}}, "struct<x: bool>"),
        ({"type": "string", "format": "date-time"}, "timestamp[us, tz=UTC]"),
    ],
)
def test_columns_of_a_json_schema(document, expected):
    definitions = {"a/b": {"type": "array", "items": {"type": "number"}}}
    schema = json.dumps({"type": "object", "properties": {"it": document}, "definitions": definitions})
    assert (
        str(TypedValues(format_of({"valueformat": "json", "valueschema": schema}, "value", None)).type.field("it").type)
        == expected
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"type": "object", "properties": {"it": {"$ref": "#"}}}, "no column type fits"),
        ({"type": "object", "properties": {"it": {"$ref": "#/none"}}}, "names no part"),
        ({"type": "object", "properties": {"it": {"$ref": "http://x"}}}, "names no part"),
        ({"type": "object", "properties": {"it": {"type": "object"}}}, "no column type fits 'it'"),
        ({"type": "object", "properties": {"it": {"type": ["integer", "string"]}}}, "no column type fits 'it'"),
        ({"type": "string"}, "not that of an object"),
        ([], "no column type fits"),
    ],
)
def test_a_json_schema_without_columns(document, problem):
    with pytest.raises(SchemaError, match=problem):
        TypedValues(format_of({"valueformat": "json", "valueschema": json.dumps(document)}, "value", None))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"valueformat": "xml"}, "must be one of bytes, avro"),
        ({"valueformat": "avro"}, "needs valueSchema, or schemaRegistry"),
        ({"valueformat": "confluent", "valueframing": "none", "valueschema": "x"}, "has Confluent's five bytes"),
        ({"valueformat": "json", "valueframing": "single-object", "valueschema": "x"}, "is Avro's"),
        ({"valueformat": "json", "valueframing": "other", "valueschema": "x"}, "must be one of none"),
        ({"valueformat": "json", "schemaregistry": "/tmp"}, "several topics needs valueSubject"),
    ],
)
def test_settings_that_are_refused(settings, problem):
    with pytest.raises(InvalidConfigError, match=problem):
        format_of(settings, "value", None)


def test_a_schema_of_another_kind_than_asked_for(registry):
    registry.register("t-key", '"long"')
    with pytest.raises(SchemaError, match="keyFormat is json, but the schema of t-key is avro"):
        format_of({"keyformat": "json", "schemaregistry": registry.url}, "key", "t")
    form = format_of({"keyformat": "confluent", "schemaregistry": registry.url}, "key", "t")
    assert (form.reader.text, form.source, format_of({}, "key", "t")) == ('"long"', Registry((registry.url,)), None)


def test_settings_of_keys():
    settings = {"keyformat": "avro", "keyschema": '"long"', "keysubject": "s", "keyframing": "single-object"}
    form = format_of(settings, "key", None)
    assert (form.part, form.subject, form.framing, form.reader) == (
        "key",
        "s",
        "single-object",
        Schema("avro", '"long"'),
    )


def test_a_subject_can_be_named(registry):
    registry.register("orders", OLD)
    settings = {"valueformat": "confluent", "schemaregistry": registry.url, "valuesubject": "orders"}
    assert format_of(settings, "value", None).reader.text == OLD
