"""Kafka's clients of Python at a server: what they read of a store. tests/recordings has what else they do."""

import asyncio

import confluent_kafka
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer
from kafka_peer import kafka

from tests.server_tools import PATIENCE

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = [b"value %d " % number * 20 for number in range(200)]


def test_librdkafka_puts_keys_where_others_do_if_it_is_asked_to(server, store, topic):
    """As docs/guides/server.md says."""
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


def by_librdkafka(server, topic):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < len(VALUES):
        found += [message.value() for message in consumer.consume(len(VALUES), 0.2)]
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0)) == (0, len(VALUES))
    consumer.close()
    return found


def by_kafka_python(server, topic):
    at = kafka.TopicPartition(topic, 0)
    with kafka.KafkaConsumer(bootstrap_servers=server.bootstrap) as consumer:
        consumer.assign([at])
        consumer.seek_to_beginning()
        found = [next(consumer).value for _ in VALUES]
        assert consumer.end_offsets([at]) == {at: len(VALUES)}
        assert consumer.offsets_for_times({at: 0})[at].offset == 0
    return found


def by_aiokafka(server, topic):
    async def read():
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=server.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE)).value for _ in VALUES]
        finally:
            await consumer.stop()

    return asyncio.run(read())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("read", [by_librdkafka, by_kafka_python, by_aiokafka])
def test_what_the_engine_compresses_is_read(server, store, topic, read, codec):
    store.append(topic, pa.record_batch({"value": VALUES}), compression_type=codec)
    assert read(server, topic) == VALUES
