"""Where a partition's files are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark_log.storage.catalog.kafka_files import PARTITION_METADATA
from pyspark_log.storage.fs import files

# More than Kafka's file has.
_METADATA_SIZE = 256


@dataclass(frozen=True, slots=True)
class PartitionPath:
    """A partition and the paths of its files; prints as `topic-3`.

    Attributes:
        topic, topic_id, partition: which partition.
        folder: that of its segments.
        state_path: its state file.
    """

    topic: str
    topic_id: str
    partition: int
    folder: str
    state_path: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def in_log_dir(self, log_dir: str) -> PartitionPath:
        """The same partition with its segments in that log dir."""
        folder = f"{log_dir}/{self.topic}-{self.partition}"
        return self if folder == self.folder else replace(self, folder=folder)

    @property
    def segments_path(self) -> str:
        """The path of the cache of its inactive segments."""
        return f"{self.state_path}.segments"

    @property
    def cleaner_path(self) -> str:
        """The path of its cleaner checkpoint, which is also the lock of its cleaner."""
        return f"{self.state_path}.cleaner"

    def owner(self) -> str:
        """The id of the topic whose files are in the folder: another one's, if this one was deleted.

        By Kafka's `partition.metadata`; "" if that is missing.
        """
        try:
            with files.open_read(f"{self.folder}/{PARTITION_METADATA}") as file:
                text = file.pread(_METADATA_SIZE, 0).decode("ascii", "replace")
                return text.partition("topic_id: ")[2].strip()
        except FileNotFoundError:
            return ""
