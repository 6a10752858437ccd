"""Commits in a store where groups of another store or cluster are."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

from pyspark_log.errors import OffsetConflictError
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.mirror.sources import HasGroups, Source
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_NAME = "pylog mirror"


def follow_groups(store: Store, source: Source, pattern: re.Pattern[str], ends: Mapping[TopicPartition, int]) -> None:
    """Commits the offsets that groups of a source have committed, in copies that have the same offsets.

    Args:
        store: where the copies are.
        source: whose groups.
        pattern: of their names, in which a match is found.
        ends: the log ends of the copies; an offset beyond is committed as this, until the copy has got there.

    Raises:
        PylogError, OSError: as `Source.groups` and `Store.groups`.
    """
    for name, committed in committed_offsets(source, pattern):
        offsets = {at: min(offset, ends[at]) for at, offset in committed.items() if at in ends}
        commit_unless_used(store, name, offsets, _NAME)


def committed_offsets(source: HasGroups, pattern: re.Pattern[str]) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
    """The committed offsets of the groups in whose names a pattern is found, as far as a coordinator answers."""
    for name in filter(pattern.search, source.groups()):
        try:
            yield name, source.committed(name)
        except ClusterError as error:
            log.warning("the next round copies what is missing now: %s", error)


def commit_unless_used(
    store: Store, name: str, offsets: Mapping[TopicPartition, int], mirror: str, *, back: bool = True
) -> int:
    """Commits offsets of a group, unless the group is used in the store itself.

    It is if it has members there, or an offset of these partitions that another than this mirror has committed.

    Args:
        store: where.
        name: the group's.
        offsets: its offsets.
        mirror: the mirror's name, which the metadata of its commits has.
        back: whether an offset may become lower.

    Returns:
        How many offsets were committed.
    """
    group, ours = store.groups[name], f"mirrored by {mirror}"
    committed = group.committed()
    current = {at: committed[at] for at in offsets if at in committed}
    if group.describe().may_have_members or any(entry.metadata != ours for entry in current.values()):
        return 0
    moves = {
        at: offset
        for at, offset in offsets.items()
        if at not in current or offset > current[at].offset or (back and offset != current[at].offset)
    }
    expected = {at: current[at].offset if at in current else None for at in moves}
    try:
        group.commit(moves, ours, expected=expected)
    except OffsetConflictError as error:
        log.warning("group %s is in use in %s, so it stays where it is: %s", name, store.path, error)
        return 0
    return len(moves)
