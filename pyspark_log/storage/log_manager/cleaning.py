"""Operations on all partitions of a store: retention, deleting records on request, syncing."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark_log.errors import InvalidConfigError, PylogError
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.log import retention
from pyspark_log.storage.log.state.partition_state import check_owner
from pyspark_log.storage.log_manager.manager import LogManager
from pyspark_log.types import LATEST, TopicPartition

log = logging.getLogger(__name__)


def clean(logs: LogManager, topics: Iterable[str]) -> int:
    """Deletes segments that retention no longer keeps; returns how many.

    Raises:
        UnknownTopicError, InvalidTopicError: no such topic.
        PylogError, OSError: the first error of a partition; the others were cleaned.
    """
    count = 0
    failed: PylogError | OSError | None = None
    for topic in topics:
        for place in logs.topic(topic).places():
            try:
                count += clean_partition(logs, TopicPartition(topic, place.partition))
            except (PylogError, OSError) as error:
                log.warning("%s: %s could not be cleaned: %s", logs.path, place, error)
                failed = failed or error
    if failed is not None:
        raise failed
    return count


def clean_partition(logs: LogManager, at: TopicPartition) -> int:
    """Deletes the segments of one partition that retention no longer keeps; returns how many.

    Raises:
        UnknownTopicError, InvalidTopicError: no such topic.
        LockTimeoutError: another process holds the partition for too long.
        PylogError, OSError: its files cannot be read or changed.
    """
    with logs.writer(at.topic, at.partition).hold(timeouts.CLEANING) as writer:
        return retention.clean(writer.log)


def flush(logs: LogManager, topics: Iterable[str]) -> None:
    """Syncs what was appended; see `Store.flush`."""
    failed: PylogError | OSError | None = None
    for topic in topics:
        opened = logs.topic(topic)
        for partition in [place.partition for place in opened.left()]:
            try:
                if opened.reader(partition).state().next_offset:
                    with logs.writer(topic, partition).hold() as writer:
                        writer.log.flush()
            except (PylogError, OSError) as error:
                log.warning("%s: %s-%d could not be synced: %s", logs.path, topic, partition, error)
                failed = failed or error
    logs.write_checkpoints()
    if failed is not None:
        raise failed


def delete_records(logs: LogManager, topic: str, partition: int, before_offset: int) -> int:
    """Deletes the records before an offset, or all for LATEST; returns the log start. See `Store.delete_records`."""
    check_not_internal(topic)
    if not logs.topic(topic).config.deletes:
        raise InvalidConfigError(f"topic {topic!r}: records can be deleted only if cleanup.policy includes delete")
    with logs.writer(topic, partition).hold() as writer:
        check_owner(writer.log.place, writer.state, writer.log.leads)
        end = writer.state.high_watermark
        retention.delete_before(writer.log, end if before_offset == LATEST else before_offset)
        return writer.state.log_start
