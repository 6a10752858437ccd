"""Where a mirror reads: a store, a folder of a broker, or a Kafka cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from pyspark_log.config import TOPIC_CONFIGS
from pyspark_log.jobs.mirroring.cluster_admin import ClusterAdmin
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, TopicPartition

# Where the configs of a topic are not known, its history stays.
_UNKNOWN_CONFIGS = {"retention.ms": "-1"}
# Records keep their times, whatever these are.
_NOT_CARRIED = {"message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}


@dataclass(frozen=True)
class Reading:
    """What is read, and how.

    Attributes:
        topics: by name, or those in whose names a pattern is found.
        start: earliest or latest, for a query without a checkpoint.
        max_offsets: of a micro-batch; None: all available records.
        skip_lost: whether to continue after records that were deleted before they were read.
        group: under which the query's offsets are committed in a store.
        kafka_options: of Kafka's clients, by their names.
    """

    topics: list[str] | re.Pattern[str]
    start: str
    max_offsets: int | None
    skip_lost: bool
    group: str
    kafka_options: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, str]:
        """The options that both connectors have."""
        found = {
            "startingOffsets": self.start,
            "includeHeaders": "true",
            "failOnDataLoss": str(not self.skip_lost).lower(),
            "kafka.isolation.level": READ_COMMITTED,
        }
        if isinstance(self.topics, list):
            found["subscribe"] = ",".join(self.topics)
        else:
            found["subscribePattern"] = self.topics.pattern
        return found | ({} if self.max_offsets is None else {"maxOffsetsPerTrigger": str(self.max_offsets)})


class Source(Protocol):
    """What a mirror needs of a source."""

    def rows(self, spark: SparkSession) -> DataFrame:
        """The stream of records."""

    def configs(self, topic: str) -> dict[str, str]:
        """The configs for the topic that mirrors a topic."""

    def groups(self, pattern: re.Pattern[str]) -> dict[str, dict[TopicPartition, int]]:
        """The committed offsets of the groups in whose names the pattern is found."""


class StoreSource:
    """A store, or a folder of a Kafka broker."""

    def __init__(self, store: Store, reading: Reading) -> None:
        self._store, self._reading = store, reading

    def rows(self, spark: SparkSession) -> DataFrame:
        """The stream of records."""
        options = self._reading.options() | {"kafka.group.id": self._reading.group}
        return spark.readStream.format("pylog").options(**options).load(self._store.path)

    def configs(self, topic: str) -> dict[str, str]:
        """The topic's; a broker's folder has none."""
        if self._store.partitions.are_brokers:
            return dict(_UNKNOWN_CONFIGS)
        return _carried(self._store.describe_topic(topic).configs)

    def groups(self, pattern: re.Pattern[str]) -> dict[str, dict[TopicPartition, int]]:
        """Those of the offsets log, but for the mirror's own."""
        self._store.publishes.apply_pending()
        names = [name for name in self._store.groups if pattern.search(name) and name != self._reading.group]
        return {name: {at: one.offset for at, one in self._store.groups[name].committed().items()} for name in names}


class ClusterSource:
    """A Kafka cluster, read by Spark's own connector."""

    def __init__(self, bootstrap: str, reading: Reading) -> None:
        self._bootstrap, self._reading = bootstrap, reading
        self._admin: ClusterAdmin | None = None

    def rows(self, spark: SparkSession) -> DataFrame:
        """The stream of records."""
        self._admin = ClusterAdmin(spark, self._bootstrap, self._reading.kafka_options)
        options = self._reading.options() | {"kafka.bootstrap.servers": self._bootstrap}
        options |= {f"kafka.{name}": value for name, value in self._reading.kafka_options.items()}
        return spark.readStream.format("kafka").options(**options).load()

    def configs(self, topic: str) -> dict[str, str]:
        """Those that are set for the topic."""
        assert self._admin is not None
        return _carried(self._admin.configs(topic))

    def groups(self, pattern: re.Pattern[str]) -> dict[str, dict[TopicPartition, int]]:
        """Those that the cluster's coordinators have."""
        assert self._admin is not None
        return {name: self._admin.committed(name) for name in self._admin.groups() if pattern.search(name)}


def _carried(configs: Mapping[str, str]) -> dict[str, str]:
    """Those that a store has too."""
    return {name: value for name, value in configs.items() if name in TOPIC_CONFIGS and name not in _NOT_CARRIED}
