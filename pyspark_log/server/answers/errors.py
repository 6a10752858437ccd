"""The engine's errors as Kafka's error codes."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from pyspark_log import errors
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.answers.refusal import RefusedError

_log = logging.getLogger(__name__)

# The first class that an error is of counts.
_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (errors.InvalidTopicError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (errors.UnknownTopicError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (errors.TopicExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (errors.InvalidConfigError, ErrorCode.INVALID_CONFIG),
    (errors.OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (errors.RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (errors.InvalidTimestampError, ErrorCode.INVALID_TIMESTAMP),
    (errors.InvalidRecordError, ErrorCode.INVALID_RECORD),
    (errors.CorruptRecordError, ErrorCode.CORRUPT_MESSAGE),
    (errors.OutOfOrderSequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (errors.InvalidProducerEpochError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (errors.InvalidTxnStateError, ErrorCode.INVALID_TXN_STATE),
    # A store that cannot be written refuses as an authorizer would: that is what clients stop for, with its message.
    (errors.ReadOnlyError, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (errors.PartitionOwnedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.LockTimeoutError, ErrorCode.REQUEST_TIMED_OUT),
    # Clients try these again, as it may be another disk or broker then.
    (errors.LogDamagedError, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.SideFileError, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.OutcomeUnknownError, ErrorCode.KAFKA_STORAGE_ERROR),
    (OSError, ErrorCode.KAFKA_STORAGE_ERROR),
)  # fmt: skip

# The system does not let the server write there: that is no fault of the disk, after which clients try again.
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
#: What is the server's fault, and is logged.
_OURS = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT)


def code_of(error: Exception) -> ErrorCode:
    """The code of an error, which is logged if it is not the client's fault."""
    if isinstance(error, RefusedError):
        return error.code
    if isinstance(error, OSError) and error.errno in _READ_ONLY:
        _log.warning("refused, as this process may not write: %s", error)
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    code = next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.UNKNOWN_SERVER_ERROR)
    if code in _OURS:
        _log.error("%s", error, exc_info=None if isinstance(error, (errors.PylogError, OSError)) else error)
    return code


def attempt(action: Callable[[], None]) -> tuple[ErrorCode, str | None]:
    """Does one part of a request: the error code, and what is wrong."""
    try:
        action()
    except RefusedError as error:
        return error.code, str(error)
    except (errors.PylogError, OSError) as error:
        return code_of(error), str(error)
    return ErrorCode.NONE, None
