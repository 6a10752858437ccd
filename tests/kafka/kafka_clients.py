"""kafka-python as a client of the broker, and Kafka's own console consumer."""

import warnings

# Loading its protocol's schemas uses a call that newer Pythons warn about.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, NewTopic, UserScramCredentialUpsertion
    from kafka.errors import PreferredLeaderNotAvailableError, TopicAlreadyExistsError
    from kafka.structs import OffsetAndMetadata

from written import Row

__all__ = [
    "Clients",
    "ConfigResource",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "NewTopic",
    "OffsetAndMetadata",
    "PreferredLeaderNotAvailableError",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "UserScramCredentialUpsertion",
    "as_printed",
    "create_topics",
    "send_and_read",
]

_PATIENCE_MS = 240_000


def create_topics(broker, topics, configs):
    """Makes topics; `topics` maps each name to the number of its partitions."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, count, 1, topic_configs=configs) for name, count in topics.items()])


def send_and_read(node, topic):
    """Sends some records by a node into partition 0, and reads them as a group that then commits."""
    values = [b"%d" % number for number in range(100)]
    with KafkaProducer(bootstrap_servers=node.bootstrap, acks="all") as producer:
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush(_PATIENCE_MS / 1000)
    options = {"group_id": "g", "auto_offset_reset": "earliest", "consumer_timeout_ms": _PATIENCE_MS}
    with KafkaConsumer(topic, bootstrap_servers=node.bootstrap, **options) as consumer:
        assert [next(consumer).value for _ in values] == values
        consumer.commit()


class Clients:
    """A consumer and a producer."""

    def __init__(self, broker):
        self._broker = broker
        self._consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            check_crcs=True,
            isolation_level="read_committed",
        )
        self._producer = KafkaProducer(bootstrap_servers=broker.bootstrap)

    def close(self):
        self._consumer.close()
        self._producer.close()

    def records(self, topic, partition):
        """All records of a partition, from its log start to its log end. Not snappy, which is no dependency."""
        place, consumer, records = TopicPartition(topic, partition), self._consumer, []
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found = consumer.poll(timeout_ms=_PATIENCE_MS)
            assert found, f"nothing at {consumer.position(place)} of {place}, whose end is {end}"
            records += found[place]
        return records

    def read(self, topic, partition):
        """The same as rows."""
        return [
            Row(r.offset, r.timestamp, r.key, r.value, tuple((name, value) for name, value in r.headers))
            for r in self.records(topic, partition)
        ]

    def produce(self, topic, partition, rows):
        """Sends rows; returns them with the offsets that they got."""
        sent = [
            self._producer.send(
                topic, row.value, row.key, list(row.headers), partition=partition, timestamp_ms=row.timestamp
            )
            for row in rows
        ]
        return [
            row._replace(offset=future.get(_PATIENCE_MS / 1000).offset) for row, future in zip(rows, sent, strict=True)
        ]

    def printed(self, topic, count):
        """What Kafka's console consumer prints of the first records of a topic, a line for each."""
        shown = ("timestamp", "partition", "offset", "headers", "key")
        return self._broker.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--from-beginning",
            "--max-messages", count, "--timeout-ms", _PATIENCE_MS,
            *(argument for name in shown for argument in ("--formatter-property", f"print.{name}=true")),
            "--formatter-property", "null.literal=<null>",
        ).splitlines()  # fmt: skip


def as_printed(row, partition):
    """A row as the console consumer prints it."""

    def text(data):
        return "<null>" if data is None else data.decode(errors="replace")

    headers = ",".join(f"{name}:{text(value)}" for name, value in row.headers) or "NO_HEADERS"
    where = f"CreateTime:{row.timestamp}\tPartition:{partition}\tOffset:{row.offset}"
    return f"{where}\t{headers}\t{text(row.key)}\t{text(row.value)}"
