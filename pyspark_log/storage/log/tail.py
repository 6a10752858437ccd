"""The end of a log to which a process appends in a row: it keeps the lock, so nothing need be looked at again."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.appends import Appended, Outcomes, end_not_moved
from pyspark_log.storage.log.state_file import Flags, Intent, Loaded, MovingEnd, PartitionState
from pyspark_log.storage.record import BatchHeader, assign_offsets, scan
from pyspark_log.storage.segment import SegmentWriter

# After this many batches they are added to the segment, if none of them got an index entry before.
_MOST_BATCHES = 1024


class Tail:
    """Appends batches that need nothing else: no sync, no other segment, no look at their producers.

    It does what `LogWriter` does for these, in the same order: bytes, then the log end, then index entries. It is used
    for as long as the process keeps the lock; the next one that takes the lock takes over what it has changed
    (`LogWriter.take_over`).

    Attributes:
        start: the log end at its beginning.
        segment: the active segment.
        needs_index: whether one of the batches that were appended gets an index entry, which is not written yet; or
            there are many of them.
    """

    def __init__(self, state_file: files.File, loaded: Loaded, segment: SegmentWriter) -> None:
        state = loaded.state
        self.start = state.next_offset
        self.segment, self._end = segment, MovingEnd(state_file, loaded)
        self._epoch, self._reserve = state.leader_epoch, state.reserve
        self._limits = segment.limits()
        self.renew()
        self._unindexed: list[BatchHeader] = []

    @staticmethod
    def suits(state: PartitionState, config: TopicConfig) -> bool:
        """Whether a log can have one: it is in order, some of it is unsynced already, and no append has to sync."""
        return (
            state.synced < state.position and state.intent == Intent.NONE and not state.flags & ~Flags.PRODUCERS
            and config.flush_messages == config.flush_ms == LONG_MAX
        )  # fmt: skip

    def append(self, batches: Sequence[bytes | bytearray]) -> Outcomes | None:
        """Appends batches as `LogWriter.append_each`; None: they need more than is done here, and nothing was done.

        Raises:
            OSError: bytes beyond the log end may have been written.
            OutcomeUnknownError: the end could not be moved.
        """
        end, data = self._end, bytearray().join(batches)
        position = end.position + len(data)
        next_offset = assign_offsets(data, 0, len(data), end.next_offset, self._epoch)
        limits = self._limits
        if position > limits.position or next_offset > limits.next_offset or next_offset > self._reserve:
            return None
        headers = scan(data, 0, len(data))
        for header in headers:
            if header.producer_id >= 0 or header.max_timestamp > limits.timestamp:
                return None
        self.segment.log.pwrite(data, end.position)
        try:
            end.move(next_offset, position)
        except OSError as error:
            raise end_not_moved(self.segment.log.path, next_offset, error) from error
        self._unindexed += headers
        self._until_entry -= len(data)
        self.needs_index = self._until_entry + headers[-1].size < 0 or len(self._unindexed) >= _MOST_BATCHES
        return [Appended(header.base_offset, header.next_offset) for header in headers]

    def unindexed(self) -> list[BatchHeader]:
        """The batches that the segment has not taken in; it takes them in now."""
        headers, self._unindexed = self._unindexed, []
        return headers

    def renew(self) -> None:
        """Goes on after the segment has taken in the batches."""
        self._until_entry = self.segment.until_entry
        if self.segment.indexes_are_full:
            self._limits = self.segment.limits()  # Nothing fits any more.
        self.needs_index = False

    def loaded(self) -> Loaded:
        """The partition's state as it is now."""
        return self._end.loaded()
