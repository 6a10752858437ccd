"""What the tasks of a job know beforehand of its topics, and what they give back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_log.config import TopicConfig, check_compression_type
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.fs import Process
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.staging.staged_file import Job
from pyspark_log.types import NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Record batches for one partition, back to back, with offsets from 0.

    Attributes:
        topic, partition, topic_id: the partition that they are for.
        count: how many records.
        size: bytes.
        crcs: the CRC fields of the batches, 4 bytes each, in order.
        file: the staged file's name, or "" if `data` holds the bytes.
        position: where in the file, in bytes.
        data: the bytes, if there is no file.
        max_timestamp: the largest time of a record (ms), in an object of staged output; else it is not known.
    """

    topic: str
    partition: int
    topic_id: str
    count: int
    size: int
    crcs: bytes
    file: str = ""
    position: int = 0
    data: bytes = b""
    max_timestamp: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """The facts about a topic on which all tasks must agree, even if the topic changes while they run."""

    topic_id: str
    partitions: int
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class StagingPlan:
    """The topics as they were when the job was planned; created once, and sent to every task.

    Tasks that looked them up themselves could hash keys over different counts while partitions are added.

    Attributes:
        cluster_id: which store it is for.
        topics: by name.
        job: the job, after which all tasks name their files.
        compression_type: the codec of the writer's choice, for topics that leave it to the writer, or None.
        others: whether tasks may write to topics that are not among these; then they create missing ones.
    """

    cluster_id: str
    topics: Mapping[str, PlannedTopic]
    job: Job = field(default_factory=Job.new)
    compression_type: str | None = None
    others: bool = False

    @classmethod
    def make(
        cls,
        logs: LogManager,
        topics: Iterable[str],
        compression_type: str | None = None,
        owner: Process | None = None,
        *,
        others: bool = False,
    ) -> StagingPlan:
        """Looks the topics up.

        Args:
            logs: the store's logs.
            topics: their names.
            compression_type, others: as the attributes.
            owner: the process without which the staged output is never published; None: this one. Once it is dead,
                its undecided staged output is deleted soon.

        Raises:
            UnknownTopicError: one of them does not exist.
            InvalidTopicError: it is one of the engine's own.
            InvalidConfigError: there is no such codec.
        """
        logs.check_writable()
        check_compression_type(compression_type)
        planned = {}
        for name in topics:
            check_not_internal(name)
            description = logs.describe_topic(name)
            config = TopicConfig.resolve(description.configs, logs.configs, compression_type)
            planned[name] = PlannedTopic(description.topic_id, description.partitions, config)
        return cls(logs.cluster_id, planned, Job.new(owner), compression_type=compression_type, others=others)
