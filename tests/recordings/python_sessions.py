"""Sessions of kafka-python and of aiokafka."""

import asyncio
import gc
import threading

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic

from tests.server_tools import PATIENCE
from tests.unit.kafka_peer import kafka
from tests.waiting import wait_until

KAFKA_PYTHON = f"kafka-python {kafka.__version__}"
AIOKAFKA = f"aiokafka {aiokafka.__version__}"
_CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def produce(place, idempotent):
    """Each codec."""
    for codec in _CODECS:
        place.make(str(codec))
        producer = kafka.KafkaProducer(
            bootstrap_servers=place.bootstrap, compression_type=codec, enable_idempotence=idempotent, linger_ms=5
        )
        sent = [
            producer.send(str(codec), b"value %d " % number * 10, key=b"key %d" % number, headers=[("h", b"1")])
            for number in range(100)
        ]
        assert [one.get(PATIENCE).offset for one in sent] == list(range(100))
        producer.close()
    gc.collect()


def _consumer(place, **config):
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=place.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False,
        max_poll_records=20, **config,
    )  # fmt: skip
    consumer.subscribe(["t"])
    return consumer


def resume(place):
    """A group reads a part, commits, and its next member reads the others."""
    place.make("t", 2, 20)
    for _ in range(2):
        consumer = _consumer(place)
        for _ in range(20):
            next(consumer)
        consumer.commit()
        assert consumer.end_offsets(consumer.assignment())
        consumer.close()
    gc.collect()


def patterns(place):
    """A subscription to names that match."""
    for topic in ("t1", "t2", "other"):
        place.make(topic, 1, 5)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=place.bootstrap, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=200
    )
    consumer.subscribe(pattern="^t[0-9]")
    for _ in range(10):
        next(consumer)
    consumer.close()
    gc.collect()


def rebalance(place):
    """A second member comes and leaves."""
    place.make("t", 4, 10)
    ends, shares = [threading.Event(), threading.Event()], {}

    def member(number):
        consumer = _consumer(place, heartbeat_interval_ms=500, session_timeout_ms=6000)
        while not ends[number].is_set():
            consumer.poll(100)
            shares[number] = len(consumer.assignment())
        consumer.close()

    threads = [threading.Thread(target=member, args=(number,)) for number in range(2)]
    threads[0].start()
    wait_until(lambda: shares == {0: 4}, "the partitions are shared")
    threads[1].start()
    wait_until(lambda: shares == {0: 2, 1: 2}, "the partitions are shared")
    ends[1].set()
    threads[1].join()
    wait_until(lambda: shares[0] == 4, "the partitions are shared")
    ends[0].set()
    threads[0].join()
    gc.collect()


def administer(place):
    """Topics, configs, groups, offsets, records."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=place.bootstrap)
    admin.create_topics(
        {"a": {"num_partitions": 2}, "t": {"num_partitions": 2, "configs": {"retention.ms": "9000000"}}}
    )
    place.wait_for("a", 2)
    place.wait_for("t", 2)
    admin.list_topics()
    admin.describe_topics(["a", "t"])
    admin.describe_cluster()
    admin.create_partitions({"a": 3})
    place.wait_for("a", 3)
    admin.describe_configs([kafka.admin.ConfigResource("TOPIC", "t")])
    admin.alter_configs([kafka.admin.ConfigResource("TOPIC", "t", {"max.message.bytes": "70000"})])
    place.wait_for_config("t", "max.message.bytes", "70000")
    admin.describe_configs([kafka.admin.ConfigResource("TOPIC", "t")])
    producer = kafka.KafkaProducer(bootstrap_servers=place.bootstrap)
    for number in range(20):
        producer.send("t", b"value %d" % number, partition=number % 2).get(PATIENCE)
    producer.close()
    consumer = _consumer(place)
    for _ in range(20):
        next(consumer)
    consumer.commit()
    admin.list_groups()
    admin.describe_groups(["g"])
    consumer.close()
    admin.list_group_offsets("g")
    admin.describe_groups(["g", "missing"])
    admin.delete_records({kafka.TopicPartition("t", 0): 5})
    admin.delete_groups(["g"])
    admin.list_groups()
    admin.delete_topics(["a"])
    place.wait_without("a")
    admin.list_topics()
    admin.close()
    gc.collect()


# ---- aiokafka


def aio_produce(place, idempotent):
    """Each codec."""

    async def write(codec):
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=place.bootstrap, compression_type=codec, enable_idempotence=idempotent, linger_ms=5
        )
        await producer.start()
        sent = [await producer.send(str(codec), b"value %d " % number * 10, key=b"k") for number in range(100)]
        assert [(await one).offset for one in sent] == list(range(100))
        await producer.stop()

    for codec in _CODECS:
        place.make(str(codec))
        asyncio.run(write(codec))


def _aio_consumer(place):
    return aiokafka.AIOKafkaConsumer(
        "t", bootstrap_servers=place.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False,
        heartbeat_interval_ms=500, session_timeout_ms=6000,
    )  # fmt: skip


def aio_resume(place):
    """A group reads a part, commits, and its next member reads the others."""
    place.make("t", 2, 20)

    async def read():
        consumer = _aio_consumer(place)
        await consumer.start()
        for _ in range(20):
            await consumer.getone()
        await consumer.commit()
        await consumer.stop()

    for _ in range(2):
        asyncio.run(asyncio.wait_for(read(), PATIENCE))


def aio_rebalance(place):
    """A second member comes and leaves."""
    place.make("t", 4, 10)

    async def members():
        consumers = []
        for shares in ([4], [2, 2]):
            consumers.append(_aio_consumer(place))
            await consumers[-1].start()
            while [len(one.assignment()) for one in consumers] != shares:
                await asyncio.sleep(0.02)
        await consumers[1].stop()
        while len(consumers[0].assignment()) != 4:
            await asyncio.sleep(0.02)
        await consumers[0].stop()

    asyncio.run(asyncio.wait_for(members(), PATIENCE))


def aio_administer(place):
    """Topics, configs, groups, offsets."""

    async def run():
        admin = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic("a", 2, 1), AioNewTopic("t", 2, 1)])
        place.wait_for("a", 2)
        place.wait_for("t", 2)
        await admin.list_topics()
        await admin.describe_topics(["a", "t"])
        await admin.describe_cluster()
        await admin.create_partitions({"a": AioNewPartitions(3)})
        place.wait_for("a", 3)
        resource = aiokafka.admin.config_resource
        await admin.describe_configs(
            [resource.ConfigResource(resource.ConfigResourceType.TOPIC, "t", {"retention.ms": None})]
        )
        consumer = _aio_consumer(place)
        await consumer.start()
        await admin.list_consumer_groups()
        await admin.describe_consumer_groups(["g"])
        await consumer.commit({aiokafka.TopicPartition("t", 0): 0})
        await consumer.stop()
        await admin.list_consumer_group_offsets("g")
        await admin.delete_topics(["a"])
        place.wait_without("a")
        await admin.list_topics()
        await admin.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
