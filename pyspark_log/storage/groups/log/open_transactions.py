"""Offsets that were committed in transactions of Kafka's clients: they count once their transaction is committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker

#: The newest value of each key, with the offset of its record.
Newest: TypeAlias = dict[bytes | None, tuple[int, bytes | None]]


class OpenTransactions:
    """The transactions of one partition of `__consumer_offsets` that are not decided where a reader of it is."""

    def __init__(self) -> None:
        """None is open yet."""
        self._records: dict[int, Newest] = {}
        # The offsets of the last records that count, for the keys of those that are not decided.
        self._last: dict[bytes | None, int] = {}

    @property
    def keys(self) -> set[bytes | None]:
        """The keys of the records that are not decided."""
        return {key for records in self._records.values() for key in records}

    def take_in(
        self,
        pairs: Iterable[tuple[bytes | None, bytes | None, int]],
        batches: Iterable[tuple[BatchHeader, EndTxnMarker | None]],
    ) -> Newest:
        """Takes in the next records of the partition; returns what counts from now on.

        As in Kafka, a record that is committed late does not replace one that was written after it.

        Args:
            pairs: keys, values and offsets, in the order of the offsets.
            batches: the batches of the same range that have producer ids, with their markers.
        """
        newest: Newest = {}
        coming = deque((header, marker) for header, marker in batches if header.is_transactional)
        current: BatchHeader | None = None
        for key, value, offset in pairs:
            while coming and coming[0][0].base_offset <= offset:
                header, marker = coming.popleft()
                if header.is_control:
                    self._end(newest, header.producer_id, marker)
                else:
                    current = header
            if current is not None and offset <= current.last_offset:
                self._records.setdefault(current.producer_id, {})[key] = offset, value
            else:
                self._put(newest, key, offset, value)
        for header, marker in coming:
            if header.is_control:
                self._end(newest, header.producer_id, marker)
        return newest

    def _end(self, newest: Newest, producer_id: int, marker: EndTxnMarker | None) -> None:
        ended = self._records.pop(producer_id, {})
        if marker is not None and marker.commit:
            for key, (offset, value) in ended.items():
                if self._last.get(key, -1) < offset:
                    self._put(newest, key, offset, value)
        waiting = self.keys
        self._last = {key: offset for key, offset in self._last.items() if key in waiting}

    def _put(self, newest: Newest, key: bytes | None, offset: int, value: bytes | None) -> None:
        newest[key] = offset, value
        if any(key in records for records in self._records.values()):
            self._last[key] = offset
