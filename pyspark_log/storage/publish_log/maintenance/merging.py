"""Merges small pieces of partitions into larger ones, so that reading takes few requests, and the state stays small.

A piece is merged with those after it unless it is more than twice as large as all of them together. So a record is
rewritten some twenty times at most, however small the pieces come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import CorruptRecordError, LogDamagedError, PylogError
from pyspark_log.storage.publish_log import proposals
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.maintenance.rewriting import (
    DECISION_BYTES,
    SETTLED_BYTES,
    Group,
    Rewrites,
    fetch,
    in_turns,
)
from pyspark_log.storage.publish_log.parts.staging import OBJECT_BYTES
from pyspark_log.storage.publish_log.state import Piece, State
from pyspark_log.types import TopicDescription, TopicPartition

_log = logging.getLogger(__name__)

# The most groups that one decision moves.
_MOST_GROUPS = 1000
# After a decision, only partitions with this many small pieces are merged, and no more than these bytes.
_RECENT_PIECES, _RECENT_BYTES = 64, OBJECT_BYTES


class Merged(NamedTuple):
    """What was merged.

    Attributes:
        before, after: the pieces that there were, and what they have become.
        size: their bytes.
    """

    before: int
    after: int
    size: int


def merge(
    log: PublishLog,
    configs: Mapping[str, str],
    clock: Callable[[], int],
    topic: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Merged:
    """Merges the small pieces of a topic, or of all.

    Args:
        log, configs: the store's.
        clock: gives the time in ms.
        topic: None: all.
        progress: called with the bytes that are done, and the approximate total.

    Raises:
        UnknownTopicError: no such topic.
        ObjectStoreError: the object store does not answer; what is merged by then stays.
    """
    state = log.follow()
    topics = state.topics.values() if topic is None else [proposals.topic_of(state, topic)]
    groups = [group for one in topics for group in _groups(state, one, configs)]
    return _merge(log, groups, clock, progress)


def merge_recent(log: PublishLog, configs: Mapping[str, str], clock: Callable[[], int]) -> None:
    """Merges a bounded part of what is due most. Raises nothing: it is work for others."""
    try:
        state, chosen, size = log.follow(), list[Group](), 0
        found = [group for one in state.topics.values() for group in _groups(state, one, configs)]
        for group in sorted(found, key=lambda group: -len(group.pieces)):
            if len(group.pieces) < _RECENT_PIECES or size + group.size > _RECENT_BYTES:
                break
            chosen.append(group)
            size += group.size
        _merge(log, chosen, clock)
    except (PylogError, OSError) as error:
        _log.warning("%s: small pieces could not be merged: %s", log.objects.address, error)


def _groups(state: State, topic: TopicDescription, configs: Mapping[str, str]) -> Iterator[Group]:
    """What is to be merged of a topic."""
    config = TopicConfig.resolve(topic.configs, configs)
    for partition in range(topic.partitions):
        log = state.partitions.get((topic.topic_id, partition))
        run = list[Piece]()
        for piece in [*(log.pieces if log is not None else ()), None]:
            if piece is not None and piece.size < SETTLED_BYTES:
                run.append(piece)
                continue
            for pieces in _parts(run, config):
                yield Group(TopicPartition(topic.name, partition), topic.topic_id, pieces)
            run = []


def _parts(run: Sequence[Piece], config: TopicConfig) -> Iterator[Sequence[Piece]]:
    """Which of small pieces that follow each other become one."""
    most, end = min(OBJECT_BYTES, config.segment_bytes), len(run)
    while end > 0:
        first, size = end - 1, run[end - 1].size
        newest = oldest = run[end - 1].max_timestamp
        while first > 0:
            piece = run[first - 1]
            newest, oldest = max(newest, piece.max_timestamp), min(oldest, piece.max_timestamp)
            if (
                piece.size > 2 * size
                or size + piece.size > most
                or newest - oldest > config.segment_ms
                or run[end - 1].next_offset - piece.base_offset > INT_MAX
            ):
                break
            first, size = first - 1, size + piece.size
        if first < end - 1:
            yield run[first:end]
        end = first


def _merge(
    log: PublishLog,
    groups: Sequence[Group],
    clock: Callable[[], int],
    progress: Callable[[int, int], None] | None = None,
) -> Merged:
    total, done = sum(group.size for group in groups), Merged(0, 0, 0)
    for some in in_turns(groups, DECISION_BYTES, _MOST_GROUPS):
        rewrites, fetched = Rewrites(log, clock()), fetch(log.objects, some)
        for group in some:
            data = [fetched[piece] for piece in group.pieces]
            damage = next((one for one in data if isinstance(one, (CorruptRecordError, LogDamagedError))), None)
            if damage is None:
                rewrites.add(group, [one for one in data if isinstance(one, memoryview)])
            else:
                _log.warning("%s: %s is not merged: %s", log.objects.address, group.at, damage)
        wanted = rewrites.write()
        entry = log.decide(partial(proposals.merge, wanted=wanted)) if wanted else None
        kept = {(one.topic_id, one.partition, one.base_offset) for one in (entry.merges if entry is not None else ())}
        for pieces, one in wanted:
            if (one.topic_id, one.partition, one.base_offset) in kept:
                size = sum(piece.size for piece in pieces)
                done = Merged(done.before + len(pieces), done.after + 1, done.size + size)
        if progress is not None:
            progress(done.size, total)
    return done
