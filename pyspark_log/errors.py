"""All errors that the engine raises on purpose.

The tree:

    PylogError
    |-- StoreError             the folder is no store, or this version cannot use it
    |   |-- StoreNotFoundError
    |   |-- StoreExistsError
    |   |-- StoreVersionError
    |   |-- ReadOnlyError      a broker's log dir, which cannot be written
    |   `-- DescriptionError
    |-- InvalidConfigError     a config, name or number that is refused before anything changes
    |   `-- InvalidTopicError
    |-- TopicExistsError
    |-- UnknownTopicError      no such topic, or no such partition of it
    |-- UnknownGroupError      no such consumer group
    |-- GroupNotEmptyError     a group has members, which own its committed offsets
    |-- FencedMemberError      a group has removed this member
    |-- OffsetOutOfRangeError  has the range that is valid
    |-- NoOffsetError          a consumer has no offset to begin with
    |-- DeserializationError   a consumer's deserializer has refused a record
    |-- WakeupError            a consumer that waited was woken
    |-- InvalidRecordError     a record that this topic refuses
    |   |-- InvalidTimestampError    its time is too far from the clock
    |   `-- RecordTooLargeError
    |-- CorruptRecordError     bytes that should be a record batch and are not; has their place
    |   `-- BatchTooLargeError   a batch that would take more memory than the store allows
    |-- LogDamagedError        a partition whose files contradict its state file
    |-- OutdatedReadError      a read was planned too long ago (retriable)
    |-- SegmentOverflowError   what is to become one segment is too large for one
    |-- LogDirOfflineError     the log dir of a partition has failed; an OSError too
    |-- ObjectStoreError       an object store has refused or not answered a request; an OSError too
    |-- SideFileError          a malformed file beside the log
    |-- ProducerError          a batch of an idempotent producer was refused
    |   |-- OutOfOrderSequenceError    a gap, or a repetition of a batch older than the last five
    |   |-- InvalidProducerEpochError  a newer instance of that producer writes here
    |   |-- InvalidTxnStateError       a batch outside the transaction that its producer has open
    |   `-- TransactionCoordinatorFencedError  a marker of a coordinator that was replaced
    |-- PartitionOwnedError    a node owns the partition, and it alone may write
    |-- LockTimeoutError       another process holds a lock for too long (retriable)
    |-- TransactionStateError  a call that the state of a transaction does not allow
    |-- PublishError           a publish: certainly not published by this call
    |   |-- PublishFailedError     something failed before the decision; the call can be repeated
    |   |-- PublisherFencedError   a newer run, or another checkpoint, has this publisher id
    |   |-- PublishNumberError     neither the next number nor a replay of the last one
    |   |-- OffsetConflictError    a group's committed offset is not the expected one
    |   |-- SetAsideError          an administrator has set it aside before anything of it appeared
    |   `-- StagedOutputError      staged output is missing, or is not what was staged
    |-- PublishPendingError    a publish: published, and it appears as soon as it can be written
    |   `-- PartlySetAsideError    published in part; an administrator has set the rest aside
    `-- OutcomeUnknownError    an I/O error after which it is not known what is on the disk; a publish: unknown

What a caller of a publish does after the last three: after a PublishError it may publish the records again, in any
way. After a PublishPendingError it must not. After an OutcomeUnknownError it repeats the same call, with the same
publisher and number, to learn the outcome. Each error is about its own call: if an earlier call for the same number
ended pending or unknown, that remains so.

`condition` is a stable name: a caller across a process boundary (Spark's driver, a shell) sees only the
message, so the connector puts it in front in brackets.
"""

from __future__ import annotations

# How many characters of a value an error message quotes.
_MOST_QUOTED = 200


class PylogError(Exception):
    """The root of all errors of the engine."""

    condition = "PYLOG_ERROR"
    #: Whether the same call can succeed later without any repair.
    retriable = False


def condition_of(error: BaseException) -> str:
    """Returns the stable name of any error: PYLOG_IO_ERROR for system errors."""
    if isinstance(error, PylogError):
        return error.condition
    return "PYLOG_IO_ERROR" if isinstance(error, OSError) else PylogError.condition


def shortened(text: str) -> str:
    """A value as an error message quotes it: at most 200 characters of it, and how many it has if it is longer."""
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}... ({len(text)} characters)"


class StoreError(PylogError):
    """The folder cannot be used as a store."""

    condition = "PYLOG_STORE"


class StoreNotFoundError(StoreError):
    """There is no store in that folder (as seen from this machine)."""

    condition = "PYLOG_STORE_NOT_FOUND"


class StoreExistsError(StoreError):
    """A store cannot be created there, since the folder is not empty."""

    condition = "PYLOG_STORE_EXISTS"


class StoreVersionError(StoreError):
    """The store was written by another version of pyspark-log, whose format this one does not know."""

    condition = "PYLOG_STORE_VERSION"


class ReadOnlyError(StoreError):
    """The folder is a log dir of a Kafka broker, or a server serves replicas of a node in it: nothing is written."""

    condition = "PYLOG_READ_ONLY"


class DescriptionError(StoreError):
    """`store.json`, the description of a topic, or the list of users is invalid; the message names file and field."""

    condition = "PYLOG_DESCRIPTION"


class InvalidConfigError(PylogError):
    """A config or argument was refused; nothing was changed."""

    condition = "PYLOG_INVALID_CONFIG"


class UnsupportedByStoreError(InvalidConfigError):
    """What a store of this kind cannot do; the message names the other way."""

    condition = "PYLOG_UNSUPPORTED_BY_STORE"


class InvalidTopicError(InvalidConfigError):
    """A name that no topic can have."""

    condition = "PYLOG_INVALID_TOPIC"


class TopicExistsError(PylogError):
    """A topic of that name exists already."""

    condition = "PYLOG_TOPIC_EXISTS"


class UnknownTopicError(PylogError):
    """The topic, or that partition of it, does not exist."""

    condition = "PYLOG_UNKNOWN_TOPIC_OR_PARTITION"


class UnknownGroupError(PylogError):
    """No record exists of a group of that name."""

    condition = "PYLOG_GROUP_ID_NOT_FOUND"


class GroupNotEmptyError(PylogError):
    """The group has active members, which own its committed offsets."""

    condition = "PYLOG_NON_EMPTY_GROUP"


class FencedMemberError(PylogError):
    """A consumer is no member of its group any more, or does not own what it commits for. Nothing was committed.

    The group has removed it, as it was silent for longer than `max_poll_interval_ms`, or as another consumer has its
    `group_instance_id`.
    """

    condition = "PYLOG_FENCED_MEMBER"


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
        self.log_start, self.log_end, self._advice = log_start, log_end, advice

    def __reduce__(self) -> tuple[type[OffsetOutOfRangeError], tuple[str, int, int, int, int, str]]:
        return type(self), (self.topic, self.partition, self.offset, self.log_start, self.log_end, self._advice)


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

    def __reduce__(self) -> tuple[type[NoOffsetError], tuple[str, int, str | None]]:
        return type(self), (self.topic, self.partition, self.group)


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

    def __reduce__(self) -> tuple[type[DeserializationError], tuple[str, int, int, str, str]]:
        return type(self), (self.topic, self.partition, self.offset, self.part, self.problem)


class WakeupError(PylogError):
    """`Consumer.wakeup` was called; nothing was handed out."""

    condition = "PYLOG_WAKEUP"


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

    def __reduce__(self) -> tuple[type[CorruptRecordError], tuple[str, int, int, str, str, int]]:
        return type(self), (self.reason, self.position, self.base_offset, self.file, self.topic, self.partition)

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

    def __reduce__(self) -> tuple[type[BatchTooLargeError], tuple[int, int, int, int, str, str, int]]:  # type: ignore[override]
        return type(self), (
            self.size,
            self.limit,
            self.position,
            self.base_offset,
            self.file,
            self.topic,
            self.partition,
        )

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
        self.what, self._advice = what, advice

    def __reduce__(self) -> tuple[type[LogDamagedError], tuple[str, str]]:
        return type(self), (self.what, self._advice)


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

    def __reduce__(self) -> tuple[type[SegmentOverflowError], tuple[int, str]]:
        return type(self), (self.base_offset, self.excess)


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

    def __reduce__(self) -> tuple[type[LogDirOfflineError], tuple[int | None, str, str]]:
        return type(self), (self.errno, str(self), self.filename)


class ObjectStoreError(PylogError, OSError):
    """An object store has refused a request, or given no answer in time.

    After one that writes or deletes it is not known whether it was done, unless the class of the error says it.
    """

    condition = "PYLOG_OBJECT_STORE"

    def __init__(self, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable

    def __reduce__(self) -> tuple[object, ...]:
        return _object_store_error, (str(self), self.retriable)


def _object_store_error(message: str, retriable: bool) -> ObjectStoreError:
    return ObjectStoreError(message, retriable=retriable)


class SideFileError(PylogError):
    """A malformed checkpoint, snapshot, transaction index or properties file.

    The message names the file and, where it has lines, the line.
    """

    condition = "PYLOG_SIDE_FILE"


class ProducerError(PylogError):
    """A batch with a producer id was refused; nothing was appended."""

    condition = "PYLOG_PRODUCER"


class OutOfOrderSequenceError(ProducerError):
    """The batch does not follow the producer's last one, and repeats none of its last five."""

    condition = "PYLOG_OUT_OF_ORDER_SEQUENCE"


class InvalidProducerEpochError(ProducerError):
    """A later epoch of that producer id has written here: this producer was fenced."""

    condition = "PYLOG_INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(ProducerError):
    """The producer has a transaction open here, and the batch is not part of one."""

    condition = "PYLOG_INVALID_TXN_STATE"


class TransactionCoordinatorFencedError(ProducerError):
    """A later transaction coordinator has written a marker for that producer: this one was fenced."""

    condition = "PYLOG_TRANSACTION_COORDINATOR_FENCED"


class PartitionOwnedError(PylogError):
    """A node owns the partition: it alone may write to it."""

    condition = "PYLOG_PARTITION_OWNED"


class LockTimeoutError(PylogError):
    """A lock could not be acquired in time; the message names the holder, if the system reports it."""

    condition = "PYLOG_LOCK_TIMEOUT"
    retriable = True


class OutcomeUnknownError(PylogError):
    """An I/O error occurred after bytes were handed to the system: they may or may not be stored.

    The caller reads the log before it tries again. After a publish it calls again with the same publisher and number:
    what was published is not published twice.
    """

    condition = "PYLOG_OUTCOME_UNKNOWN"


class TransactionStateError(PylogError):
    """A call that the state of a transaction does not allow; nothing was changed."""

    condition = "PYLOG_TRANSACTION_STATE"


class PublishError(PylogError):
    """A publish was refused or failed before its decision: this call has published nothing, and nothing will appear."""

    condition = "PYLOG_PUBLISH"


class PublishFailedError(PublishError):
    """Something failed before the decision of a publish. What was staged is kept, so the same call can be repeated.

    Attributes:
        condition: that of the cause (`__cause__`).
        retriable: as of the cause.
    """

    def __init__(self, message: str, condition: str, retriable: bool) -> None:
        super().__init__(message)
        self.condition, self.retriable = condition, retriable

    def __reduce__(self) -> tuple[type[PublishFailedError], tuple[str, str, bool]]:
        return type(self), (str(self), self.condition, self.retriable)


class PublisherFencedError(PublishError):
    """A newer run has taken over this publisher id, or it belongs to another checkpoint.

    Attributes:
        host, process: of the run that has the id now.
        since: since when it has the id, in ms.
    """

    condition = "PYLOG_PUBLISHER_FENCED"

    def __init__(self, message: str, host: str, process: int, since: int) -> None:
        super().__init__(message)
        self.host, self.process, self.since = host, process, since

    def __reduce__(self) -> tuple[type[PublisherFencedError], tuple[str, str, int, int]]:
        return type(self), (str(self), self.host, self.process, self.since)


class PublishNumberError(PublishError):
    """The number is neither the last decided one (a replay) nor the next."""

    condition = "PYLOG_PUBLISH_NUMBER"


class OffsetConflictError(PublishError):
    """A committed offset that a publish or a commit changes was not the expected one; nothing was changed.

    Another reader has read on for the group since: fetch its committed offsets and start again from there.

    Attributes:
        group, topic, partition: of the committed offset.
        expected: the committed offset that was started from; None: none.
        found: the committed offset; None: none.
    """

    condition = "PYLOG_OFFSET_CONFLICT"

    def __init__(self, group: str, topic: str, partition: int, expected: int | None, found: int | None) -> None:
        super().__init__(
            f"group {group!r}, {topic}-{partition}: this started from {_committed(expected)}, but "
            f"{_committed(found)} is committed: another process has moved the group's offset. Nothing was changed; "
            "fetch the committed offsets and begin again from there"
        )
        self.group, self.topic, self.partition = group, topic, partition
        self.expected, self.found = expected, found

    def __reduce__(self) -> tuple[type[OffsetConflictError], tuple[str, str, int, int | None, int | None]]:
        return type(self), (self.group, self.topic, self.partition, self.expected, self.found)


def _committed(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"


class SetAsideError(PublishError):
    """An administrator has set the publish aside before anything of it appeared; it can be published again."""

    condition = "PYLOG_SET_ASIDE"


class StagedOutputError(PublishError):
    """Staged output is missing, or is not what its writer reported."""

    condition = "PYLOG_STAGED_OUTPUT"


class PublishPendingError(PylogError):
    """Something failed after the decision of a publish: it is published, but not all of it is visible yet.

    It appears as soon as it can be written: the next process that publishes or reads writes it, or `pylog recover`,
    which also reports what prevents it. Its records must not be published again under another publisher or number.
    The same call again waits for them to appear.

    Attributes:
        reason: the condition of the cause (`__cause__`).
        retriable: as of the cause.
    """

    condition = "PYLOG_PUBLISH_PENDING"

    def __init__(self, message: str, reason: str, retriable: bool) -> None:
        super().__init__(message)
        self.reason, self.retriable = reason, retriable

    def __reduce__(self) -> tuple[type[PublishPendingError], tuple[str, str, bool]]:
        return type(self), (str(self), self.reason, self.retriable)


class PartlySetAsideError(PublishPendingError):
    """A publish was decided, and an administrator has set it aside: some partitions have it, others never get it."""

    condition = "PYLOG_PARTLY_SET_ASIDE"

    def __init__(self, message: str, reason: str = SetAsideError.condition, retriable: bool = False) -> None:
        super().__init__(message, reason, retriable)
