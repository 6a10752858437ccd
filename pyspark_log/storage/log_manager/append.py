"""Appends Arrow rows to the partitions of a topic."""

from __future__ import annotations

import pyarrow as pa

from pyspark_log.storage.ingest import RecordAccumulator
from pyspark_log.storage.log import LogWriter
from pyspark_log.storage.log_manager.manager import LogManager
from pyspark_log.types import AppendResult

# An append of more bytes than this is split into several, so that other writers get their turn.
_APPEND_BYTES = 16 * 1024 * 1024


def append_rows(
    logs: LogManager, topic: str, data: pa.RecordBatch | pa.Table, partition: int | None, sync: bool
) -> list[AppendResult]:
    """Appends records to any topic, also an internal one; arguments and errors are those of `Store.append`."""
    opened = logs.topic(topic)
    count = opened.description.partitions
    if partition is not None:
        opened.check(partition)
        data = _with_partition(data, partition)
    batches: dict[int, list[bytes]] = {}
    now = logs.clock()
    encoder = RecordAccumulator(
        topic, count, opened.config, lambda target, batch, _: batches.setdefault(target, []).append(batch),
        now if opened.config.log_append_time else None,
    )  # fmt: skip
    for part in data.to_batches() if isinstance(data, pa.Table) else [data]:
        encoder.add(part, now)
    encoder.flush()
    results: list[AppendResult] = []
    for target, encoded in sorted(batches.items()):
        try:
            results.append(_append_all(logs.writer(topic, target), encoded, sync))
        except Exception as error:
            # Whatever the error: the caller must know what was appended so far.
            error.results = results  # type: ignore[attr-defined]
            raise
    return results


def _with_partition(data: pa.RecordBatch | pa.Table, partition: int) -> pa.RecordBatch | pa.Table:
    column = pa.repeat(pa.scalar(partition, pa.int32()), data.num_rows)
    if "partition" in data.schema.names:
        return data.set_column(data.schema.get_field_index("partition"), "partition", column)
    return data.append_column("partition", column)


def _append_all(writer: LogWriter, batches: list[bytes], sync: bool) -> AppendResult:
    limit = min(_APPEND_BYTES, writer.config.segment_bytes)
    first = end = -1
    data = bytearray()
    for batch in [*batches, None]:
        if data and (batch is None or len(data) + len(batch) > limit):
            with writer.hold():
                base, end, _ = writer.append(data, sync=sync)
            first = base if first < 0 else first
            data = bytearray()
        data += batch or b""
    return AppendResult(writer.place.partition, first, end)
