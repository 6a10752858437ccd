"""The batches of a segment that have producer ids, with the markers among them."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_log.storage.record import MAX_MARKER_BYTES, BatchHeader, EndTxnMarker, decode_end_txn_marker
from pyspark_log.storage.segment import SegmentReader, read_headers


def idempotent_batches(
    segment: SegmentReader, size: int, start: int, until: int
) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
    """Those of [start, until), by their headers; CRCs are not looked at.

    Args:
        segment: where.
        size: how many of its bytes count.
        start: passed over is what ends before it.
        until: it ends at a batch that reaches beyond it.

    Raises:
        CorruptRecordError: damage on the way.
    """
    for header in read_headers(segment.log, segment.position_of(start, size), size, segment.until):
        if header.next_offset > until:
            break
        if header.producer_id >= 0 and header.last_offset >= start:
            data = segment.log.pread(min(header.size, MAX_MARKER_BYTES), header.position) if header.is_control else b""
            yield header, decode_end_txn_marker(data, header) if data else None
