"""Records of `__consumer_offsets`, as a coordinator of Kafka writes them."""

from __future__ import annotations

import pyarrow as pa

from pyspark_log.storage.catalog.topics import OFFSETS_TOPIC
from pyspark_log.storage.groups.log import records
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log_manager.append import append_rows
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def append(store: Store, group: str, key: bytes | None, value: bytes | None) -> None:
    """A record as another program might write it to the group's partition."""
    batch = pa.record_batch({"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())})
    count = store.describe_topic(OFFSETS_TOPIC).partitions
    append_rows(store.logs, OFFSETS_TOPIC, batch, records.partition_for(group, count), False)


def members(*topics: str, protocol_type: str = "consumer", since: int = 0) -> bytes:
    """The value of a group's record: with a member that reads these topics, or without members."""

    def text(of: str) -> bytes:
        return len(of).to_bytes(2, "big") + of.encode()

    subscription = b"\0\0" + len(topics).to_bytes(4, "big") + b"".join(map(text, topics)) + b"\xff" * 4
    member = (
        text("c-1") + b"\xff\xff" + text("c") + text("/127.0.0.1") + bytes(8)
        + len(subscription).to_bytes(4, "big") + subscription + bytes(4)
    )  # fmt: skip
    head = b"\0\3" + text(protocol_type) + bytes(4) + text("range") + text("c-1") + since.to_bytes(8, "big")
    return head + (b"\0\0\0\1" + member if topics else bytes(4))


def offsets(log: OffsetsLog, group: str) -> dict[TopicPartition, int]:
    return {at: kept.offset for at, kept in log.fetch(group).items()}
