"""Sessions of confluent-kafka."""

import time

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.server_tools import PATIENCE
from tests.waiting import wait_until

VERSION = f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(place, idempotent):
    """Each codec, and each kind of acknowledgement."""
    for codec in _CODECS:
        place.make(codec)
        _write(place, codec, 200, {"compression.type": codec, "enable.idempotence": idempotent})
    if not idempotent:
        for acks in (0, 1):
            place.make(f"acks-{acks}")
            _write(place, f"acks-{acks}", 20, {"acks": acks})
    with_partitions = "partitions"
    place.make(with_partitions, 3)
    _write(place, with_partitions, 100, {"enable.idempotence": idempotent})


def _write(place, topic, count, config):
    producer = Producer({"bootstrap.servers": place.bootstrap, "linger.ms": 5, **config})
    for number in range(count):
        producer.produce(topic, f"value {number} " * 10, f"key {number}", headers={"header": str(number)})
    assert producer.flush(PATIENCE) == 0
    producer.close()


def _consumer(place, **config):
    return Consumer({
        "bootstrap.servers": place.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
        "enable.auto.commit": False, **{key.replace("_", "."): value for key, value in config.items()},
    })  # fmt: skip


def _read(consumer, count):
    """Reads that many records."""
    end = time.monotonic() + PATIENCE
    while count:
        assert time.monotonic() < end
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            count -= 1


def resume(place, *, looks=True, **config):
    """A group reads a part, commits, looks that up or not, and its next member reads the others."""
    place.make("t", 2, 20)
    for _ in range(2):
        consumer = _consumer(place, **config)
        consumer.subscribe(["t"])
        _read(consumer, 20)
        consumer.commit(asynchronous=False)
        if looks:
            assert sum(one.offset for one in consumer.committed(_parts("t", 2), PATIENCE) if one.offset > 0) > 0
        consumer.close()


def rebalance(place, **config):
    """A second member comes and leaves."""
    place.make("t", 4, 10)
    first = _consumer(place, **config)
    first.subscribe(["t"])
    _poll_until([first], [4])
    second = _consumer(place, **config)
    second.subscribe(["t"])
    _poll_until([first, second], [2, 2])
    second.close()
    _poll_until([first], [4])
    first.close()


def _poll_until(consumers, shares):

    def are_shared():
        for consumer in consumers:
            consumer.poll(0.1)
        return [len(one.assignment()) for one in consumers] == shares

    wait_until(are_shared, f"the partitions are shared as {shares}")


def seek(place):
    """Without a group: offsets by time, watermarks, an offset that is beyond the end."""
    place.make("t", 2, 20)
    consumer = _consumer(place)
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), PATIENCE) == (0, 20)
    [found] = consumer.offsets_for_times([TopicPartition("t", 1, 1)], PATIENCE)
    assert found.offset == 0
    consumer.assign([TopicPartition("t", 0, 7), TopicPartition("t", 1, 99)])
    _read(consumer, 13 + 20)
    consumer.close()


def administer(place):
    """Topics, their partitions, configs, and records."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap})

    def done(futures):
        return {key: _outcome(future) for key, future in futures.items()}

    topics = [NewTopic("a", 1), NewTopic("b", 3, 1, config={"retention.ms": "1000000", "cleanup.policy": "compact"})]
    done(admin.create_topics(topics))
    place.wait_for("a")
    place.wait_for("b", 3)
    assert done(admin.create_topics([NewTopic("a", 1), NewTopic("not a name", 1)]))["a"] is not None
    done(admin.create_topics([NewTopic("x", 2)], validate_only=True))
    done(admin.create_partitions([NewPartitions("a", 2), NewPartitions("b", 1)]))
    place.wait_for("a", 2)
    admin.list_topics(timeout=PATIENCE)
    admin.list_topics("b", timeout=PATIENCE)
    done({"": admin.describe_cluster(include_authorized_operations=True)})
    done(admin.describe_topics(confluent_kafka.TopicCollection(["a", "b", "missing"])))
    resources = [ConfigResource("topic", "a"), ConfigResource("topic", "missing")]
    done(admin.describe_configs(resources))
    change = ConfigEntry("max.message.bytes", "50000", incremental_operation=AlterConfigOpType.SET)
    append = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.APPEND)
    wrong = ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource("topic", "a", incremental_configs=[change])]))
    place.wait_for_config("a", "max.message.bytes", "50000")
    done(admin.incremental_alter_configs([ConfigResource("topic", "b", incremental_configs=[append])]))
    place.wait_for_config("b", "cleanup.policy", "compact,delete")
    done(admin.describe_configs([ConfigResource("topic", "b")]))
    done(admin.incremental_alter_configs([ConfigResource("topic", "a", incremental_configs=[wrong])]))
    done(admin.alter_configs([ConfigResource("topic", "b", set_config={"segment.bytes": "2000000"})]))
    place.wait_for_config("b", "segment.bytes", "2000000")
    done(admin.describe_configs([ConfigResource("topic", "b")]))
    _write(place, "a", 30, {"linger.ms": 100})
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(1)):
        done(admin.list_offsets({TopicPartition("a", 0): spec}))
    done(admin.delete_records([TopicPartition("a", 0, 5), TopicPartition("a", 1, -1)]))
    done(admin.delete_records([TopicPartition("a", 0, 1000)]))
    done(admin.list_offsets({TopicPartition("a", 0): OffsetSpec.earliest()}))
    done(admin.delete_topics(["a", "missing"]))
    place.wait_without("a")
    admin.list_topics(timeout=PATIENCE)


def administer_groups(place):
    """Groups, with a member and without; their offsets."""
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    place.make("t", 2, 20)
    consumer = _consumer(place, client_id="reader")
    consumer.subscribe(["t"])
    _read(consumer, 40)
    consumer.commit(asynchronous=False)
    asks = confluent_kafka.ConsumerGroupTopicPartitions
    for step in ("with a member", "without"):
        _outcome(admin.list_consumer_groups())
        _outcomes(admin.describe_consumer_groups(["g", "missing"], include_authorized_operations=True))
        _outcomes(admin.list_consumer_group_offsets([asks("g")]))
        _outcomes(admin.list_consumer_group_offsets([asks("g", _parts("t", 1))]))
        _outcomes(admin.alter_consumer_group_offsets([asks("g", [TopicPartition("t", 0, 7)])]))
        if step == "with a member":
            _outcomes(admin.delete_consumer_groups(["g"]))
            consumer.close()
    _outcomes(admin.delete_consumer_groups(["g", "missing"]))
    _outcome(admin.list_consumer_groups())


def _parts(topic, count):
    return [TopicPartition(topic, number) for number in range(count)]


def _outcomes(futures):
    return {key: _outcome(future) for key, future in futures.items()}


def _outcome(future):
    """What a future gives; an error of the broker's is one, too."""
    try:
        return future.result(PATIENCE)
    except confluent_kafka.KafkaException as error:
        return error


def patterns(place):
    """A subscription to names that match; a topic that comes later is read, too."""
    for topic in ("t1", "t2", "other"):
        place.make(topic, 1, 5)
    consumer = _consumer(place, topic_metadata_refresh_interval_ms=500)
    consumer.subscribe(["^t[0-9]"])
    _read(consumer, 10)
    place.make("t3", 1, 5)
    _read(consumer, 5)
    consumer.commit(asynchronous=False)
    consumer.close()


def mistakes(place):
    """What a broker refuses."""
    place.make("t", 2, 5)
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    topics = [NewTopic("three", 1, 3), NewTopic("zero", 0, 1), NewTopic("..", 1, 1), NewTopic("-", 1, 0)]
    topics += [NewTopic("wrong", 1, 1, config={"retention.ms": "x"}), NewTopic("odd", 1, 1, config={"nonsense": "1"})]
    for topic in topics:
        assert _outcomes(admin.create_topics([topic]))
    _outcomes(admin.create_partitions([NewPartitions("missing", 4)]))
    _outcomes(admin.create_partitions([NewPartitions("t", 4, replica_assignment=[[7], [8]])]))
    _outcomes(admin.delete_records([TopicPartition("t", 9, 0)]))
    for change in (
        ConfigEntry("nonsense", "1", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.APPEND),
    ):
        _outcomes(admin.incremental_alter_configs([ConfigResource("topic", "t", incremental_configs=[change])]))
    missing = ConfigResource("topic", "missing", incremental_configs=[change])
    _outcomes(admin.incremental_alter_configs([missing]))
    _outcomes(admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions("missing")]))
    _outcomes(
        admin.alter_consumer_group_offsets(
            [
                confluent_kafka.ConsumerGroupTopicPartitions(
                    "new", [TopicPartition("missing", 0, 7), TopicPartition("t", 9, 1)]
                )
            ]
        )
    )
    errors = []
    producer = Producer({"bootstrap.servers": place.bootstrap, "message.max.bytes": 3_000_000, "acks": 1})
    for config in ({"value": b"x" * 2_000_000}, {"value": b"x", "timestamp": 5}):
        producer.produce("t", partition=0, on_delivery=lambda error, _: errors.append(error), **config)
        assert producer.flush(PATIENCE) == 0
    assert [error is None for error in errors] == [False, True]
    producer.close()
    consumer = _consumer(place, group_id="strange", session_timeout_ms=1000)
    consumer.subscribe(["t"])
    for _ in range(20):
        consumer.poll(0.05)
    consumer.close()


def create_when_missing(place):
    """A producer and a consumer of topics that were not made before."""
    _write(place, "made-by-a-producer", 5, {})
    place.wait_for("made-by-a-producer")
    consumer = _consumer(place, allow_auto_create_topics=True)
    consumer.subscribe(["made-by-a-producer"])
    _read(consumer, 5)
    consumer.close()
