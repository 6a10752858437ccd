"""What readers of committed records may see of a partition (`isolation.level`, KIP-98): up to which offset all
transactions are decided, and which of them were aborted.

Both come from the files that Kafka keeps beside the segments: the newest snapshot of producers with the headers after
it, and the indexes of aborted transactions. Nothing is changed, even if a file is damaged.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from pyspark_log.errors import SideFileError
from pyspark_log.storage.fs import Mutex
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.log.producers.manager import idempotent_batches
from pyspark_log.storage.log.producers.state import ProducerStates
from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.segment import AbortedTransaction, SegmentReader, txn_index
from pyspark_log.storage.segment.file_names import SNAPSHOT, TXN_INDEX, segment_path

log = logging.getLogger(__name__)

# The headers of this many records are read in a few ms.
_FEW_RECORDS = 1000


class AbortedRanges:
    """Looks up which batches belong to aborted transactions."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: all aborted transactions whose records may be asked for."""
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for entry in aborted:
            self._ranges.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))
        for ranges in self._ranges.values():
            ranges.sort()

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def hold(self, producer_id: int, base_offset: int) -> bool:
        """Whether the transactional batch of a producer at that offset was aborted."""
        ranges = self._ranges.get(producer_id, ())
        # A producer has one transaction at a time, so its ranges do not overlap.
        number = bisect_right(ranges, base_offset, key=lambda first_last: first_last[0]) - 1
        return number >= 0 and base_offset <= ranges[number][1]


def aborted_between(folder: str, bases: Iterable[int], start: int, end: int) -> list[AbortedTransaction]:
    """Returns the aborted transactions that reach into [start, end).

    Args:
        folder: the partition's.
        bases: of the segment that holds `start`, and of those after it: a transaction's marker may be far after its
            records.
        start, end: a range of offsets in which all transactions are decided.

    Raises:
        SideFileError: an index is damaged.
    """
    indexes = (txn_index.read_entries(segment_path(folder, base, TXN_INDEX), base) for base in bases)
    return txn_index.collect_all(indexes, start, end)


class LastStableOffset:
    """Follows a partition's last stable offset. Safe to use from several threads."""

    def __init__(self) -> None:
        self._states: ProducerStates | None = None
        self._incarnation = -1  # of the log that `_states` were read from
        self._mutex = Mutex()

    def is_near(self, state: PartitionState) -> bool:
        """Whether `follow` has no more to read for a state than a few headers of the active segment."""
        states = self._states
        return (
            states is not None
            and self._incarnation == state.incarnation
            and state.active_base <= states.end_offset
            and 0 <= state.high_watermark - states.end_offset <= _FEW_RECORDS
        )

    def known(self, state: PartitionState) -> int | None:
        """What `follow` would find for a state, if it was called for as long a log; else None."""
        with self._mutex.lock:
            states = self._states
            if states is None or self._incarnation != state.incarnation or states.end_offset != state.high_watermark:
                return None
            return _stable(states, state)

    def pass_over(self, state: PartitionState, start: int, end: int) -> bool:
        """Takes in that no record of [start, end) is of a transaction, `end` being the high watermark of a state.

        Whether all before it is known, and decided; else nothing is taken in.
        """
        with self._mutex.lock:
            states = self._states
            if states is None or self._incarnation != state.incarnation or not start <= states.end_offset <= end:
                return False
            if states.first_unstable_offset is not None:
                return False
            states.end_offset = end
            states.acknowledge(end)
            return True

    def follow(
        self,
        folder: str,
        state: PartitionState,
        first: int,
        segments: Callable[[int], Iterator[tuple[SegmentReader, int]]],
    ) -> int:
        """The offset below which every transaction is decided: the high watermark, or the first record of an open one.

        Args:
            folder: the partition's.
            state: of the partition.
            first: the base offset of its first segment.
            segments: returns the segments from an offset on, each open, with its live bytes.

        Raises:
            CorruptRecordError, LogDamagedError: a segment is damaged, or was deleted meanwhile.
        """
        with self._mutex.lock:
            states, end = self._states, state.high_watermark
            if states is None or self._incarnation != state.incarnation or not first <= states.end_offset <= end:
                states = _restored(folder, first, end)
            elif states.end_offset < state.active_base:
                # The segments in between may be compacted by now, without transaction markers. Snapshots are not.
                states = _restored(folder, states.end_offset + 1, end, states)
            self._states = None  # in case this fails halfway
            for segment, size in segments(states.end_offset):
                for header, marker in idempotent_batches(segment, size, states.end_offset, end):
                    states.enter(header, marker)
            states.end_offset = end
            states.acknowledge(end)
            self._states, self._incarnation = states, state.incarnation
            return _stable(states, state)


def _stable(states: ProducerStates, state: PartitionState) -> int:
    unstable = states.first_unstable_offset
    return state.high_watermark if unstable is None else max(unstable, state.log_start)


def _restored(folder: str, first: int, end: int, states: ProducerStates | None = None) -> ProducerStates:
    """The newest readable snapshot of [first, end]; if none can be read, `states`, or an empty one."""
    for offset in reversed(snapshot.list_snapshots(folder)):
        if first <= offset <= end:
            try:
                return ProducerStates(snapshot.read(segment_path(folder, offset, SNAPSHOT)), offset)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except SideFileError as error:
                log.warning("trying an older snapshot: %s", error)
    return states or ProducerStates(end_offset=first)
