"""The tests' registry answers as a real one: of which SCHEMA_REGISTRY_URL names one with Confluent's API.

Apicurio's, for one: `io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all` of Maven, unpacked, started by `java -cp
"apicurio-registry-app-3.0.9-runner.jar:lib/*" io.quarkus.runner.GeneratedMain`; its URL ends in `/apis/ccompat/v7`.
"""

import json
import os
import secrets

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2

from pyspark_log.errors import SchemaError
from pyspark_log.schemas import Registry, Schema, TypedValues, format_of
from tests.registry_server import registry_server

INT = '{"type": "record", "name": "S", "fields": [{"name": "id", "type": "int"}]}'
MORE = json.dumps({"type": "record", "name": "S", "fields": [
    {"name": "id", "type": "int"}, {"name": "more", "type": "string", "default": "none"}]})  # fmt: skip
PROTO = 'syntax = "proto3"; message A { int32 a = 1; map<string, int64> m = 2; }'
JSON = '{"title": "t", "type": "object", "properties": {"a": {"type": "integer"}}}'


@pytest.fixture(params=["of the tests", "real"])
def url(request):
    if request.param == "real":
        if not os.environ.get("SCHEMA_REGISTRY_URL"):
            pytest.skip("SCHEMA_REGISTRY_URL names no registry")
        yield os.environ["SCHEMA_REGISTRY_URL"]
        return
    with registry_server() as server:
        yield server.url


@pytest.fixture
def topic():
    """A name that a registry which is kept does not know."""
    return f"t{secrets.token_hex(6)}"


def rows(url, topic, values, **more):
    form = format_of({"valueformat": "confluent", "schemaregistry": url, **more}, "value", topic)
    array, bad = TypedValues(form).decode(pa.array(values, pa.binary()))
    return array.to_pylist(), bad


def test_schemas_are_registered_and_found(url, topic):
    registry, subject = Registry((url,)), f"{topic}-value"
    with pytest.raises(SchemaError, match=f"no schema for subject {subject}"):
        registry.latest(subject)
    old, new = (registry.register(subject, Schema("avro", text)) for text in (INT, MORE))
    assert registry.register(subject, Schema("avro", INT)) == registry.number_of(subject, Schema("avro", INT)) == old
    fresh = Registry((url,))
    assert [fresh.latest(subject).id, fresh.by_id(old, subject).id] == [new, old]
    assert [schema.id for schema in fresh.versions(subject)] == [old, new]
    with pytest.raises(SchemaError, match="no such schema"):
        fresh.number_of(subject, Schema("avro", '"string"'))
    with pytest.raises(SchemaError, match="no schema for schema id 999999"):
        fresh.by_id(999_999, subject)
    for kind, text in (("protobuf", PROTO), ("json", JSON)):
        number = registry.register(f"{topic}-{kind}", Schema(kind, text))
        assert (Registry((url,)).latest(f"{topic}-{kind}").id, fresh.by_id(number, "").kind) == (number, kind)


def test_what_confluents_serializers_write_is_read(url, topic):
    part = descriptor_pb2.UninterpretedOption.NamePart
    with SchemaRegistryClient({"url": url}) as client:
        avro = [AvroSerializer(client, text)({"id": 5, "more": "x"}, of(topic)) for text in (INT, MORE)]
        serializer = ProtobufSerializer(part, client, {"use.deprecated.format": False})
        proto = serializer(part(name_part="x", is_extension=True), of(f"{topic}p"))
        document = JSONSerializer(JSON, client)({"a": 5}, of(f"{topic}j"))
    assert rows(url, topic, avro) == ([{"id": 5, "more": "none"}, {"id": 5, "more": "x"}], [])
    assert rows(url, f"{topic}p", [proto], valuemessage="NamePart")[0] == [{"name_part": "x", "is_extension": True}]
    assert rows(url, f"{topic}j", [document]) == ([{"a": 5}], [])


def of(topic):
    return SerializationContext(topic, MessageField.VALUE)
