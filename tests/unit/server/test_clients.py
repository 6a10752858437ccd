"""Kafka's clients of Python at a server: what they write and read, and `Store` reads and writes the same."""

import asyncio
import threading

import confluent_kafka
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_peer import ConsumerRebalanceListener, kafka

from pyspark_log.types import TopicPartition
from tests.server_tools import PATIENCE

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = [b"value %d " % number * 20 for number in range(200)]


def _stored(store, topic, partitions=1):
    return [
        [row["value"] for rows in store.read(topic, number) for row in rows.to_pylist()] for number in range(partitions)
    ]


def _of_python(codec):
    return None if codec == "none" else codec


# ---- writing


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka_writes(server, store, topic, codec, idempotent):
    config = {"bootstrap.servers": server.bootstrap, "compression.type": codec, "enable.idempotence": idempotent}
    producer = confluent_kafka.Producer({**config, "linger.ms": 5})
    for value in VALUES:
        producer.produce(topic, value, key=b"k", headers={"h": b"1"})
    assert producer.flush(PATIENCE) == 0
    assert _stored(store, topic) == [VALUES]


def test_librdkafka_puts_keys_where_others_do_if_it_is_asked_to(server, store, topic):
    """As docs/server.md says."""
    store.add_partitions(topic, 7)
    config = {"bootstrap.servers": server.bootstrap, "partitioner": "murmur2_random"}
    producer = confluent_kafka.Producer(config)
    keys = [b"key %d" % number for number in range(100)]
    for key in keys:
        producer.produce(topic, b"librdkafka", key=key)
    assert producer.flush(PATIENCE) == 0
    store.append(topic, [{"key": key, "value": b"store"} for key in keys])
    places = {value: {} for value in (b"librdkafka", b"store")}
    for partition in range(7):
        for row in (row for rows in store.read(topic, partition) for row in rows.to_pylist()):
            places[row["value"]][row["key"]] = partition
    assert places[b"librdkafka"] == places[b"store"]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_writes(server, store, topic, codec):
    producer = kafka.KafkaProducer(bootstrap_servers=server.bootstrap, compression_type=_of_python(codec))
    sent = [producer.send(topic, value, key=b"k") for value in VALUES]
    assert [one.get(PATIENCE).offset for one in sent] == list(range(len(VALUES)))
    producer.close()
    assert _stored(store, topic) == [VALUES]


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_writes(server, store, topic, codec):
    async def write():
        producer = AIOKafkaProducer(
            bootstrap_servers=server.bootstrap, compression_type=_of_python(codec), enable_idempotence=True
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, value, key=b"k") for value in VALUES]
            return [(await one).offset for one in sent]
        finally:
            await producer.stop()

    assert asyncio.run(write()) == list(range(len(VALUES)))
    assert _stored(store, topic) == [VALUES]


# ---- reading


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads(server, store, topic, codec):
    store.append(topic, pa.record_batch({"value": VALUES}), compression_type=codec)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < len(VALUES):
        found += [message.value() for message in consumer.consume(len(VALUES), 0.2)]
    assert found == VALUES
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0)) == (0, len(VALUES))
    consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads(server, store, topic, codec):
    store.append(topic, pa.record_batch({"value": VALUES}), compression_type=codec)
    consumer = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap)
    at = kafka.TopicPartition(topic, 0)
    consumer.assign([at])
    consumer.seek_to_beginning()
    found = [next(consumer).value for _ in VALUES]
    assert found == VALUES
    assert consumer.end_offsets([at]) == {at: len(VALUES)}
    assert consumer.offsets_for_times({at: 0})[at].offset == 0
    consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads(server, store, topic, codec):
    store.append(topic, pa.record_batch({"value": VALUES}), compression_type=codec)

    async def read():
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=server.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE)).value for _ in VALUES]
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == VALUES


# ---- groups


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_a_group_of_confluent_kafka_shares_the_partitions(server, store, topic, protocol):
    """The third member comes when the others have read; one leaves; all records are read by some member."""
    store.add_partitions(topic, 6)
    rows = pa.record_batch({"value": [b"%d" % number for number in range(600)], "partition": list(range(6)) * 100})
    store.append(topic, rows)
    config = {"bootstrap.servers": server.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    config |= {"group.protocol": protocol}
    found, lock, shares = set(), threading.Lock(), {}

    def member(name, end):
        consumer = confluent_kafka.Consumer(config)
        consumer.subscribe([topic])
        while not end.is_set():
            for message in consumer.consume(100, 0.1):
                with lock:
                    found.add((message.partition(), message.offset()))
            shares[name] = len(consumer.assignment())
        consumer.close()

    ends = [threading.Event() for _ in range(3)]
    threads = [threading.Thread(target=member, args=one) for one in enumerate(ends)]
    for thread in threads[:2]:
        thread.start()
    _wait(lambda: len(found) == 600 and sorted(shares.values()) == [3, 3])
    threads[2].start()
    _wait(lambda: sorted(shares.values()) == [2, 2, 2])
    ends[0].set()
    threads[0].join()
    del shares[0]
    _wait(lambda: sorted(shares.values()) == [3, 3])
    for end in ends:
        end.set()
    for thread in threads[1:]:
        thread.join()
    committed = store.groups[topic].committed()
    assert {at.partition: one.offset for at, one in committed.items()} == dict.fromkeys(range(6), 100)


def test_a_group_of_kafka_python_resumes_where_it_was(server, store, topic):
    store.append(topic, pa.record_batch({"value": VALUES}))

    class Assigned(ConsumerRebalanceListener):
        partitions = ()

        def on_partitions_revoked(self, revoked):
            pass

        def on_partitions_assigned(self, assigned):
            Assigned.partitions = assigned

    def read(count):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=server.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=count,
        )
        consumer.subscribe([topic], listener=Assigned())
        found = [next(consumer).value for _ in range(count)]
        consumer.commit()
        consumer.close()
        return found

    assert read(50) == VALUES[:50]
    assert [(one.topic, one.partition) for one in Assigned.partitions] == [(topic, 0)]
    assert store.groups[topic].committed()[TopicPartition(topic, 0)].offset == 50
    assert read(50) == VALUES[50:100]


def test_a_group_of_aiokafka(server, store, topic):
    store.append(topic, pa.record_batch({"value": VALUES}))

    async def read(count):
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=server.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            found = [(await asyncio.wait_for(consumer.getone(), PATIENCE)).value for _ in range(count)]
            await consumer.commit()
        finally:
            await consumer.stop()
        return found

    assert asyncio.run(read(50)) == VALUES[:50]
    assert asyncio.run(read(50)) == VALUES[50:100]


# ---- administration


def test_confluent_kafkas_administrator(server, store, topic):
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    [made] = admin.create_topics([NewTopic(f"{topic}-made", 2, 1, config={"retention.ms": "1000"})]).values()
    made.result(PATIENCE)
    assert store.describe_topic(f"{topic}-made").configs == {"retention.ms": "1000"}
    resource = confluent_kafka.admin.ConfigResource("topic", f"{topic}-made")
    [configs] = admin.describe_configs([resource]).values()
    assert configs.result(PATIENCE)["retention.ms"].value == "1000"
    store.groups[topic].commit({TopicPartition(f"{topic}-made", 1): 3, TopicPartition(topic, 0): 4})
    [deleted] = admin.delete_topics([f"{topic}-made"]).values()
    deleted.result(PATIENCE)
    assert f"{topic}-made" not in store.topics()
    request = confluent_kafka.ConsumerGroupTopicPartitions(topic)
    [offsets] = admin.list_consumer_group_offsets([request]).values()
    assert [(one.topic, one.offset) for one in offsets.result(PATIENCE).topic_partitions] == [(topic, 4)]
    assert topic in admin.list_topics(timeout=PATIENCE).topics


def _wait(condition):
    """Returns when a condition holds, which it does sooner or later."""
    done, waits = threading.Event(), 0
    while not condition():
        waits += 1
        assert waits < PATIENCE * 20, "it does not come"
        done.wait(0.05)
