"""Spark writes into the replicated topics of a cluster of nodes, as transactions through leaders: exactly once."""

import random
import signal
from dataclasses import replace

import pytest
from kafka_tools import PATIENCE
from mirror_tools import Writer, consumed
from pyspark.errors import PySparkException

from pyspark_log import Store
from pyspark_log.errors import PublishFailedError, PublishNumberError, StagedOutputError
from pyspark_log.replication.publish import publish
from pyspark_log.storage.catalog.store_json import read_cluster
from pyspark_log.storage.publish import StagedWriter, StagingPlan
from tests.store_tools import rows
from tests.waiting import wait_until


def values_at(cluster, topic, level="read_committed"):
    """The values of a topic, as a consumer of the cluster reads them now, sorted."""
    return sorted(row.value for rows, _ in consumed(cluster, topic, level) for row in rows)


def written(cluster, topic, first, count):
    writer = Writer(cluster, enable_idempotence=True)
    for number in range(first, first + count):
        writer.producer.produce(topic, b"%d" % number, key=b"%d" % (number % 7), on_delivery=writer._note)
    writer.flush()


@pytest.mark.long
def test_a_batch_write(spark, nodes):
    cluster, made = nodes
    cluster.create_topic("out", assignment=[[11, 12, 13], [12, 13, 11]], configs={"min.insync.replicas": 2})
    wait_until(lambda: "out" in Store.open(made[11].path).topics(), "the node has the topic")
    frame = spark.range(1000).selectExpr("cast(id as string) value")
    writer = frame.write.format("pylog").mode("append").option("topic", "out")
    for _ in range(2):
        # The second is a repetition, and changes nothing.
        writer.option("publishId", "p").option("publishNumber", 0).save(str(made[11].path))
    wanted = sorted(b"%d" % number for number in range(1000))
    assert values_at(cluster, "out") == wanted
    writer.option("publishId", "q").save(str(made[12].path))
    assert values_at(cluster, "out") == sorted(2 * wanted)
    with pytest.raises(PySparkException, match="topics, groups, ACLs and quotas are changed in the cluster"):
        frame.write.format("pylog").mode("append").option("topic", "missing").save(str(made[11].path))


def test_a_query_while_leaders_are_killed(spark, nodes, tmp_path):
    cluster, made = nodes
    for topic in ("in", "out"):
        replicas = [[11, 12, 13], [12, 13, 11], [13, 11, 12]]
        cluster.create_topic(topic, assignment=replicas, configs={"min.insync.replicas": 2})
    wait_until(lambda: {"in", "out"} <= {*Store.open(made[11].path).topics()}, "the node has the topics")
    path, chance, sent = str(made[11].path), random.Random(3), 0

    def start():
        stream = spark.readStream.format("pylog").option("subscribe", "in").option("startingOffsets", "earliest")
        lines = stream.load(path).selectExpr("key", "value")
        sink = lines.writeStream.format("pylog").option("topic", "out").option("path", path)
        return (
            sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    query = start()
    try:
        for step in range(6):
            written(cluster, "in", sent, 300)
            sent += 300
            killed = chance.choice([11, 12, 13])
            made[killed].process.send_signal(signal.SIGKILL)
            made[killed].process.wait(PATIENCE)
            written(cluster, "in", sent, 300)
            sent += 300
            made[killed].start()
            for partition in range(3):
                for topic in ("in", "out"):
                    cluster.wait_for_isr(topic, partition, {11, 12, 13})
            if step == 3:
                # And the query itself, in the middle of whatever it does.
                query.stop()
                query = start()
            if not query.isActive:
                query = start()  # Its batch could not be published in time: it is repeated.
        wanted = sorted(b"%d" % number for number in range(sent))
        assert values_at(cluster, "in") == wanted

        def is_done():
            nonlocal query
            if not query.isActive:
                query = start()
            return len(values_at(cluster, "out")) >= sent

        wait_until(is_done, "all is copied")
    finally:
        query.stop()
    assert values_at(cluster, "out") == wanted


@pytest.mark.long
def test_a_publish_is_repeated_and_numbers_are_checked(nodes):
    cluster, made = nodes
    cluster.create_topic("out", assignment=[[11, 12, 13], [12, 13, 11]])
    wait_until(lambda: "out" in Store.open(made[11].path).topics(), "the node has the topic")
    with Store.open(made[11].path) as store:
        own = read_cluster(store.path)

        def staged(*values):
            writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["out"]))
            writer.append("out", rows(*values))
            return writer.finish()

        def published(number, *values):
            return publish(store.path, own, "p", number, staged(*values))

        assert published(4, b"a", b"b") is False
        assert published(4, b"a", b"b") is True
        assert published(5, b"c") is False
        for number in (3, 7):
            with pytest.raises(PublishNumberError, match="has published 5 last"):
                published(number, b"d")
        # A bit of a staged value has changed: a new checksum must not hide that.
        [part] = staged(b"e")
        damaged = replace(part, data=part.data.replace(b"e", b"f"))
        assert damaged != part
        with pytest.raises(PublishFailedError, match="nothing was published"):
            publish(store.path, own, "p", 6, [damaged])
        with pytest.raises(StagedOutputError, match="not those that were staged"):
            publish(store.path, own, "p", 6, [replace(part, crcs=bytes(4))])
    assert values_at(cluster, "out") == [b"a", b"b", b"c"]
