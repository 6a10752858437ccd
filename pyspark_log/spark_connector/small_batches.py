"""Streaming reads whose small micro-batches need no Python task: the process that plans them hands their rows to Spark.

PySpark does so for simple stream readers, by a wrapper that is private to it. Where it has none like that, small
micro-batches are read by one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource_internal
from pyspark.sql.datasource import InputPartition

from pyspark_log.spark_connector.stream_reader import PylogStreamReader
from pyspark_log.spark_connector.task_reader import read_partition

_WRAPPER = "_SimpleStreamReaderWrapper"


def small_batch_reader() -> type[PylogStreamReader]:
    """The class of reader for the option `smallBatchBytes`."""
    wrapper = getattr(datasource_internal, _WRAPPER, None)
    if not hasattr(wrapper, "getCache"):
        return PylogStreamReader

    class HandingOver(PylogStreamReader, wrapper):  # type: ignore[misc,valid-type]
        """Hands over the rows of a micro-batch that one task would read. Spark asks for them after the partitions."""

        def __init__(self, *arguments: Any) -> None:  # noqa: ANN401
            super().__init__(*arguments)
            # PySpark asks it for Trigger.AvailableNow.
            self.simple_reader = self
            self._task: InputPartition | None = None

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            """The ranges of one micro-batch."""
            planned = super().partitions(start, end)
            self._task = planned[0] if self.is_one_task and len(planned) == 1 else None
            return planned

        def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch] | None:  # noqa: N802
            """The rows of the micro-batch that was just planned; None: its tasks read them."""
            task, self._task = self._task, None
            return None if task is None else read_partition(task)

    return HandingOver
