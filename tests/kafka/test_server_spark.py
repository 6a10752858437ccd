"""Spark's own Kafka source and sink at `pylog serve`, and ours on the folder, while both write to the same topic."""

import shutil

import pytest
from chispa import assert_df_equality
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import functions as f

from pyspark_log import Store
from pyspark_log.cli.main import main
from tests.samples import make_world, samples
from tests.server_tools import served
from tests.store_tools import all_values

pytestmark = pytest.mark.usefixtures("kafka")

_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
_PARTITIONS = 3


@pytest.fixture
def server(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", _PARTITIONS)
    with served(tmp_path / "store", tmp_path) as running:
        yield running


def _rows(spark, start, count, writer):
    return spark.range(start, start + count).select(
        f.col("id").cast("string").cast("binary").alias("key"),
        f.concat(f.lit(f"{writer} "), f.col("id").cast("string")).cast("binary").alias("value"),
        f.array(f.struct(f.lit("writer").alias("key"), f.lit(writer).cast("binary").alias("value"))).alias("headers"),
    )


def _kafkas(server, reader_or_writer, **options):
    return reader_or_writer.format("kafka").options(**{"kafka.bootstrap.servers": server.bootstrap, **options})


def _ours(server, reader_or_writer, **options):
    return reader_or_writer.format("pylog").options(path=str(server.path), **options)


def _both(spark, server, **options):
    options = {"subscribe": "t", "includeHeaders": "true", **options}
    return [side(server, spark.read, **options).load().select(_COLUMNS) for side in (_kafkas, _ours)]


def test_both_write_and_both_read_the_same(spark, server):
    for turn in range(3):
        for number, (side, name) in enumerate(((_kafkas, "kafka"), (_ours, "pylog"))):
            rows = _rows(spark, 1000 * (2 * turn + number), 500, name)
            side(server, rows.write, topic="t", includeHeaders="true").mode("append").save()
    through_server, from_files = _both(spark, server)
    assert through_server.count() == 3000
    assert_df_equality(through_server, from_files, ignore_row_order=True, ignore_nullable=True)
    # A range of offsets, too.
    ends = '{"t": {"0": 100, "1": 50, "2": 70}}'
    through_server, from_files = _both(
        spark, server, startingOffsets='{"t": {"0": 10, "1": -2, "2": 7}}', endingOffsets=ends
    )
    assert through_server.count() == 90 + 50 + 63
    assert_df_equality(through_server, from_files, ignore_row_order=True, ignore_nullable=True)


@pytest.mark.long
def test_a_transaction_of_a_client_that_is_open(spark, server):
    """What docs/guides/server.md says of it: readers of committed records wait for its end, and a publish does not."""
    settings = {"transactional.id": "t", "transaction.timeout.ms": 600_000, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": server.bootstrap, **settings})
    producer.init_transactions(60)
    values = {}

    def values_of(level):
        rows = _ours(server, spark.read, subscribe="t", **{"kafka.isolation.level": level}).load().collect()
        return sorted(row.value for row in rows if row.partition == 0)

    for ends, publish in ((producer.abort_transaction, b"published 1"), (producer.commit_transaction, b"published 2")):
        before = values_of("read_committed")
        producer.begin_transaction()
        producer.produce("t", value=b"from %s" % publish, partition=0)
        producer.flush(60)
        rows = spark.createDataFrame([(publish, 0)], "value binary, partition int")
        _ours(server, rows.write, topic="t").mode("append").save()
        assert {b"from %s" % publish, publish} <= set(values_of("read_uncommitted"))
        assert values_of("read_committed") == before
        ends(60)
        values[ends.__name__] = values_of("read_committed")
    assert values == {
        "abort_transaction": [b"published 1"],
        "commit_transaction": [b"from published 2", b"published 1", b"published 2"],
    }
    through_server, from_files = _both(spark, server, **{"kafka.isolation.level": "read_committed"})
    assert_df_equality(through_server, from_files, ignore_row_order=True, ignore_nullable=True)


@pytest.mark.long
def test_queries_of_both_see_what_both_write(spark, server, tmp_path):
    """Each query gets all rows once, by which of both they were written, and how."""
    queries = {}
    for name, side in (("kafka", _kafkas), ("pylog", _ours)):
        stream = side(server, spark.readStream, subscribe="t", startingOffsets="earliest").load()
        queries[name] = (
            stream.select("partition", "offset", "value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / name / "checkpoint"))
            .option("path", str(tmp_path / name / "rows"))
            .trigger(processingTime="0 seconds")
            .start()
        )
    try:
        for turn in range(3):
            _kafkas(server, _rows(spark, 2000 * turn, 300, "kafka").write, topic="t").mode("append").save()
            _ours(server, _rows(spark, 2000 * turn + 1000, 300, "pylog").write, topic="t").mode("append").save()
        for query in queries.values():
            query.processAllAvailable()
    finally:
        for query in queries.values():
            query.stop()
    found = [spark.read.parquet(str(tmp_path / name / "rows")) for name in queries]
    assert found[0].count() == 1800
    assert_df_equality(*found, ignore_row_order=True, ignore_nullable=True)


def test_a_query_of_kafkas_source_into_our_sink_and_back(spark, server, tmp_path):
    """The topic is read through the server, published as files, and read through the server again."""
    with Store.open(server.path) as store:
        store.create_topic("copy", _PARTITIONS)
    _kafkas(server, _rows(spark, 0, 500, "kafka").write, topic="t").mode("append").save()
    query = (
        _ours(
            server,
            _kafkas(server, spark.readStream, subscribe="t", startingOffsets="earliest")
            .load()
            .select("key", "value", "partition")
            .writeStream,
            topic="copy",
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    first, second = (
        _kafkas(server, spark.read, subscribe=topic).load().select("key", "value", "partition")
        for topic in ("t", "copy")
    )
    assert first.count() == 500
    assert_df_equality(first, second, ignore_row_order=True)


@pytest.mark.slow
def test_the_sample_of_older_sparks_writes_each_record_once(spark, tmp_path):
    """That of docs/reference/versions.md, also after its checkpoint was lost, as then it writes all of them again."""
    store = make_world(tmp_path)
    [create, sample] = [one for one in samples() if one.name.startswith("versions.md: Spark 3.5")]
    for line in create.code_in(tmp_path).splitlines():
        assert CliRunner().invoke(main, line.split()[1:]).exit_code == 0
    with served(store.path, tmp_path) as server:
        for _ in range(2):
            names = {"spark": spark}
            exec(sample.code_in(tmp_path).replace("127.0.0.1:9092", server.bootstrap), names)
            names["query"].awaitTermination()
            shutil.rmtree(tmp_path / "data/copies")
    assert sorted(all_values(store, "copies")) == sorted(all_values(store, "flights"))
    assert sum(store.topic("copies").latest_offsets().values()) > len(all_values(store, "flights"))
