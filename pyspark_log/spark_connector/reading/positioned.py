"""Micro-batches where Spark has no admission control (4.0, 4.1): the reader has to know where the last one ended.

It is asked for offsets in a process that lives as long as the query. When a query starts again, Spark first has it plan
the last micro-batch of the checkpoint, or an empty one at its end. So if nothing was planned before the first
`latestOffset`, the query is new.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition

from pyspark_log.spark_connector.planning.offsets import SourceOffset
from pyspark_log.spark_connector.reading.stream_reader import StreamReader


class PositionedStreamReader(StreamReader):
    """The reader of a query."""

    _position: dict[str, Any] | None = None

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """The end of the next micro-batch, within the limits of the options; the one before if there are no records."""
        if self._position is not None:
            self._position = self._next_end(self._position, is_limited=True)
            return self._position
        end = self._next_end(self.initialOffset(), is_limited=True)
        offset = SourceOffset.from_json(end)
        if offset.is_initial:
            # Spark runs batch 0 in any case, which ends here.
            end = SourceOffset(offset.offsets, self._new_group, offset.offsets, offset.identity).to_json()
        self._position = end
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """As StreamReader.partitions."""
        self._position = self._position or end
        return super().partitions(start, end)
