"""Questions about the partitions of a store in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage import seam
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs.file_events import FileEvents
from pyspark_log.storage.fs.mounts import is_shared
from pyspark_log.storage.log.state import StateWatch
from pyspark_log.storage.log_manager import LogManager, PartitionDescription, describe_partition
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.types import READ_UNCOMMITTED, OffsetAndTimestamp, TopicPartition, check_isolation


class FolderPartitions(seam.Partitions):
    """The partitions of a store in a folder."""

    def __init__(self, logs: LogManager) -> None:
        """Of one store."""
        self._logs, self.are_brokers = logs, logs.is_brokers

    def looking(self, age: float = 0.0) -> AbstractContextManager[None]:
        return nullcontext()

    def recorded_ids(self, topics: Iterable[str]) -> tuple[str | None, dict[str, str]]:
        found = {topic: self._logs.recorded_topic_id(topic) for topic in topics}
        return self._logs.recorded_cluster_id, {topic: one for topic, one in found.items() if one is not None}

    def written(self, topic: str) -> list[int]:
        return self._logs.written_partitions(topic)

    def describe(self, topic: str, partition: int) -> PartitionDescription:
        return describe_partition(self._logs, topic, partition)

    def size(self, topic: str, partition: int) -> int:
        return self._logs.recovered(topic, partition).size()

    def latest_offsets(
        self,
        partitions: Iterable[TopicPartition],
        *,
        isolation_level: str = READ_UNCOMMITTED,
        skip_missing: bool = False,
    ) -> dict[TopicPartition, int]:
        committed, found = check_isolation(isolation_level), dict[TopicPartition, int]()
        for at in partitions:
            try:
                reader = self._logs.recovered(at.topic, at.partition)
                found[at] = reader.last_stable_offset() if committed else reader.state().high_watermark
            except UnknownTopicError:
                if not skip_missing:
                    raise
        return found

    def end_within(self, at: TopicPartition, start: int, end: int, max_bytes: int) -> tuple[int, int]:
        return self._logs.recovered(at.topic, at.partition).end_within(start, end, max_bytes)

    def producer_batches(
        self, at: TopicPartition, start: int, end: int
    ) -> list[tuple[BatchHeader, EndTxnMarker | None]]:
        return self._logs.recovered(at.topic, at.partition).producer_batches(start, end)

    def offset_of_max_timestamp(self, topic: str, partition: int) -> OffsetAndTimestamp | None:
        return self._logs.recovered(topic, partition).find_max_timestamp()

    def watch(self) -> FolderWatch:
        return FolderWatch(self._logs)

    def events(self) -> FolderEvents | None:
        folder = f"{self._logs.path}/{STATE_FOLDER}"
        if self._logs.is_brokers or is_shared(folder):
            return None
        try:
            return FolderEvents(FileEvents(folder))
        except OSError:
            return None


class FolderWatch(seam.PartitionWatch):
    """Watches the state files of partitions."""

    def __init__(self, logs: LogManager) -> None:
        """Nothing is noted yet."""
        self._logs, self._states = logs, StateWatch()

    def note(self, topic: str, partitions: Iterable[int]) -> None:
        self._states.note(self._logs.state_paths(topic, partitions))

    def wait(self, seconds: float) -> None:
        self._states.wait(seconds)


class FolderEvents(seam.PartitionEvents):
    """Reports changes of state files."""

    def __init__(self, state_files: FileEvents) -> None:
        """`state_files`: events of the files that hold the partitions' states."""
        self._files = state_files
        self.fd = state_files.fd

    def changed(self) -> set[tuple[str, int]] | None:
        names = self._files.changed()
        if not names:
            return None if names is None else set()
        parts = (name.rpartition("-") for name in names)
        return {(topic_id, int(number)) for topic_id, _, number in parts if number.isdecimal()}

    def close(self) -> None:
        self._files.close()
