"""Errors of consumers."""

from __future__ import annotations

from pyspark_log.errors.root import PylogError


class OffsetOutOfRangeError(PylogError):
    """An offset below the log start or above the log end.

    Attributes:
        topic, partition: where.
        offset: the offset that was asked for.
        log_start: the first offset that can be read.
        log_end: the offset that the next record will get (readable, but empty).
    """

    condition = "PYLOG_OFFSET_OUT_OF_RANGE"

    def __init__(self, topic: str, partition: int, offset: int, log_start: int, log_end: int, advice: str = "") -> None:
        super().__init__(
            f"{topic}-{partition}: offset {offset} is out of range: the log holds offsets "
            f"{log_start} to {log_end} (the end, exclusive){advice and f'; {advice}'}"
        )
        self.topic, self.partition, self.offset = topic, partition, offset
        self.log_start, self.log_end = log_start, log_end


class NoOffsetError(PylogError):
    """A consumer is to read a partition, and nothing says from which offset on.

    Attributes:
        topic, partition: where.
    """

    condition = "PYLOG_NO_OFFSET"

    def __init__(self, topic: str, partition: int, group: str | None) -> None:
        whose = "the consumer has no group" if group is None else f"group {group!r} has no committed offset there"
        super().__init__(
            f"{topic}-{partition}: {whose}, and auto_offset_reset is none: call seek, or commit an offset first"
        )
        self.topic, self.partition, self.group = topic, partition, group


class DeserializationError(PylogError):
    """A deserializer has refused a record. The consumer's position is still that record's offset: seek past it.

    Attributes:
        topic, partition, offset: the record's.
        part: "key" or "value".
    """

    condition = "PYLOG_DESERIALIZATION"

    def __init__(self, topic: str, partition: int, offset: int, part: str, problem: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the {part} of the record at offset {offset} cannot be deserialized: {problem}; to "
            f"leave it out, seek to {offset + 1}"
        )
        self.topic, self.partition, self.offset, self.part, self.problem = topic, partition, offset, part, problem


class WakeupError(PylogError):
    """`Consumer.wakeup` was called; nothing was handed out."""

    condition = "PYLOG_WAKEUP"


class FencedMemberError(PylogError):
    """A consumer is no member of its group any more, or does not own what it commits for. Nothing was committed.

    The group has removed it, as it was silent for longer than `max_poll_interval_ms`, or as another consumer has its
    `group_instance_id`.
    """

    condition = "PYLOG_FENCED_MEMBER"
