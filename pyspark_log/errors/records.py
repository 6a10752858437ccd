"""Errors of records and of the files that hold them."""

from __future__ import annotations

from pyspark_log.errors.root import PylogError


class InvalidRecordError(PylogError):
    """A record that the topic refuses; nothing of the call was appended.

    Attributes:
        records: the places of the refused records in the batch of a client; empty: it is not about single ones.
    """

    condition = "PYLOG_INVALID_RECORD"
    records: tuple[int, ...] = ()


class InvalidTimestampError(InvalidRecordError):
    """The time of a record is further from the clock than `message.timestamp.before.max.ms` or `.after.max.ms`."""

    condition = "PYLOG_INVALID_TIMESTAMP"


class RecordTooLargeError(InvalidRecordError):
    """A record batch is larger than `max.message.bytes`, or takes more memory than `batch.max.memory.bytes`."""

    condition = "PYLOG_RECORD_TOO_LARGE"


class CorruptRecordError(PylogError):
    """Bytes that should be a record batch and are not.

    Attributes:
        reason: what is wrong with the bytes.
        position: where the bad batch starts, in bytes from the start of `file` (of the buffer, if
            the file is not known yet).
        base_offset: the base offset that its header claims, or -1 if the header cannot be read.
        file: the segment file, or "".
        topic, partition: the segment's, or "" and -1.
    """

    condition = "PYLOG_CORRUPT_RECORD"

    def __init__(
        self,
        reason: str,
        position: int = -1,
        base_offset: int = -1,
        file: str = "",
        topic: str = "",
        partition: int = -1,
    ) -> None:
        where = f"{topic}-{partition}: " if topic else ""
        where += f"{file} " if file else ""
        super().__init__(f"{where}at byte {position} (base offset {base_offset}): {reason}")
        self.reason, self.position, self.base_offset = reason, position, base_offset
        self.file, self.topic, self.partition = file, topic, partition

    def located(self, shift: int, file: str, topic: str, partition: int) -> CorruptRecordError:
        """Returns the same error with its position moved by `shift` bytes, and its place named."""
        return CorruptRecordError(self.reason, self.position + shift, self.base_offset, file, topic, partition)


class BatchTooLargeError(CorruptRecordError):
    """A batch that would take more memory than it may, decompressed: a bomb, or a limit that is too low.

    Attributes:
        size: bytes of the batch as it is stored.
        limit: the most bytes that it may take.
    """

    condition = "PYLOG_BATCH_TOO_LARGE"

    def __init__(
        self,
        size: int,
        limit: int,
        position: int = -1,
        base_offset: int = -1,
        file: str = "",
        topic: str = "",
        partition: int = -1,
    ) -> None:
        reason = f"its {size} bytes become more than {limit} bytes in memory"
        if topic:
            reason += f"; {self.advice}"
        super().__init__(reason, position, base_offset, file, topic, partition)
        self.size, self.limit = size, limit

    #: What to do about it in a store.
    advice = "if it is no bomb, set batch.max.memory.bytes in store.json higher"

    def located(self, shift: int, file: str, topic: str, partition: int) -> BatchTooLargeError:
        """Returns the same error with its position moved by `shift` bytes, and its place named."""
        return BatchTooLargeError(
            self.size, self.limit, self.position + shift, self.base_offset, file, topic, partition
        )


class LogDamagedError(PylogError):
    """A partition's files contradict its state file: another program than the engine has changed them.

    Attributes:
        what: the message without the advice, which is for a log without a leader.
    """

    condition = "PYLOG_LOG_DAMAGED"

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what}; {advice}" if advice else what)
        self.what = what


class OutdatedReadError(PylogError):
    """A read was planned so long ago that objects of it were replaced and deleted; to read again gives the records."""

    condition = "PYLOG_OUTDATED_READ"
    retriable = True


class SegmentOverflowError(PylogError):
    """Segments that were to be cleaned into one do not fit into one; nothing was changed.

    Attributes:
        base_offset: of the segment that was being written.
        excess: which limit it would exceed.
    """

    condition = "PYLOG_SEGMENT_OVERFLOW"

    def __init__(self, base_offset: int, excess: str) -> None:
        super().__init__(
            f"the cleaned segment from offset {base_offset} on would have {excess}: clean fewer segments into one"
        )
        self.base_offset, self.excess = base_offset, excess


class LogDirOfflineError(PylogError, OSError):
    """The log dir that holds a partition has failed: it is missing, read-only, or gives errors.

    Partitions in other log dirs are not affected. It is an OSError too, with the system's error number if there is
    one (Kafka's KafkaStorageException).
    """

    condition = "PYLOG_LOG_DIR_OFFLINE"

    def __init__(self, number: int, message: str, path: str) -> None:
        super().__init__(number, message, path)

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errno, str(self), self.filename)


class ObjectStoreError(PylogError, OSError):
    """An object store has refused a request, or given no answer in time.

    After one that writes or deletes it is not known whether it was done, unless the class of the error says it.
    """

    condition = "PYLOG_OBJECT_STORE"

    def __init__(self, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable


class SideFileError(PylogError):
    """A malformed checkpoint, snapshot, transaction index or properties file.

    The message names the file and, where it has lines, the line.
    """

    condition = "PYLOG_SIDE_FILE"
