"""The offsets that a consumer commits for its group: by hand, as time passes, or with a transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf

from pyspark_log.errors import FencedMemberError, InvalidConfigError, PylogError, ReadOnlyError
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)


class Commits:
    """The committed offsets of a consumer's group, as far as the consumer is concerned.

    Attributes:
        due: when to commit next, by `time.monotonic`; infinite: never by itself.
        write: commits offsets, as a member of the group; None: as `Group.commit`.
    """

    def __init__(self, store: Store, group: str, interval: float | None) -> None:
        """Commits nothing yet.

        Args:
            store: where.
            group: the group.
            interval: after how many seconds to commit what was handed out; None: not by itself.

        Raises:
            ReadOnlyError: there is an interval, and the store is never written to.
        """
        self._log = store.groups.log
        self._group, self._interval = store.groups[group], interval
        if interval is not None:
            try:
                store.publishes.check_writable()
            except ReadOnlyError as error:
                raise ReadOnlyError(
                    f"{error}: group {group!r} cannot commit there: pass enable_auto_commit=False"
                ) from None
        self.write: Callable[[Mapping[TopicPartition, int]], None] | None = None
        self.due = inf if interval is None else time.monotonic() + interval
        # What is committed, as far as it is known; and where the steps of `progress` begin.
        self._committed: dict[TopicPartition, int | None] = {}
        self._reached: dict[TopicPartition, tuple[int | None, int]] = {}
        self._begun: dict[TopicPartition, int] = {}
        self._all_committed = time.monotonic()

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offsets of partitions; None: there is none. Raises: as Group.committed."""
        offsets = self._group.committed()
        return {at: offsets[at].offset if at in offsets else None for at in partitions}

    def begin(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """Reading begins where these offsets are committed."""
        self._committed |= committed

    def begin_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reading begins at these positions, where it had none before."""
        for at, position in positions.items():
            if at not in self._begun:
                self._begun[at], self._reached[at] = position, (self._committed[at], position)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Reading has ended."""
        for at in partitions:
            self._committed.pop(at, None)
            self._reached.pop(at, None)
            self._begun.pop(at, None)

    def rewound(self) -> dict[TopicPartition, int]:
        """What is committed now, or where reading began without; the steps of `progress` begin there. As `fetch`."""
        committed = self.fetch(self._begun)
        positions = {at: self._begun[at] if offset is None else offset for at, offset in committed.items()}
        self._committed |= committed
        self._reached |= {at: (committed[at], position) for at, position in positions.items()}
        return positions

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets of the next records. Raises: as Group.commit."""
        (self.write or self._group.commit)(offsets)
        self._committed |= offsets
        self._reached |= {at: (offset, offset) for at, offset in offsets.items() if at in self._reached}

    def commit_if_due(self, positions: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Commits positions if it is time for that. An error that time can help is logged, others are raised."""
        now = time.monotonic()
        if self._interval is None or now < self.due:
            return
        self.due = now + self._interval
        try:
            self.commit_moved(positions())
        except (PylogError, OSError) as error:
            # A member that the group has removed joins again.
            if isinstance(error, PylogError) and not error.retriable and not isinstance(error, FencedMemberError):
                raise
            log.warning("%r: offsets could not be committed, which is tried again: %s", self._group.name, error)

    def commit_moved(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commits the positions that are not committed yet, if commits are made by themselves. Raises: as Group.commit.

        From time to time it commits all of them, so that those of a consumer that waits do not expire.
        """
        if self._interval is None:
            return
        now = time.monotonic()
        if now - self._all_committed > self._log.retention_ms / 4000:
            self._all_committed = now
            moved = dict(positions)
        else:
            moved = {at: position for at, position in positions.items() if self._committed.get(at) != position}
        if moved:
            self.commit(moved)

    def progress(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int | None, int]]:
        """What was handed out since the last call, or since reading began: the offsets of `Transaction.send_offsets`.

        Raises:
            InvalidConfigError: offsets are committed by themselves.
        """
        if self._interval is not None:
            raise InvalidConfigError(
                f"group {self._group.name!r}: a transaction moves committed offsets, and so does the consumer, as time "
                "passes: pass enable_auto_commit=False"
            )
        steps = dict[TopicPartition, tuple[int | None, int]]()
        for at, position in positions.items():
            expected, begun = self._reached[at]
            if position != begun:
                steps[at] = expected, position
                self._reached[at] = position, position
        return steps
