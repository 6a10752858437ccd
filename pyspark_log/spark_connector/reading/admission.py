"""Micro-batches where Spark has admission control (4.2): it says where one begins, and which limit counts."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_log.errors import UnknownTopicError
from pyspark_log.spark_connector.planning.offsets import to_nested
from pyspark_log.spark_connector.reading.stream_reader import StreamReader
from pyspark_log.spark_connector.store_access import looking_at


class PylogStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """The reader of a query."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits of a trigger: Spark takes one, `latestOffset` keeps to all. Trigger.Once ignores them."""
        limits = self._limits
        if limits.most is not None:
            return ReadMaxRows(limits.most)
        if limits.most_bytes is not None:
            return ReadMaxBytes(limits.most_bytes)
        return ReadAllAvailable() if limits.least is None else ReadMinRows(limits.least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fixes the offsets at which the query ends."""
        with looking_at(self._place) as store:
            store.publishes.apply_pending()
            try:
                self._target = self._log_ends(store, self._partitions(store))
            except UnknownTopicError:
                # `initialOffset` or `latestOffset` reports what that means for this query.
                self._target = {}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` itself if there are no new records."""
        return self._next_end(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The log ends that the last `latestOffset` saw, for the query's progress."""
        return to_nested(self._seen) or None
