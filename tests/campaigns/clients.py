"""The processes that are killed, but for the server. SIGTERM ends each in order; what each did is noted in a file.

    python -m tests.campaigns.clients produce|publish|consume ARGUMENT ...

Java's clients are Kafka's own verifiable producer and consumer, whose output is that file.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from pathlib import Path

import confluent_kafka
import pyarrow as pa

from pyspark_log import Store
from tests.campaigns.harness import PATIENCE
from tests.kafka.kafka_tools import command

PUBLISHED = 50  # records of a publish
KEYS = 20


class Ending:
    """Becomes true with the first SIGTERM."""

    def __init__(self):
        self._seen = False
        signal.signal(signal.SIGTERM, self._see)

    def _see(self, *_):
        self._seen = True

    def __bool__(self):
        return self._seen


def produce(bootstrap, folder, name, idempotent, topic, keyed):
    """Sends numbered values, and notes those that are acknowledged, in the order of the answers."""
    ending = Ending()
    producer = confluent_kafka.Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": idempotent == "1", "acks": "all", "linger.ms": 2,
        "message.timeout.ms": PATIENCE * 1000, "socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 500,
        "log_level": 0, "compression.type": random.choice(["none", "lz4", "zstd"]),
    })  # fmt: skip
    noted = (Path(folder) / name).open("w", buffering=1)

    def acknowledged(error, message):
        if error is None:
            noted.write(f"{message.value().decode()}\n")

    number = 0
    while not ending:
        value = f"{name}:{number}"
        # Each key has a partition, and so has each producer without keys: its order can be seen there.
        key = f"{name.partition('.')[0]}-{number % KEYS}" if keyed == "1" else name
        try:
            producer.produce(topic, value, key, on_delivery=acknowledged)
        except BufferError:
            producer.poll(0.5)  # The server was away for long: more waits than librdkafka keeps.
            continue
        number += 1
        producer.poll(0)
        if number % 20 == 0:
            time.sleep(0.005)
    assert producer.flush(PATIENCE) == 0, "not all is acknowledged"


def publish(path, topic):
    """Publishes numbered outputs, as a query does: after a kill it repeats the last one."""
    ending = Ending()
    store = Store.open(path)
    last = next((one.number for one in store.publishes.publishers() if one.publisher == "query"), -1)
    number = max(last, 0)  # the last one once more: it is not known whether its end was seen
    while not ending:
        writer = store.publishes.writer(store.publishes.plan([topic]))
        writer.append(topic, pa.record_batch({"value": [b"query:%d:%d" % (number, one) for one in range(PUBLISHED)]}))
        store.publishes.publish("query", number, writer.finish())
        number += 1
        time.sleep(0.05)


def consume(bootstrap, folder, name, topic):
    """Reads as a member of the group `readers`, notes what it reads, and then commits."""
    ending = Ending()
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0,
        "enable.auto.commit": False, "session.timeout.ms": 6000, "reconnect.backoff.max.ms": 500,
    })  # fmt: skip
    consumer.subscribe([topic])
    noted = (Path(folder) / name).open("w", buffering=1)
    while not ending:
        messages = [one for one in consumer.consume(500, 0.2) if one.error() is None]
        noted.writelines(f"{one.partition()} {one.offset()} {one.offset()}\n" for one in messages)
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException:
                continue  # The group has changed, or the server was killed: another member reads it again.
    consumer.close()


# ---- Java's clients


def java_producer(folder, bootstrap, topic, number):
    """The command of Kafka's verifiable producer, idempotent, with values that begin with a number."""
    file = folder / "java.settings"
    file.write_text(f"enable.idempotence=true\nretries={2**31 - 1}\ndelivery.timeout.ms={PATIENCE * 1000}\n")
    words = ["--throughput", 500, "--acks", -1, "--value-prefix", number, "--command-config", file]
    return _java("VerifiableProducer", bootstrap, topic, *words)


def java_consumer(bootstrap, topic, group, protocol):
    """The command of Kafka's verifiable consumer in a group of one of the two protocols."""
    words = ["--group-id", group, "--group-protocol", protocol, "--reset-policy", "earliest"]
    words += ["--session-timeout", 6000] if protocol == "classic" else []
    return _java("VerifiableConsumer", bootstrap, topic, *words)


def _java(tool, bootstrap, topic, *words):
    return command(f"org.apache.kafka.tools.{tool}", "--bootstrap-server", bootstrap, "--topic", topic, *words)


# ---- what they have noted


def lines(folder, name):
    """The whole lines of a file; none, if the actor did not come so far."""
    path = folder / name
    # The last line may be cut off by a kill; then it was not noted.
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []


def acknowledged(folder, name):
    """The values that a producer knew to be stored, in the order of the answers."""
    found = lines(folder, name)
    if not name.startswith("java"):
        return found
    events = map(json.loads, found)
    return [event["value"] for event in events if event["name"] == "producer_send_success"]


def ranges(folder, name):
    """What a consumer has read: partitions, with the first and the last offset."""
    found = lines(folder, name)
    if not name.startswith("java"):
        return [tuple(map(int, line.split())) for line in found]
    events = map(json.loads, found)
    return [
        (part["partition"], part["minOffset"], part["maxOffset"])
        for event in events
        if event["name"] == "records_consumed"
        for part in event["partitions"]
    ]


if __name__ == "__main__":
    {"produce": produce, "publish": publish, "consume": consume}[sys.argv[1]](*sys.argv[2:])
