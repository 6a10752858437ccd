"""Checks a broker's index of aborted transactions (`.txnindex`) against the markers in its log.

Readers of committed records learn from the index which records to leave out. A file that was lost, truncated or
restored from another time would show them aborted records, or hide committed ones, and it has no checksum. So the log
is checked too: the headers of the batches that are read, and of those after them until their transactions have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pyspark_log.storage.log.producers import idempotent_batches
from pyspark_log.storage.segment import AbortedTransaction, SegmentReader


@dataclass(slots=True)
class Ended:
    """The transactions with batches in a range of offsets, by the log.

    Attributes:
        aborted, committed: first the batch that was met first, last the marker.
        abort_markers: producer and offset of each marker that aborts, also of those whose batches are before the range.
        reached: the offset up to which the log was read.
    """

    aborted: list[AbortedTransaction] = field(default_factory=list)
    committed: list[AbortedTransaction] = field(default_factory=list)
    abort_markers: set[tuple[int, int]] = field(default_factory=set)
    reached: int = 0


def ended_in(segments: Iterable[tuple[SegmentReader, int]], start: int, end: int, high_watermark: int) -> Ended:
    """Returns the transactions with batches in [start, end), by the log.

    Args:
        segments: that of `start` and those after it, each with its live bytes; consumed no further than needed.
        start, end: the range.
        high_watermark: what is beyond it does not count.

    Raises:
        CorruptRecordError, LogDamagedError: damage on the way, or a segment that was deleted meanwhile.
    """
    found, first = Ended(reached=start), dict[int, int]()
    for segment, size in segments:
        for header, marker in idempotent_batches(segment, size, start, high_watermark):
            if header.base_offset >= end and not first:
                return found
            found.reached = header.next_offset
            if marker is not None:
                if not marker.commit:
                    found.abort_markers.add((header.producer_id, header.base_offset))
                if (begun := first.pop(header.producer_id, None)) is not None:
                    entry = AbortedTransaction(header.producer_id, begun, header.base_offset, header.next_offset)
                    (found.committed if marker.commit else found.aborted).append(entry)
            elif header.is_transactional and not header.is_control and header.base_offset < end:
                first.setdefault(header.producer_id, header.base_offset)
    return found


def refuted(index: Collection[AbortedTransaction], log: Ended, start: int) -> str:
    """Returns what the log refutes of an index; "": nothing.

    Args:
        index: its entries that reach into a range.
        log: the transactions of that range, by the log.
        start: the range's.
    """
    entries: dict[int, list[AbortedTransaction]] = {}
    for entry in index:
        entries.setdefault(entry.producer_id, []).append(entry)
        if start <= entry.last_offset < log.reached and (entry.producer_id, entry.last_offset) not in log.abort_markers:
            return (
                f"it says that producer {entry.producer_id} aborted a transaction at offset {entry.last_offset}, where "
                "the log has no such marker"
            )
    for ended in log.aborted:
        known = entries.get(ended.producer_id, ())
        if not any(one.last_offset == ended.last_offset and one.first_offset <= ended.first_offset for one in known):
            return (
                f"it lacks the transaction of producer {ended.producer_id} that the marker at offset "
                f"{ended.last_offset} aborts"
            )
    for ended in log.committed:
        for one in entries.get(ended.producer_id, ()):
            if one.first_offset <= ended.last_offset and one.last_offset >= ended.first_offset:
                return (
                    f"it says that producer {one.producer_id} aborted what begins at offset {one.first_offset}, and "
                    f"the marker at offset {ended.last_offset} commits it"
                )
    return ""
