"""What a topic's configs say of its keys and values counts where the options of a read or a write say nothing."""

import json

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_log import DefaultSource, Store
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.writing import typed_rows
from tests.registry_server import registry_server

BYTES, INT, STRUCT = "binary", "int", "struct<n:bigint>"
DOCUMENT = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})


@pytest.fixture
def store(place, tmp_path):
    """A topic whose values are Avro's ints by a folder of the store, and whose keys are bytes; and others."""
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "t-value.avsc").write_text('"int"')
    (schemas / "u-value.json").write_text(DOCUMENT)
    store = Store.create(place, {"schema.registry": str(schemas)})
    store.create_topic("t", 1, {"value.format": "avro"})
    store.create_topic("u", 1, {"value.format": "json"})
    store.create_topic("plain", 1)
    store.append("t", pa.record_batch({"value": [b"\x0a"]}))
    return store


def kind(store, topic, **options):
    schema = DefaultSource({"path": store.path, "subscribe": topic, **options}).schema()
    return schema["value"].dataType.simpleString()


@pytest.mark.parametrize(
    ("topic", "options", "expected"),
    [
        ("t", {}, INT),
        ("u", {}, STRUCT),
        ("t", {"valueFormat": "bytes"}, BYTES),
        ("t", {"valueFormat": "json", "valueSchema": DOCUMENT}, STRUCT),
        ("t", {"valueSchema": '"long"'}, "bigint"),
        ("plain", {}, BYTES),
        ("missing", {}, BYTES),
        ("t,u", {}, BYTES),
    ],
)
def test_options_win_over_the_topic(store, topic, options, expected):
    assert kind(store, topic, **options) == expected


def test_rows_are_read_by_the_format_of_the_topic(store):
    source = DefaultSource({"path": store.path, "subscribe": "t"})
    reader = source.reader(source.schema())
    (task,) = reader.partitions()
    assert [value for batch in reader.read(task) for value in batch["value"].to_pylist()] == [5]
    store.create_topic("unknown", 1, {"value.format": "avro", "schema.registry": ""})
    with pytest.raises(ConnectorError, match=r"the topic's value.format, needs valueSchema, or schemaRegistry"):
        kind(store, "unknown")


def test_a_login_is_for_the_registry_that_the_reader_names_alone(store):
    with pytest.raises(ConnectorError, match="needs valueSchema, or schemaRegistry"):
        kind(store, "t", **{"schemaRegistry.user": "anna"})


@pytest.mark.parametrize(
    ("topic", "column", "options", "expected"),
    [
        ("t", {"value": pa.array([5], pa.int32())}, {}, b"\x0a"),
        ("u", {"value": pa.array([{"n": 5}])}, {}, b'{"n": 5}'),
        ("u", {"n": pa.array([5])}, {"flatten": "true"}, b'{"n": 5}'),
    ],
)
def test_columns_are_written_in_the_format_of_the_topic(store, topic, column, options, expected):
    rows = pa.record_batch(column)
    assert typed(store, rows, topic=topic, **options).encoded(rows)["value"].to_pylist() == [expected]


def test_texts_and_bytes_are_written_as_they_are(store):
    assert typed(store, pa.record_batch({"value": ["{}"]}), topic="u") is None
    assert typed(store, pa.record_batch({"value": [b"{}"]}), topic="u") is None


def typed(store, rows, **options):
    """How columns become values in a write; None: they are values."""
    source = DefaultSource({"path": store.path, **options})
    return source.writer(from_arrow_schema(rows.schema), overwrite=False)._plan.typed


def test_a_registry_is_not_asked_with_each_micro_batch(tmp_path, monkeypatch):
    Store.create(tmp_path / "store").create_topic("t", 1)
    with registry_server() as registry:
        registry.register("t-value", '"int"')
        options = {"topic": "t", "valueFormat": "avro", "schemaRegistry": registry.url, "path": str(tmp_path / "store")}
        schema = from_arrow_schema(pa.schema([("value", pa.int32())]))
        for _ in range(3):
            assert DefaultSource(options).streamWriter(schema, overwrite=False)._plan.typed is not None
        assert len(registry.asked) == 1
        monkeypatch.setattr(typed_rows, "_KEPT_SECONDS", -1.0)
        typed_rows._kept.clear()
        for _ in range(2):
            DefaultSource(options).streamWriter(schema, overwrite=False)
        DefaultSource(options).writer(schema, overwrite=False)
        assert len(registry.asked) == 4


def test_a_subject_without_a_schema_gets_that_of_the_columns(tmp_path):
    Store.create(tmp_path / "store").create_topic("t", 1)
    schema = from_arrow_schema(pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())]))
    with registry_server() as registry:
        options = {"topic": "t", "valueFormat": "confluent", "schemaRegistry": registry.url, "flatten": "true"}
        options["path"] = str(tmp_path / "store")
        with pytest.raises(ConnectorError, match="no schema for subject t-value"):
            DefaultSource(options).writer(schema, overwrite=False)
        for _ in range(2):
            source = DefaultSource({**options, "registerSchemas": "true"})
            rows = pa.record_batch({"id": [1], "name": ["a"]})
            (value,) = source.writer(schema, overwrite=False)._plan.typed.encoded(rows)["value"].to_pylist()
            assert value == b"\0\0\0\0\1\2\2\2a"
        assert registry.subjects == {"t-value": [1]}
        # Columns that its schema has not do not change it.
        schema = from_arrow_schema(pa.schema([("more", pa.string())]))
        with pytest.raises(ConnectorError, match="more: the schema has no such field"):
            source.writer(schema, overwrite=False)
