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
