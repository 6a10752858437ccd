"""Creates a copy's producer files (snapshots, aborted transactions) from its batches.

They are those that a writer would have left: a snapshot where each segment begins, and the aborted transactions of
each. The content of deleted segments is known only from the snapshot at the log's first segment, so that one is copied
if it can be read.
"""

from __future__ import annotations

from pyspark_log.errors import CorruptRecordError, SideFileError
from pyspark_log.storage.fs.clock import Clock
from pyspark_log.storage.log.producers import ProducerEntry, ProducerStates, snapshot
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import MAX_MARKER_BYTES, decode_end_txn_marker
from pyspark_log.storage.segment.file_names import SNAPSHOT, TXN_INDEX, segment_path
from pyspark_log.storage.segment.txn_index import TxnIndex


def marker_fault(header: BatchHeader, batch: bytes | bytearray) -> str:
    """Why a producer's control batch cannot be decoded; "" for all other batches."""
    if header.producer_id >= 0 and header.is_control:
        try:
            decode_end_txn_marker(bytes(batch[:MAX_MARKER_BYTES]), header)
        except CorruptRecordError as error:
            return error.reason
    return ""


class ProducerFiles:
    """The producer files of one partition of a copy; call it for each segment and batch in order, and at the end.

    Attributes:
        seen: whether producers with ids have written here.
    """

    def __init__(self, source: str, folder: str, expiration: int, clock: Clock, *, seen: bool) -> None:
        """Writes nothing yet.

        Args:
            source: the damaged partition's folder.
            folder: the copy's.
            expiration: producer.id.expiration.ms.
            clock: what time it is.
            seen: what the damaged partition's state says.
        """
        self.seen = seen
        self._source, self._folder, self._expiration, self._clock = source, folder, expiration, clock
        self._states: ProducerStates | None = None
        self._index: TxnIndex | None = None

    def begin(self, base_offset: int) -> None:
        """A segment begins."""
        self.end()
        if self._states is None:
            self._states = ProducerStates(self._adopted(base_offset), base_offset)
        self._states.expire(self._clock(), self._expiration)
        if self.seen and base_offset:
            snapshot.write(self._folder, base_offset, self._states.entries)
        self._index = TxnIndex(segment_path(self._folder, base_offset, TXN_INDEX), base_offset)

    def _adopted(self, base_offset: int) -> list[ProducerEntry]:
        try:
            entries = snapshot.read(segment_path(self._source, base_offset, SNAPSHOT))
        except (FileNotFoundError, SideFileError):
            return []
        self.seen = True
        return entries

    def take(self, header: BatchHeader, batch: memoryview) -> None:
        """A batch was added to the segment."""
        if header.producer_id < 0:
            return
        assert self._states is not None
        assert self._index is not None
        self.seen = True
        marker = decode_end_txn_marker(bytes(batch[:MAX_MARKER_BYTES]), header) if header.is_control else None
        if marker is not None:
            aborted = self._states.aborted_by(header, marker)
            if aborted is not None:
                self._index.append(aborted)
        self._states.enter(header, marker)

    def end(self) -> None:
        """The segment, and perhaps the log, ends: its index is on the disk when this returns."""
        if self._index is not None:
            self._index.sync()
            self._index.close()
