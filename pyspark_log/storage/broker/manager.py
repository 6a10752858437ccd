"""The LogManager of a Kafka broker's log dirs, which are read and never written to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from pyspark_log.errors import ReadOnlyError
from pyspark_log.storage.broker.log_dir import made_up_topic_id
from pyspark_log.storage.broker.log_dirs import BrokerLogDirs
from pyspark_log.storage.broker.reader import BrokerLogReader
from pyspark_log.storage.catalog import LogDirs, PartitionPath, TopicCatalog, check_name
from pyspark_log.storage.catalog.topics import DeletedTopic
from pyspark_log.storage.log import Turnstile
from pyspark_log.storage.log.read import LogReader
from pyspark_log.storage.log_manager import LogManager, TopicLogs
from pyspark_log.types import TopicDescription, TopicPartition


def _refuse(broker: BrokerLogDirs) -> NoReturn:
    raise ReadOnlyError(
        f"{broker.path} is a Kafka broker's folder, which is read-only here. To write, copy its topics into a store"
    )


class _BrokerCatalog(TopicCatalog):
    """The topics that have partitions in a broker's log dirs."""

    def __init__(self, broker: BrokerLogDirs) -> None:
        super().__init__(broker.path, "")
        self._broker = broker

    @contextlib.contextmanager
    def changing(self, timeout: float = 0.0) -> Iterator[None]:
        _refuse(self._broker)
        yield

    def names(self) -> list[str]:
        return sorted(self._broker.topics())

    def exists(self, name: str) -> bool:
        return name in self._broker.topics()

    def describe(self, name: str) -> TopicDescription:
        check_name(name)
        return self._broker.describe(name)

    def deleted(self) -> list[DeletedTopic]:
        return []


class _BrokerTopic(TopicLogs):
    """A topic of a broker. Its configs are in no file of the log dir: reading uses the defaults."""

    def __init__(self, broker: BrokerLogDirs, description: TopicDescription) -> None:
        super().__init__(broker.path, {}, description, LogDirs(broker.path, broker.cluster_id))
        self._where = broker.topics().get(description.name, {})
        self._first = broker.first

    def written(self) -> list[int]:
        return list(self._where)

    def left(self) -> list[PartitionPath]:
        return self.places()

    def place(self, partition: int) -> PartitionPath:
        self.check(partition)
        name, topic_id = self.description.name, self.description.topic_id
        folder = self._where.get(partition, self._first).folder(TopicPartition(name, partition))
        # There is no state file.
        return PartitionPath(name, topic_id, partition, folder, "")

    def _open(self, place: PartitionPath) -> LogReader:
        folder = self._where.get(place.partition, self._first)
        return BrokerLogReader(place, folder, self.config.max_batch_bytes)


class BrokerLogManager(LogManager):
    """The partitions in a broker's log dirs. Safe to use from several threads."""

    is_brokers = True

    def __init__(self, broker: BrokerLogDirs) -> None:
        """Reads nothing yet."""
        super().__init__(broker.path, broker.cluster_id, {})
        self.catalog = _BrokerCatalog(broker)
        self.recorded_cluster_id = broker.recorded_cluster_id
        self._broker = broker

    def recorded_topic_id(self, name: str) -> str | None:
        """A topic's id; None if no file has it. UnknownTopicError, InvalidTopicError."""
        found = self.catalog.describe(name).topic_id
        return None if found == made_up_topic_id(name) else found

    def open(self, description: TopicDescription) -> TopicLogs:
        """The topic of a description; it may be deleted by now."""
        return _BrokerTopic(self._broker, description)

    def recovered(self, topic: str, partition: int) -> LogReader:
        """The reader of a partition. UnknownTopicError."""
        return self.topic(topic).reader(partition)

    def recovered_or_raise(self, topic: str, partition: int) -> LogReader:
        """The reader of a partition. UnknownTopicError."""
        return self.topic(topic).reader(partition)

    def writer(self, topic: str, partition: int) -> Turnstile:
        """Raises ReadOnlyError."""
        _refuse(self._broker)

    def check_writable(self) -> None:
        """Raises ReadOnlyError."""
        _refuse(self._broker)

    def make_folders(self) -> None:
        """Raises ReadOnlyError."""
        _refuse(self._broker)
