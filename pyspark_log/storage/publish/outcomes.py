"""The errors of a publish that say what became of it."""

from __future__ import annotations

from pyspark_log.errors import PublishFailedError, PublishPendingError, condition_of


def failed_error(what: str, error: Exception) -> PublishFailedError:
    """The error of a publish that is not decided; `what` names it."""
    condition = condition_of(error)
    message = f"{what} is not decided; repeat the same call: [{condition}] {error}"
    return PublishFailedError(message, condition, getattr(error, "retriable", False))


def pending_error(publisher: str, number: int, error: Exception) -> PublishPendingError:
    """The error of a publish that is decided, and not applied in all partitions."""
    condition = condition_of(error)
    message = (
        f"number {number} of publisher {publisher!r} is decided and appears as soon as it can be written, by the next "
        "process that publishes or reads, or by `pylog recover`; do not publish its records again. "
        f"In the way: [{condition}] {error}"
    )
    return PublishPendingError(message, condition, getattr(error, "retriable", False))
