"""Errors as Spark's users see them.

Only an exception's text, not its type, reaches the driver from a Python worker. So each error that leaves the
connector starts with a stable name in brackets, which a program (or a search) can rely on. Spark puts a text of its own
around it, and would put a traceback between the two: `conditions_shown` and `outcome_shown` leave that out, so that the
second line has the sentence that the user needs, and nothing else.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_log.errors import OutcomeUnknownError, PartlySetAsideError, PublishPendingError, PylogError, condition_of
from pyspark_log.spark_connector.worker_process import hide_traceback, is_spark_process

log = logging.getLogger(__name__)


class ConnectorError(PylogError):
    """An error whose text starts with its condition in brackets.

    Attributes:
        condition: the stable name, such as PYLOG_DATA_LOSS.PARTITIONS_DELETED.
    """

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message

    def __str__(self) -> str:
        """In Spark's processes on a line of its own: Spark puts 130 characters before it, a notebook's whole line."""
        return f"\n{super().__str__()}" if is_spark_process() else super().__str__()


def option_error(message: str) -> ConnectorError:
    """The error for options that are missing, malformed or contradictory."""
    return ConnectorError("PYLOG_INVALID_OPTION", message)


def data_loss(reason: str, message: str) -> ConnectorError:
    """The error for records that a query still had to read and that no longer exist.

    Args:
        reason: the part after the dot, named as the Kafka connector names its KAFKA_DATA_LOSS conditions.
        message: what was found.
    """
    return ConnectorError(
        f"PYLOG_DATA_LOSS.{reason}",
        f"{message} Some data may have been lost because it is not available in the store any more: either "
        "retention removed it, or the topic was recreated, before everything in it was processed. To continue without "
        "it, set the option failOnDataLoss to false.",
    )


class LossPolicy:
    """What a read does where records that it had to read are missing: the option `failOnDataLoss`."""

    def __init__(self, *, fail: bool = True) -> None:
        self.fail = fail
        self._warned: set[str] = set()

    def report(self, reason: str, message: str) -> None:
        """Raises the error, or warns of it, once.

        Raises:
            ConnectorError: PYLOG_DATA_LOSS, unless the option is false.
        """
        if self.fail:
            raise data_loss(reason, message)
        if message not in self._warned:
            self._warned.add(message)
            log.warning("[PYLOG_DATA_LOSS.%s] %s The query continues: failOnDataLoss is false.", reason, message)


@contextmanager
def conditions_shown() -> Iterator[None]:
    """Prefixes each engine error's message with its condition, and the system's errors with one too."""
    try:
        yield
    except ConnectorError:
        hide_traceback()
        raise
    except (PylogError, OSError) as error:
        hide_traceback()
        raise ConnectorError(condition_of(error), str(error)) from error


@contextmanager
def outcome_shown() -> Iterator[None]:
    """The same for a publish, with its outcome in words after the condition."""
    try:
        yield
    except (PylogError, OSError) as error:
        hide_traceback()
        text = error.message if isinstance(error, ConnectorError) else str(error)
        raise ConnectorError(condition_of(error), f"{_outcome(error)}: {text}") from error


def _outcome(error: PylogError | OSError) -> str:
    if isinstance(error, PublishPendingError):
        return "published in part" if isinstance(error, PartlySetAsideError) else "published and pending"
    return "unknown whether published" if isinstance(error, OutcomeUnknownError) else "not published"


class _StandardError(logging.Handler):
    """Writes warnings in the form of Spark's log lines; skipped if the root logger has a handler, which shows them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            print(self.format(record), file=sys.stderr, flush=True)


def show_warnings() -> None:
    """Makes this process show warnings from now on; call once."""
    logging.getLogger("pyspark_log").addHandler(_StandardError())
