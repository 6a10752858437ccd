"""Keys and values of topics as typed columns, by the schemas of a registry or a folder."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import Row
from spark_tools import fails, read, read_stream, run_to_the_end, write

from pyspark_log.schemas.framing import confluent_prefix
from tests.registry_server import registry_server
from tests.samples import samples

EVERYTHING = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "place", "type": {"type": "record", "name": "P", "fields": [{"name": "x", "type": "double"}]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "digest", "type": {"type": "fixed", "name": "D", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "either", "type": ["long", "string"]},
        {"name": "nothing", "type": "null"},
    ],
}
ORDER = {
    "id": 2**40, "name": "Łódź", "tags": ["a", "b"], "counts": {"x": 1}, "place": {"x": 0.5},
    "at": datetime(2026, 1, 2, 3, 4, 5, 6000, UTC), "local": datetime(2026, 1, 2, 3, 4, 5, 6000),
    "day": date(2026, 2, 3), "price": Decimal("12.25"), "digest": b"\0\xff", "kind": "B", "either": "text",
    "nothing": None,
}  # fmt: skip
SMALL = {"type": "record", "name": "S", "fields": [{"name": "id", "type": "int"}]}
WIDE = {**SMALL, "fields": [*SMALL["fields"], {"name": "more", "type": "string", "default": "none"}]}


def encoded(schema, value, number):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, value)
    return confluent_prefix(number) + data.getvalue()


def append(store, values, keys=None, topic="t"):
    columns = {"value": pa.array(values, pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    store.append(topic, pa.record_batch(columns), partition=0)


@pytest.fixture
def registry():
    with registry_server() as server:
        yield server


@pytest.fixture
def topic(store):
    store.create_topic("t", 1)
    return store


def test_values_and_keys_of_a_registry_are_columns(spark, topic, registry):
    number = registry.register("t-value", EVERYTHING)
    of_keys = registry.register("t-key", '"long"')
    append(topic, [encoded(EVERYTHING, ORDER, number), None], [encoded("long", 7, of_keys), None])
    options = {"valueFormat": "confluent", "keyFormat": "avro", "schemaRegistry": registry.url}
    rows = read(spark, topic, "t", **options).orderBy("offset")
    expected = {**ORDER, "at": ORDER["at"].astimezone().replace(tzinfo=None)}
    expected |= {"place": Row(x=0.5), "either": Row(member0=None, member1="text"), "digest": bytearray(b"\0\xff")}
    first, second = rows.collect()
    assert first.value.asDict() == expected
    assert (first.key, first.offset, second.key, second.value) == (7, 0, None, None)
    assert rows.schema["value"].dataType["price"].dataType.simpleString() == "decimal(9,2)"


def test_the_sample_of_the_page(spark, topic, registry, capsys):
    number = registry.register("orders-value", SMALL)
    topic.create_topic("orders", 1)
    append(topic, [encoded(SMALL, {"id": 12345}, number)], topic="orders")
    (sample,) = (one for one in samples() if one.name == "typed-topics.md: Typed topics")
    code = sample.code.replace("http://registry:8081", registry.url).replace("/data/store", topic.path)
    exec(compile(code, sample.name, "exec"), {"spark": spark})
    assert "12345" in capsys.readouterr().out


@pytest.mark.slow
def test_fields_of_values_can_be_columns_of_a_view(spark, topic, tmp_path):
    (tmp_path / "t-value.avsc").write_text(json.dumps(SMALL))
    append(topic, [encoded(SMALL, {"id": at}, 9) for at in range(5)])
    spark.sql(
        f"create or replace temporary view small using pylog options (path '{topic.path}', subscribe 't',"
        f" valueFormat 'confluent', schemaRegistry '{tmp_path}', flatten 'true')"
    )
    assert [row.id for row in spark.sql("select id from small where id > 2 order by offset").collect()] == [3, 4]
    assert spark.table("small").columns[:4] == ["key", "id", "topic", "partition"]


def test_a_bad_record_is_an_error_with_its_place_or_a_null_with_its_bytes(spark, topic, registry):
    number = registry.register("t-value", SMALL)
    good = encoded(SMALL, {"id": 1}, number)
    append(topic, [good, good + b"x", good])
    options = {"valueFormat": "avro", "schemaRegistry": registry.url, "flatten": "true"}
    with fails(
        r"\[PYLOG_BAD_VALUE\] t-0: the value at offset 1 \(schema id 1\) does not fit its schema: bytes are left"
    ):
        read(spark, topic, "t", **options).collect()
    rows = read(spark, topic, "t", **options, onBadRecord="null").select("id", "value_bytes").collect()
    assert rows == [Row(1, None), Row(None, bytearray(good + b"x")), Row(1, None)]


@pytest.mark.slow
def test_a_query_keeps_its_schema_while_writers_get_new_ones(spark, topic, registry, tmp_path):
    old = registry.register("t-value", SMALL)
    append(topic, [encoded(SMALL, {"id": 1}, old)])
    options = {"valueFormat": "confluent", "schemaRegistry": registry.url}
    seen = []
    stream = read_stream(spark, topic, "t", ("value.*",), **options)
    new = registry.register("t-value", WIDE)  # after Spark has fixed the columns
    append(topic, [encoded(WIDE, {"id": 2, "more": "x"}, new)])
    query = stream.writeStream.foreachBatch(lambda rows, _: seen.extend(rows.collect()))
    run_to_the_end(query, tmp_path / "checkpoint")
    assert seen == [Row(id=1), Row(id=2)]
    assert read(spark, topic, "t", **options).select("value.*").collect() == [Row(1, "none"), Row(2, "x")]


@pytest.mark.slow
def test_bad_records_of_a_query_go_to_a_topic_once_for_each_checkpoint(spark, topic, registry, tmp_path):
    good = encoded(SMALL, {"id": 1}, registry.register("t-value", SMALL))
    append(topic, [good, good + b"x", b"y"])
    options = {"valueFormat": "avro", "schemaRegistry": registry.url, "kafka.group.id": "g"}
    rows = read_stream(spark, topic, "t", ("value.id",), onBadRecord="topic", deadLetterTopic="bad", **options)
    seen = []
    for number in range(2):
        # Each action reads all of the micro-batch.
        query = rows.writeStream.foreachBatch(lambda rows, _: seen.extend(rows.collect() + rows.collect()))
        run_to_the_end(query, tmp_path / f"checkpoint{number}")
    letters = topic.topic("bad").read(headers=True).to_table().to_pylist()
    assert (seen, [row["value"] for row in letters]) == ([Row(id=1)] * 4, [good + b"x", b"y"] * 2)
    headers = {header["key"]: header["value"] for header in letters[0]["headers"]}
    assert (headers["__pylog.errors.offset"], headers["__pylog.errors.schema.id"]) == (b"1", b"1")
    with fails("streaming queries: each action of a batch read would write"):
        read(spark, topic, "t", onBadRecord="topic", deadLetterTopic="bad", **options).collect()


@pytest.mark.slow
def test_options_of_types_that_are_refused(spark, topic, registry, tmp_path):
    for options, problem in [
        ({"flatten": "true"}, "need valueFormat or keyFormat"),
        ({"valueFormat": "avro"}, "needs valueSchema, or schemaRegistry"),
        (
            {"valueFormat": "avro", "valueSchema": '"int"', "onBadRecord": "skip"},
            "onBadRecord must be one of fail, null, topic",
        ),
        ({"valueFormat": "avro", "schemaRegistry": registry.url}, "PYLOG_SCHEMA.*no schema for subject t-value"),
        (
            {"valueFormat": "avro", "schemaRegistry": registry.url, "schemaRegistry.pass": "x"},
            "no setting schemaregistry",
        ),
    ]:
        with fails(problem):
            read(spark, topic, "t", **options)
    clash = json.dumps({"type": "record", "name": "S", "fields": [{"name": "offset", "type": "int"}]})
    with fails("values have a field offset"):
        read(spark, topic, "t", valueFormat="avro", valueSchema=clash, flatten="true")


# ---- writes


@pytest.mark.slow
def test_columns_are_written_as_values_and_keys_of_a_registry(spark, topic, registry):
    registry.register("t-value", EVERYTHING)
    registry.register("t-key", '"long"')
    options = {"valueFormat": "confluent", "keyFormat": "avro", "schemaRegistry": registry.url}
    append(topic, [encoded(EVERYTHING, ORDER, 1), None], [encoded("long", 7, 2), None])
    rows = read(spark, topic, "t", **options).select("key", "value")
    write(rows, topic, topic="u", valueSubject="t-value", keySubject="t-key", **options)
    assert [topic.topic(name).read().to_table().select(["key", "value"]).to_pylist() for name in ("t", "u")] == [
        [{"key": encoded("long", 7, 2), "value": encoded(EVERYTHING, ORDER, 1)}, {"key": None, "value": None}]
    ] * 2


@pytest.mark.slow
def test_columns_become_the_fields_of_values(spark, topic, registry):
    df = spark.range(3).selectExpr("cast(id as string) key", "cast(id as int) id", "'x' more")
    schemas = {"valueFormat": "confluent", "valueSchema": json.dumps(WIDE), "schemaRegistry": registry.url}
    with fails("has no such schema in t-value"):
        write(df, topic, topic="t", flatten="true", **schemas)
    write(df, topic, topic="t", flatten="true", registerSchemas="true", **schemas)
    found = read(spark, topic, "t", valueFormat="confluent", schemaRegistry=registry.url, flatten="true")
    rows = found.selectExpr("cast(key as string) key", "id", "more").orderBy("id").collect()
    assert rows == [Row(str(at), at, "x") for at in range(3)]
    document = {"type": "object", "properties": {"id": {"type": "integer"}, "more": {"type": "string"}}}
    write(df, topic, topic="j", flatten="true", valueFormat="json", valueSchema=json.dumps(document))
    assert sorted(topic.topic("j").read().to_table()["value"].to_pylist())[0] == b'{"id": 0, "more": "x"}'
    proto = {
        "valueFormat": "protobuf",
        "valueSchema": 'syntax = "proto3"; message A { int32 id = 1; string more = 2; }',
    }
    write(df, topic, topic="p", flatten="true", **proto)
    rows = read(spark, topic, "p", flatten="true", **proto).select("id", "more").orderBy("id").collect()
    assert rows == [Row(at, "x") for at in range(3)]


def test_what_does_not_fit_is_refused_before_a_record_is_written(spark, topic, registry):
    registry.register("t-value", SMALL)
    options = {"topic": "t", "valueFormat": "avro", "schemaRegistry": registry.url, "flatten": "true"}
    for columns, problem in [
        (["id", "'x' more"], r"\[PYLOG_INCOMPATIBLE_SCHEMA\].*more: the schema has no such field"),
        (["named_struct('a', id) id"], "PYLOG_INVALID_RECORD"),
        (["if(id = 1, null, cast(id as int)) id"], "id: it is null, which the schema does not allow"),
        (["id + 3000000000 id"], "values do not fit their schema"),
    ]:
        with fails(problem):
            write(spark.range(3).selectExpr(*columns), topic, **options)
    registry.refused.add(json.dumps(WIDE))
    with fails("the registry refuses the schema for t-value"):
        df = spark.range(1).selectExpr("cast(id as int) id", "'x' more")
        write(df, topic, **options, valueSchema=json.dumps(WIDE), registerSchemas="true")
    assert topic.topic("t").read().to_table().num_rows == 0
