"""A record that one client library writes and another one reads."""

import confluent_kafka
from kafka_peer import kafka

from tests.server_tools import PATIENCE


def pass_on(server, value, librdkafka, kafka_python):
    """Writes a value to topic t by librdkafka and reads it by kafka-python, with settings of each."""
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, **librdkafka})
    producer.produce("t", value)
    assert producer.flush(PATIENCE) == 0
    consumer = kafka.KafkaConsumer(
        "t", bootstrap_servers=server.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE * 1000,
        **kafka_python,
    )  # fmt: skip
    with consumer:
        assert value in (message.value for message in consumer)
