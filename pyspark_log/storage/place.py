"""Where a partition's files are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """Whose log it is and where its files are; prints as `topic-3`.

    Attributes:
        topic, topic_id, partition: which partition.
        folder: where its segments are.
        state_path: its state file.
    """

    topic: str
    topic_id: str
    partition: int
    folder: str
    state_path: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def owner(self) -> str:
        """The id of the topic whose files are in the folder: another one's, once this one was deleted.

        By Kafka's `partition.metadata`; "" if the folder does not say, or is not there.
        """
        try:
            with open(f"{self.folder}/partition.metadata", encoding="ascii", errors="replace") as file:
                return file.read().partition("topic_id: ")[2].strip()
        except FileNotFoundError:
            return ""
