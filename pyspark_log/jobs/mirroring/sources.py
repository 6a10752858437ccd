"""Where the job mirror reads, in Spark's tasks: a Kafka cluster, a store, or the log dirs of a broker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_log.kafka.client_config import client_config
from pyspark_log.kafka.cluster import Cluster
from pyspark_log.mirror.sources import HasGroups, StoreGroups
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED

# How librdkafka names what Spark's connector to Kafka wants by Java's names.
_NOT_JAVAS = {
    "sasl.mechanisms", "sasl.password", "sasl.username", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location",
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What is read, and how.

    Attributes:
        topics: patterns for whole names.
        start: earliest or latest, for a query without a checkpoint.
        max_offsets: of a micro-batch; None: all available records.
        skip_lost: whether to continue after records that were deleted before they were read.
        group: under which the query's offsets are committed in a store.
    """

    topics: Sequence[re.Pattern[str]]
    start: str
    max_offsets: int | None
    skip_lost: bool
    group: str

    def options(self) -> dict[str, str]:
        """The options that both connectors have."""
        return {
            "startingOffsets": self.start,
            "includeHeaders": "true",
            "failOnDataLoss": str(not self.skip_lost).lower(),
            "kafka.isolation.level": READ_COMMITTED,
            "subscribePattern": f"^(?:{'|'.join(pattern.pattern for pattern in self.topics)})$",
        } | ({} if self.max_offsets is None else {"maxOffsetsPerTrigger": str(self.max_offsets)})


class StoreSource(StoreGroups):
    """A store of any kind, or the log dirs of a Kafka broker."""

    def __init__(self, path: str, reading: Reading) -> None:
        """Opens it. StoreError: there is none."""
        self._store, self._reading = Store.open(path), reading
        self.cluster_id: str | None = self._store.cluster_id

    def rows(self, spark: SparkSession) -> DataFrame:
        """The stream of records."""
        options = self._reading.options() | {"kafka.group.id": self._reading.group}
        options |= {"keyFormat": "bytes", "valueFormat": "bytes"}  # whatever a topic's configs say
        return spark.readStream.format("pylog").options(**options).load(self._store.path)

    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Those of the topics; a broker's folder has none."""
        if self._store.partitions.are_brokers:
            return {}
        return {topic: dict(self._store.describe_topic(topic).configs) for topic in topics}

    def groups(self) -> list[str]:
        """All but the mirror's own."""
        self._store.publishes.apply_pending()
        return [name for name in super().groups() if name != self._reading.group]


class ClusterSource(Cluster, HasGroups):
    """A Kafka cluster, whose records Spark's own connector reads."""

    def __init__(self, brokers: Sequence[tuple[str, int]], reading: Reading, properties: Mapping[str, str]) -> None:
        """Connects to nothing yet.

        Args:
            brokers: hosts and ports.
            reading: what is read.
            properties: how to log in, and other configs of Kafka's clients, by Java's names.

        Raises:
            click.UsageError: a name is not Java's.
            InvalidConfigError, OSError: as client_config.
        """
        if wrong := sorted(_NOT_JAVAS & properties.keys()):
            raise click.UsageError(
                f"--client-config: {wrong[0]} is a name of librdkafka; Spark's connector to Kafka needs those of Java: "
                "sasl.mechanism, sasl.jaas.config, ssl.truststore.location, ssl.keystore.location"
            )
        super().__init__(brokers, client_config(properties))
        self._addresses, self._reading, self._properties = brokers, reading, properties

    def rows(self, spark: SparkSession) -> DataFrame:
        """The stream of records. click.UsageError: Spark has no connector to Kafka."""
        brokers = ",".join(f"{host}:{port}" for host, port in self._addresses)
        options = self._reading.options() | {"kafka.bootstrap.servers": brokers}
        options |= {f"kafka.{name}": value for name, value in self._properties.items()}
        try:
            return spark.readStream.format("kafka").options(**options).load()
        except AnalysisException as error:
            raise click.UsageError(
                "a cluster needs Spark's connector to Kafka: add to spark-submit "
                f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version} ({error})"
            ) from error

    def groups(self) -> list[str]:
        """Those that the cluster's coordinators have."""
        self.topics([])  # which finds the brokers
        return super().groups()


#: Where a mirror reads.
Source = StoreSource | ClusterSource
