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
    |-- SchemaError            a schema is missing, is none, or has what columns cannot have
    |   `-- IncompatibleSchemaError
    |-- RegistryError          a schema registry has refused or not answered a request
    |-- BadValueError          a key or a value does not fit its schema; has its place
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

from pyspark_log.errors.clients import (
    DeserializationError,
    FencedMemberError,
    NoOffsetError,
    OffsetOutOfRangeError,
    WakeupError,
)
from pyspark_log.errors.publishes import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LockTimeoutError,
    OffsetConflictError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    PartitionOwnedError,
    PartlySetAsideError,
    ProducerError,
    PublisherFencedError,
    PublishError,
    PublishFailedError,
    PublishNumberError,
    PublishPendingError,
    SetAsideError,
    StagedOutputError,
    TransactionCoordinatorFencedError,
    TransactionStateError,
)
from pyspark_log.errors.records import (
    BatchTooLargeError,
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    LogDamagedError,
    LogDirOfflineError,
    ObjectStoreError,
    OutdatedReadError,
    RecordTooLargeError,
    SegmentOverflowError,
    SideFileError,
)
from pyspark_log.errors.root import PylogError, condition_of, shortened
from pyspark_log.errors.schemas import BadValueError, IncompatibleSchemaError, RegistryError, SchemaError
from pyspark_log.errors.stores import (
    DescriptionError,
    GroupNotEmptyError,
    InvalidConfigError,
    InvalidTopicError,
    ReadOnlyError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreVersionError,
    TopicExistsError,
    UnknownGroupError,
    UnknownTopicError,
    UnsupportedByStoreError,
)

__all__ = [
    "BadValueError",
    "BatchTooLargeError",
    "CorruptRecordError",
    "DescriptionError",
    "DeserializationError",
    "FencedMemberError",
    "GroupNotEmptyError",
    "IncompatibleSchemaError",
    "InvalidConfigError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTxnStateError",
    "LockTimeoutError",
    "LogDamagedError",
    "LogDirOfflineError",
    "NoOffsetError",
    "ObjectStoreError",
    "OffsetConflictError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "OutcomeUnknownError",
    "OutdatedReadError",
    "PartitionOwnedError",
    "PartlySetAsideError",
    "ProducerError",
    "PublishError",
    "PublishFailedError",
    "PublishNumberError",
    "PublishPendingError",
    "PublisherFencedError",
    "PylogError",
    "ReadOnlyError",
    "RecordTooLargeError",
    "RegistryError",
    "SchemaError",
    "SegmentOverflowError",
    "SetAsideError",
    "SideFileError",
    "StagedOutputError",
    "StoreError",
    "StoreExistsError",
    "StoreNotFoundError",
    "StoreVersionError",
    "TopicExistsError",
    "TransactionCoordinatorFencedError",
    "TransactionStateError",
    "UnknownGroupError",
    "UnknownTopicError",
    "UnsupportedByStoreError",
    "WakeupError",
    "condition_of",
    "shortened",
]
