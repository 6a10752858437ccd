"""The half of staging that is the same wherever output is staged: rows become record batches of their partitions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.ingest import FILLING_BYTES
from pyspark_log.storage.publish.staging.plan import PlannedTopic, StagedPart, StagingPlan
from pyspark_log.storage.record.layout import CRC_AT
from pyspark_log.storage.seam import StagingWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.storage.ingest.accumulator import RecordAccumulator
    from pyspark_log.storage.publish.staging.agreed_topics import AgreedTopic

#: A topic and the number of one of its partitions.
Place: TypeAlias = "tuple[str, int]"


@dataclass(slots=True)
class Run:
    """Batches of one partition that follow each other, in memory."""

    count: int = 0
    size: int = 0
    batches: list[bytes] = field(default_factory=list)

    def add(self, batch: bytes, count: int) -> None:
        """Adds a batch with `count` records."""
        self.count += count
        self.size += len(batch)
        self.batches.append(batch)

    def crcs(self) -> bytes:
        """The CRC fields of the batches, in order."""
        return b"".join(batch[CRC_AT : CRC_AT + 4] for batch in self.batches)

    def part(self, place: Place, topic_id: str) -> StagedPart:
        """The batches as a part without a file."""
        return StagedPart(*place, topic_id, self.count, self.size, self.crcs(), data=b"".join(self.batches))


class EncodingWriter(StagingWriter):
    """Encodes rows; where the batches go is the matter of the kinds."""

    def __init__(self, plan: StagingPlan, clock: Callable[[], int]) -> None:
        """`plan` comes from the planner and is for this store; `clock` gives the time in ms."""
        self.agreed: list[AgreedTopic] = []
        self._plan, self._clock = plan, clock
        self._planned: dict[str, PlannedTopic] = {}  # the topics that it has written to
        self._encoders: dict[str, RecordAccumulator] = {}
        self._runs: dict[Place, Run] = {}
        self._size = 0  # bytes of all runs

    def append(self, topic: str, data: pa.RecordBatch) -> None:
        encoder = self._encoders.get(topic)
        if encoder is None:
            from pyspark_log.storage.ingest.accumulator import RecordAccumulator  # noqa: PLC0415  (Arrow, which a server does not load)

            planned = self._planned[topic] = self._plan.topics.get(topic) or self._other(topic)
            encoder = self._encoders[topic] = RecordAccumulator(
                topic,
                planned.partitions,
                planned.config,
                lambda partition, batch, count: self._take((topic, partition), batch, count),
            )
        encoder.add(data, self._clock())
        encoders = self._encoders.values()
        if len(encoders) > 1 and sum(encoder.held for encoder in encoders) > FILLING_BYTES:
            for encoder in encoders:
                encoder.flush()

    def _other(self, topic: str) -> PlannedTopic:
        """A topic that the plan lacks, as all tasks see it."""
        if not self._plan.others:
            raise UnknownTopicError(f"there was no topic {topic!r} when this write was planned; create it first")
        return self._agree(topic)

    @abstractmethod
    def _agree(self, topic: str) -> PlannedTopic:
        """Finds or creates a topic that the plan lacks, and adds it to `agreed`."""

    @abstractmethod
    def _take(self, place: Place, batch: bytes, count: int) -> None:
        """Takes a batch with `count` records of a partition."""

    def _flush(self) -> None:
        """Encodes what was not yet; no more is appended."""
        for encoder in self._encoders.values():
            encoder.flush()

    def _inline(self) -> list[StagedPart]:
        """The runs as parts without a file."""
        return [run.part(place, self._planned[place[0]].topic_id) for place, run in self._runs.items()]
