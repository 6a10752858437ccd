"""Declarative pipelines: the sample of docs/guides/pipelines.md, its second run, refreshes, kills and refusals."""

import json
import random
import shutil
from importlib.util import find_spec

import pyarrow as pa
import pytest
from java import java_version
from pipelines import Pipeline
from spark_tools import all_values_in

from pyspark_log import Store
from pyspark_log.spark_connector.abilities import HAS_ADMISSION
from tests.samples import make_world
from tests.seeds import new_seed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later"),
    pytest.mark.skipif(find_spec("pyspark.pipelines") is None, reason="PySpark has pipelines since 4.1"),
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("grpc", "yaml")),
        reason="pipelines need more packages: pip install 'pyspark[pipelines]'",
    ),
]
# What a pipeline of a test begins with.
BEGIN = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
records = lambda **options: spark.readStream.format("pylog").options(subscribe="flights", **options).load("/data/store")
"""
SINKS = """
def copy(topic, start, group, **options):
    dp.create_sink(topic, "pylog", {"path": "/data/store", "topic": topic, **options})
    rows = records(startingOffsets=start, **group).select("key", "value")
    dp.append_flow(target=topic, name=f"to_{topic}")(lambda: rows)

copy("plain", "earliest", {})
copy("with_offsets", "group", {"kafka.group.id": "copies"}, publishOffsets="true")
copy("with_id", "earliest", {}, publishId="copies")
"""


def flights(store):
    """The rows of the table, as the engine reads the topic."""
    return sorted(
        (key.decode(), json.loads(value)["dep_delay"], partition, offset)
        for partition in range(store.describe_topic("flights").partitions)
        for batch in store.read("flights", partition)
        for key, value, offset in zip(*(batch[name].to_pylist() for name in ("key", "value", "offset")), strict=True)
    )


def add(store, count):
    """Appends flights, some of them late or on time."""
    values = [json.dumps({"dep_delay": (number * 30) % 120}) for number in range(count)]
    store.append("flights", pa.record_batch({"key": [f"N{number % 7}" for number in range(count)], "value": values}))


def publishers(store):
    """The id and the last number of each flow that has written to a topic, by its name."""
    last = {}
    for decision in Store.open(store.path).publishes.publishers():
        if flow := decision.about.query:
            last.setdefault(flow, []).append((decision.publisher, decision.number))
    return last


def check_tables(spark, pipeline, store):
    """The table has each record once, and the view counts all of them."""
    rows = flights(store)
    assert pipeline.rows(spark, "flights") == rows
    planes = [plane for plane, *_ in rows]
    assert pipeline.rows(spark, "planes") == sorted((plane, planes.count(plane)) for plane in set(planes))


def check_notices(store):
    """The topic of both flows has each of their rows once."""
    delays = sorted(delay for _, delay, _, _ in flights(store) if delay > 60 or delay == 0)
    assert sorted(json.loads(value)["dep_delay"] for value in all_values_in(store, "notices")) == delays


def test_the_sample(spark, tmp_path):
    store = make_world(tmp_path)
    pipeline = Pipeline(tmp_path / "data")
    pipeline.run()
    check_tables(spark, pipeline, store)
    check_notices(store)
    ids = {
        flow: f"spark-{json.loads((pipeline.checkpoints(flow)[0] / 'metadata').read_text())['id']}"
        for flow in ("late", "on_time")
    }
    assert publishers(store) == {flow: [(publisher, 0)] for flow, publisher in ids.items()}

    # A kill between the publish and Spark's commit leaves this: the micro-batch is run again.
    for flow in ids:
        (pipeline.checkpoints(flow)[0] / "commits/0").unlink()
    add(store, 60)
    pipeline.run()
    check_tables(spark, pipeline, store)
    check_notices(store)
    assert publishers(store) == {flow: [(publisher, 1)] for flow, publisher in ids.items()}


@pytest.mark.long
def test_a_full_refresh_of_a_table(spark, tmp_path):
    """The sink and the view stay as they are. With a catalog in memory a second run finds the folder of a table."""
    store = make_world(tmp_path)
    pipeline = Pipeline(tmp_path / "data")
    pipeline.run()
    add(store, 60)
    counts, notices = pipeline.rows(spark, "planes"), all_values_in(store, "notices")
    pipeline.run("--full-refresh", "flights")
    assert pipeline.rows(spark, "flights") == flights(store)
    assert pipeline.rows(spark, "planes") == counts
    assert all_values_in(store, "notices") == notices

    (warehouse,) = (line for line in pipeline.settings.read_text().splitlines() if "warehouse.dir" in line)
    pipeline.settings.write_text(warehouse)
    assert "LOCATION_ALREADY_EXISTS" in pipeline.run(fails=True)


@pytest.mark.long
def test_a_full_refresh_of_sinks(tmp_path):
    """Their flows begin again, in new checkpoints: what they publish then is up to the options of the sink."""
    store = make_world(tmp_path)
    definitions = {"transformations/flights.py": BEGIN + SINKS}
    # Where flows begin at the same moment, Spark fails now and then ("Task not serializable"), and tries again.
    settings = ["spark.sql.pipelines.execution.maxConcurrentFlows 1", "spark.sql.pipelines.maxFlowRetryAttempts 0"]
    pipeline = Pipeline(tmp_path / "data", settings, **definitions)
    pipeline.run()
    values = all_values_in(store, "flights")
    assert [all_values_in(store, topic) for topic in ("plain", "with_offsets", "with_id")] == [values] * 3

    said = pipeline.run("--full-refresh-all", fails=True)
    assert "[PYLOG_PUBLISHER_FENCED] not published: publisher 'copies' belongs to the checkpoint of query" in said
    assert "the query to_plain writes to plain for the first time, which another query of the same name has" in said
    assert all_values_in(store, "plain") == sorted(values * 2)
    add(store, 12)
    assert "[PYLOG_PUBLISHER_FENCED]" in pipeline.run(fails=True)

    shutil.rmtree(pipeline.checkpoints("to_with_id")[1])
    pipeline.run()
    values = all_values_in(store, "flights")
    assert [all_values_in(store, topic) for topic in ("with_offsets", "with_id")] == [values] * 2


@pytest.mark.long
@pytest.mark.skipif(not HAS_ADMISSION, reason="a run has one micro-batch before 4.2")
def test_kills(spark, tmp_path):
    """While the flows make micro-batches the processes are killed, and once more all is run to the end."""
    seed = new_seed()
    print("PYLOG_TEST_SEED", seed)
    chance, store = random.Random(seed), make_world(tmp_path)
    pipeline = Pipeline(tmp_path / "data")
    definitions = pipeline.folder / "transformations/flights.py"
    few = definitions.read_text().replace('"earliest"', '"earliest", maxOffsetsPerTrigger="40"')
    definitions.write_text(few)
    for _ in range(3):
        pipeline.kill_after(chance.randrange(1, 6))
    add(store, 60)
    pipeline.run()
    check_tables(spark, pipeline, store)
    check_notices(store)
    assert {flow: len(ids) for flow, ids in publishers(store).items()} == {"late": 1, "on_time": 1}


FLOW = "\n@dp.append_flow(target='out')\ndef {}():\n    return {}\n"
SINK = "\ndp.create_sink('out', 'pylog', {'path': '/data/store', 'topic': 'out'})\n"
BATCH = """
@dp.table
def copy():
    return spark.read.format("pylog").option("subscribe", "flights").load("/data/store")
"""
CHANGES = """
@dp.temporary_view
def changes():
    return records().selectExpr("string(key) AS plane", "offset")

dp.create_streaming_table("planes")
dp.create_auto_cdc_flow(target="planes", source="changes", keys=["plane"], sequence_by="offset")
"""
REFUSALS = {
    "UNABLE_TO_INFER_PIPELINE_TABLE_SCHEMA": BEGIN
    + SINK
    + FLOW.format("bytes", "records().select('value')")
    + FLOW.format("strings", "records().selectExpr('string(value) value')"),
    "INVALID_FLOW_QUERY_TYPE": BEGIN + BATCH,
    "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE": BEGIN + CHANGES,
}


@pytest.mark.long
@pytest.mark.parametrize(("reason", "definitions"), REFUSALS.items(), ids=REFUSALS)
def test_what_spark_refuses(tmp_path, reason, definitions):
    if "auto_cdc" in definitions and not HAS_ADMISSION:
        pytest.skip("PySpark has it since 4.2")
    make_world(tmp_path)
    said = Pipeline(tmp_path / "data", **{"transformations/flights.py": definitions}).run(fails=True)
    # What 4.1 and 4.2 say of it.
    before = {"UNABLE_TO_INFER_PIPELINE_TABLE_SCHEMA": "CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE"}
    assert f"[{reason}" in said or f"[{before.get(reason)}]" in said
