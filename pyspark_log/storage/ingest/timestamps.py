"""Refuses records whose times are too far from the clock, as a broker does (LogValidator; KIP-937).

And warns of records that retention is about to delete, which a broker accepts silently.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.errors import InvalidTimestampError
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.types import NO_TIMESTAMP

log = logging.getLogger(__name__)


def check_times(
    bounds: tuple[int, int], times: Callable[[], Iterable[int | None]], config: TopicConfig, now: int, where: object
) -> None:
    """Checks the timestamps of records.

    Args:
        bounds: the smallest and the largest one, in ms.
        times: returns that of each record, in ms; None and NO_TIMESTAMP are never refused.
        config: the topic's configs; with LogAppendTime these timestamps are not used.
        now: the time in ms.
        where: the topic, for errors.

    Raises:
        InvalidTimestampError: a time is outside of what message.timestamp.before.max.ms and .after.max.ms allow.
    """
    if config.log_append_time:
        return
    oldest = max(now - config.message_timestamp_before_max_ms, NO_TIMESTAMP)
    newest = min(now + config.message_timestamp_after_max_ms, LONG_MAX)
    if oldest <= bounds[0] and bounds[1] <= newest:
        return
    refused = [
        (row, time)
        for row, time in enumerate(times())
        if time is not None and time != NO_TIMESTAMP and not oldest <= time <= newest
    ]
    if not refused:
        return
    row, time = refused[0]
    if time > newest:
        side, limit = "after", config.message_timestamp_after_max_ms
    else:
        side, limit = "before", config.message_timestamp_before_max_ms
    error = InvalidTimestampError(
        f"{where}: record {row} has the time {time} (ms), and the clock says {now}: more than "
        f"message.timestamp.{side}.max.ms ({limit}) {side} it; correct the time, or raise that config of the topic"
    )
    error.records = tuple(row for row, _ in refused)
    raise error


def is_past_retention(newest: int, config: TopicConfig, now: int) -> bool:
    """Whether records of the time `newest` (ms) and before are past the topic's retention at the time `now` (ms)."""
    by_age = config.deletes and config.retention_ms >= 0 and not config.log_append_time
    return by_age and 0 <= newest < now - config.retention_ms


def warn_past_retention(newest: int, config: TopicConfig, where: object) -> None:
    """Warns that records of the time `newest` (ms) and before, past the topic's retention, are being written."""
    log.warning(
        "%s: records of %s and before are past the topic's retention.ms (%d) already: the next "
        "cleaning deletes them. Set retention.ms=-1 to keep them",
        where,
        format_time(newest),
        config.retention_ms,
    )
