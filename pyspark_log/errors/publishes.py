"""Errors of writers: producers, transactions and publishes."""

from __future__ import annotations

from pyspark_log.errors.root import PylogError


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


class PartlySetAsideError(PublishPendingError):
    """A publish was decided, and an administrator has set it aside: some partitions have it, others never get it."""

    condition = "PYLOG_PARTLY_SET_ASIDE"

    def __init__(self, message: str, reason: str = SetAsideError.condition, retriable: bool = False) -> None:
        super().__init__(message, reason, retriable)
