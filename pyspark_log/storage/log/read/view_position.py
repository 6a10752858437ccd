"""How far a process has followed a compacted log of which it keeps a view in memory."""

from __future__ import annotations

from pyspark_log.storage.log.state.partition_state import PartitionState


class ViewPosition:
    """The position of a view, and the rule for whether the view may be continued from there.

    Attributes:
        position: the offset up to which the view has read.
    """

    def __init__(self) -> None:
        """Nothing is read yet."""
        self.position = -1
        self._at = 0
        self._seen: tuple[object, int] = (None, -1)

    def must_rebuild(self, state: PartitionState, end: int, now: int, tombstones_stay: int, store: object) -> bool:
        """Whether the view must be dropped and rebuilt from the log start, which is its position then.

        It must if the log is another one, or was truncated or recovered; also if the view was not followed for half of
        the time for which compaction keeps tombstones: a tombstone that was never seen may be gone. Records that were
        read change in no other way, except by a move of the log start.

        Args:
            state: the log's current state.
            end: how far it can be read.
            now: the time before `state` was read, in ms: this process may be suspended in between.
            tombstones_stay: for how long compaction keeps a tombstone, in ms.
            store: identifies the store, so that a copy that has replaced it is recognized.
        """
        seen = (store, state.incarnation)
        slept = not 0 <= now - self._at < tombstones_stay // 2
        again = slept or seen != self._seen or not state.log_start <= self.position <= end
        if again:
            # Until `advance`, each call says so: the caller may be stopped before it has dropped the view.
            self._at, self._seen, self.position = 0, seen, state.log_start
        return again

    def advance(self, end: int, now: int) -> None:
        """Records that the view has read up to `end`; a view that could not be read to its end was not followed."""
        self.position, self._at = end, now
