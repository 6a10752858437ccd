"""Deletes what exceeds its retention, and objects that nothing needs any more; see docs/internals/publish-log.md.

No object is deleted that a running process may still want: it must have been in a list of such objects for a day.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import zstandard

from pyspark_log.config import TopicConfig, int_config
from pyspark_log.errors import LogDamagedError
from pyspark_log.storage.publish_log import checkpoint, floors, naming, proposals
from pyspark_log.storage.publish_log.entries import sums
from pyspark_log.storage.publish_log.entries.changes import LogStart
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.state import PartitionLog, State
from pyspark_log.types import NO_TIMESTAMP, TopicDescription

#: An object that nothing needs stays for this time (ms), as readers may have planned before.
DELAY_MS = 24 * 60 * 60 * 1000
#: Entries of the log stay for this time (ms) at least.
ENTRIES_MS = 7 * 24 * 60 * 60 * 1000
# The most names of one list, and of one request to delete.
_MOST_NAMES, _AT_ONCE = 100_000, 1000
# Far more than the names of a list take.
_MOST_BYTES = 1 << 30


class Cleaned(NamedTuple):
    """What was cleaned.

    Attributes:
        pieces: pieces of partitions that exceeded the retention.
        deleted: objects that were deleted.
        unused: objects of which nothing needs any by now; a clean after DELAY_MS deletes them.
    """

    pieces: int
    deleted: int
    unused: int


def clean(log: PublishLog, configs: Mapping[str, str], clock: Callable[[], int], topic: str | None = None) -> Cleaned:
    """Applies the retention of a topic, or of all; then also deletes objects that nothing needs.

    Raises:
        UnknownTopicError: no such topic.
        ObjectStoreError: the object store does not answer; what is done by then stays.
        CorruptRecordError, LogDamagedError: the log is damaged.
    """
    now, state = clock(), log.follow()
    topics = list(state.topics.values()) if topic is None else [proposals.topic_of(state, topic)]
    pieces = _expire(log, configs, topics, now)
    if topic is not None:
        return Cleaned(pieces, 0, 0)
    lifetime = int_config(configs, "staged.output.expiration.ms")
    log.decide(lambda state: proposals.set_horizon(state, now - lifetime))
    _raise_floor(log, now)
    deleted, listed = _delete_listed(log, now)
    return Cleaned(pieces, deleted, len(listed) + _list_unused(log, clock, listed))


# ---- retention


def _expire(log: PublishLog, configs: Mapping[str, str], topics: list[TopicDescription], now: int) -> int:
    count, starts, state = 0, list[LogStart](), log.follow()
    for topic in topics:
        config = TopicConfig.resolve(topic.configs, configs)
        for partition in range(topic.partitions) if config.deletes else ():
            partition_log = state.partitions.get((topic.topic_id, partition), PartitionLog())
            expired = _expired(partition_log, config, now)
            if expired:
                starts.append(LogStart(topic.topic_id, partition, partition_log.pieces[expired - 1].next_offset))
                count += expired
    if starts:
        log.decide(lambda state: proposals.expire(state, starts))
    return count


def _expired(log: PartitionLog, config: TopicConfig, now: int) -> int:
    """How many of the first pieces exceed the retention, by time or size (Kafka's rules for segments)."""
    count, left = 0, sum(piece.size for piece in log.pieces)
    for piece in log.pieces:
        is_old = piece.max_timestamp != NO_TIMESTAMP and 0 <= config.retention_ms < now - piece.max_timestamp
        if not is_old and not 0 <= config.retention_bytes <= left - piece.size:
            break
        count, left = count + 1, left - piece.size
    return count


# ---- the floor


def _raise_floor(log: PublishLog, now: int) -> None:
    """Sets the floor to the last checkpoint that is old enough, and sees to it that the floor's object is there."""
    state, objects = log.follow(), log.objects
    # Before the next one is decided: a process that has slept looks for one after the other.
    _write_floor(log, state)
    known = (naming.number(one.key, "checkpoint") for one in objects.list("checkpoint"))
    numbers = sorted(number for number in known if number is not None and number > state.floor)
    # The first one that is too young; their times go up with their numbers.
    young = bisect_left(numbers, True, key=lambda number: not _is_old(log, number, now))
    if young:
        floor = numbers[young - 1]
        checkpoint.read(objects, floor)
        log.decide(partial(proposals.set_floor, floor=state.floor, number=floor))
        _write_floor(log, log.follow())


def _write_floor(log: PublishLog, state: State) -> None:
    if state.floors:
        floors.write(log.objects, state.floors, state.floor)


def _is_old(log: PublishLog, number: int, now: int) -> bool:
    entry = log.entry(number)
    return entry is None or entry.origin.time <= now - ENTRIES_MS


# ---- objects


def _delete_listed(log: PublishLog, now: int) -> tuple[int, set[str]]:
    """Deletes what lists of unused objects name for long enough; how many, and what other lists name."""
    count, listed, objects = 0, set[str](), log.objects
    for one in list(objects.list(naming.UNUSED)):
        time, found = naming.staged_time(one.key), objects.get(one.key)
        if time is None or found is None:
            continue  # It is none of ours, or another process has just deleted it.
        names = _read(bytes(found.data), f"{objects.address}/{one.key}")
        if time > now - DELAY_MS:
            listed.update(names)
            continue
        for start in range(0, len(names), _AT_ONCE):
            objects.delete(names[start : start + _AT_ONCE])
        objects.delete([one.key])
        count += len(names)
    return count, listed


def _list_unused(log: PublishLog, clock: Callable[[], int], listed: set[str]) -> int:
    """Lists what nothing needs any more and no list has; how many objects."""
    names = [name for name in _unused(log, log.follow()) if name not in listed]
    for start in range(0, len(names), _MOST_NAMES):
        data = zstandard.ZstdCompressor().compress(json.dumps(names[start : start + _MOST_NAMES]).encode())
        # The time is read now: this process may have been stopped since it has read the state.
        log.objects.put(naming.new(naming.UNUSED, clock()), data)
    return len(names)


def _unused(log: PublishLog, state: State) -> Iterator[str]:
    used = {piece.object for one in state.partitions.values() for piece in one.pieces}
    used |= {piece.object for transaction in state.open.values() for _, piece in transaction.pieces}
    used |= {document.object for document in state.documents.values()}
    objects = log.objects
    for kind in (naming.STAGED, naming.MERGED, naming.DOCUMENTS):
        for one in objects.list(kind):
            time = naming.staged_time(one.key)
            if time is not None and time < state.horizon and one.key not in used:
                yield one.key
    for kind, most in (("log", state.floor), ("sum", state.floor - sums.BLOCK + 1), ("checkpoint", state.floor - 1)):
        for one in objects.list(kind):
            number = naming.number(one.key, kind)
            if number is not None and number <= most and one.key not in used:
                yield one.key


def _read(data: bytes, where: str) -> list[str]:
    try:
        names = json.loads(zstandard.ZstdDecompressor().decompress(data, _MOST_BYTES))
    except (ValueError, zstandard.ZstdError) as error:
        raise LogDamagedError(f"{where} is no list of objects: {error}; delete it") from None
    # Whatever a list says, nothing else is ever deleted.
    return [name for name in names if naming.is_given(name)]
