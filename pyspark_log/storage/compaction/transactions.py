"""Tracks the transactions that a cleaning of a partition's log meets, and which of their markers are obsolete
(Kafka's CleanedTransactionMetadata).

The records of an aborted transaction are removed at once. A marker can be removed when no batch of its transaction was
met before it: then an earlier cleaning removed the last of them. So a cleaning must pass all batches of a log to one of
these objects, in order, also those of segments in which it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import decode_end_txn_marker
from pyspark_log.storage.segment import AbortedTransaction


class CleanedTransactions:
    """The transactions of one partition, in one cleaning of its log from its first segment on."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: all that reach into the segments that are cleaned, by the transaction indexes."""
        # The next one last.
        self._ahead = sorted(set(aborted), key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer id, those that are open where the cleaning is
        self._seen: set[int] = set()  # producers of whose open transaction a batch was met
        self._retained: list[AbortedTransaction] = []

    def take_batch(self, producer_id: int, base_offset: int) -> bool:
        """Notes a transactional batch of records; returns whether its transaction was aborted."""
        self._seen.add(producer_id)
        self._reach(base_offset)
        return producer_id in self._aborted

    def take_control(self, header: BatchHeader, data: memoryview) -> bool:
        """Notes a control batch; returns whether it is obsolete.

        Args:
            header: its header.
            data: the whole batch.

        Raises:
            CorruptRecordError: it has no control record; its position is the header's.
        """
        if header.count == 0:
            return True
        marker = decode_end_txn_marker(data, header)
        if marker is None:
            return False
        self._reach(header.base_offset)
        aborted = None if marker.commit else self._aborted.pop(header.producer_id, None)
        if header.producer_id not in self._seen:
            return True
        self._seen.discard(header.producer_id)
        if aborted is not None:
            # For readers that started before the batches were removed.
            self._retained.append(aborted)
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers were met since the last call, and of which batches were met."""
        retained, self._retained = self._retained, []
        return retained

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            entry = self._ahead.pop()
            if entry.last_offset >= offset:
                self._aborted[entry.producer_id] = entry
