"""Committed positions of consumer groups, kept in the topic `__consumer_offsets` as Kafka keeps them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from pyspark_log.storage import group_positions
from pyspark_log.storage.decided import apply_in, waits_in
from pyspark_log.storage.errors import LockTimeoutError, PublishError
from pyspark_log.storage.group_positions import GroupPositions, OffsetAndMetadata
from pyspark_log.storage.locks import DEFAULT_TIMEOUT
from pyspark_log.storage.store import Store
from pyspark_log.storage.types import TopicPartition

log = logging.getLogger(__name__)

# How long a fetch waits for a partition's lock, in seconds; its holder is at work on it anyway.
_HELP_TIMEOUT = 0.05


class OffsetsLog:
    """Commits and fetches positions of groups; safe to use from several threads and processes.

    Positions that a publish moves (a transaction, say) count from the moment when it is decided. So a position is
    never fetched that a decided publish has left behind, and a commit comes behind all that was decided before it.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives the time of commits, in seconds since 1970."""
        self._store = store
        self._clock = clock

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits the offsets of the next records to read, all of them or none.

        Makes the topic if the store has none (`offsets.topic.num.partitions` partitions, Kafka's 50).

        Raises:
            InvalidConfigError: the group has no name, an offset is negative, or `metadata` is larger than
                4096 bytes; nothing was written.
            StagedOutputError, OSError, LockTimeoutError: also when what was decided for the group's partition
                cannot be applied, which comes first; nothing was written.
        """
        group_positions.check(group, offsets, metadata)
        if not offsets:
            return
        store, place = self._store, group_positions.place_of(self._store, group)
        batches = group_positions.encoded(store, group, offsets, metadata, int(self._clock() * 1000))
        while True:
            apply_in(store, place, DEFAULT_TIMEOUT)
            with store.appender(place.topic, place.partition).hold() as appender:
                # Who decides to move positions holds this lock, too. So nothing comes between look and append.
                if not waits_in(store, place, appender.state.applied):
                    appender.append(bytearray().join(batches), sync=False)
                    return

    def fetch(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of a group; empty for one that nobody has heard of.

        Reads only what was committed since the last call. Applies what was decided for the group's partition, if it may
        write to the store and can; what it returns does not depend on that.

        Raises:
            CorruptRecordError: a record of the group's partition cannot be understood.
            StagedOutputError: what a decision that is not applied does to them cannot be found out.
        """
        store = self._store
        place, _, _ = GroupPositions.of(store).read(store, group)
        if place is not None and store.writable:
            try:
                apply_in(store, place, _HELP_TIMEOUT)
            except (OSError, LockTimeoutError, PublishError) as error:
                log.debug("%s: what was decided for group %s is not applied: %s", store.path, group, error)
        return group_positions.committed(store, group)

    def groups(self) -> list[str]:
        """The names of all groups with a committed position, sorted."""
        return GroupPositions.of(self._store).groups(self._store)
