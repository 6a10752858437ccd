"""Compacts partitions: keeps the last record of each key. The rules are those of compaction/plan.py, for pieces."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile

from pyspark_log.config import INT_MAX, TopicConfig, int_config
from pyspark_log.errors import CorruptRecordError, InvalidConfigError, LogDamagedError, PylogError
from pyspark_log.storage.compaction import Cleaned, Due, Outcome
from pyspark_log.storage.compaction.filter import BatchFilter, CleanedOutput
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.transactions import CleanedTransactions
from pyspark_log.storage.publish_log import proposals
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.maintenance.rewriting import DECISION_BYTES, Group, Rewrites, fetch
from pyspark_log.storage.publish_log.parts.staging import OBJECT_BYTES
from pyspark_log.storage.publish_log.state import PartitionLog, Piece, State
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.types import TopicDescription, TopicPartition

_log = logging.getLogger(__name__)

# What a key takes of the memory for keys, and how many more are made room for, so that a small map is not too full.
_KEY_BYTES, _SPARE_KEYS = 24, 64


def compact(
    log: PublishLog,
    configs: Mapping[str, str],
    clock: Callable[[], int],
    topic: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Outcome]:
    """Compacts what is due, the dirtiest partition first; arguments and errors are those of compaction.compact."""
    state = log.follow()
    if topic is not None and not _config(proposals.topic_of(state, topic), configs).compact:
        raise InvalidConfigError(f"topic {topic!r} is not compacted: its cleanup.policy is delete")
    names = sorted(state.topics) if topic is None else [topic]
    due = [one for name in names for one in _due(state, state.topics[name], configs, clock(), asked=topic is not None)]
    total, done = sum(one.bytes for one in due), 0
    for one in sorted(due, key=lambda one: -one.ratio):
        yield _outcome(log, configs, clock, one.at)
        done += one.bytes
        if progress is not None:
            progress(done, total)


def _config(topic: TopicDescription, configs: Mapping[str, str]) -> TopicConfig:
    return TopicConfig.resolve(topic.configs, configs)


def _due(state: State, topic: TopicDescription, configs: Mapping[str, str], now: int, *, asked: bool) -> Iterator[Due]:
    config = _config(topic, configs)
    for partition in range(topic.partitions) if config.compact else ():
        log = state.partitions.get((topic.topic_id, partition), PartitionLog())
        dirty = _dirty(log, config, now)
        size, clean = sum(piece.size for piece in dirty), sum(one.size for one in _clean(log))
        is_overdue = any(0 <= one.max_timestamp < now - config.max_compaction_lag_ms for one in dirty[:1])
        if dirty and (asked or is_overdue or size / (size + clean) > config.min_cleanable_dirty_ratio):
            yield Due(TopicPartition(topic.name, partition), size / (size + clean), size + clean)


def _clean(log: PartitionLog) -> Sequence[Piece]:
    return [piece for piece in log.pieces if piece.next_offset <= log.cleaned_to]


def _dirty(log: PartitionLog, config: TopicConfig, now: int) -> Sequence[Piece]:
    """The pieces that can be compacted and are not."""
    found = [piece for piece in log.pieces if piece.next_offset > log.cleaned_to]
    lag = config.min_compaction_lag_ms
    return list(takewhile(lambda piece: lag <= 0 or piece.max_timestamp <= now - lag, found))


def _outcome(log: PublishLog, configs: Mapping[str, str], clock: Callable[[], int], at: TopicPartition) -> Outcome:
    begun, rounds, problem = time.monotonic(), list[Cleaned](), ""
    try:
        while (done := _Round(log, configs, clock(), at).run()) is not None:
            is_stuck = bool(rounds) and done.cleaned_to == rounds[-1].cleaned_to
            rounds.append(done)
            if done.finished or is_stuck:
                break
    except (PylogError, OSError) as error:
        _log.warning("%s: %s could not be compacted: %s", log.objects.address, at, error)
        problem = str(error)
    return Outcome(at, tuple(rounds), time.monotonic() - begun, problem)


class _Round:
    """One round for a partition."""

    def __init__(self, log: PublishLog, configs: Mapping[str, str], now: int, at: TopicPartition) -> None:
        state = log.follow()
        topic = proposals.topic_of(state, at.topic)
        self._log, self._now, self._at, self._topic_id = log, now, at, topic.topic_id
        self._config, self._partition = _config(topic, configs), proposals.log_of(state, at.topic, at.partition)
        self._memory = int_config(configs, "log.cleaner.dedupe.buffer.size")

    def run(self) -> Cleaned | None:
        """Compacts as much as there is memory for keys; None: nothing is dirty.

        Raises:
            CorruptRecordError, LogDamagedError: damage; what is before it may be compacted.
            InvalidConfigError: the memory for keys is too little.
            ObjectStoreError: the object store does not answer.
        """
        dirty = _dirty(self._partition, self._config, self._now)
        if not dirty:
            return None
        start, until = max(self._partition.cleaned_to, dirty[0].base_offset), dirty[-1].next_offset
        keys = OffsetMap(min(self._memory, _KEY_BYTES * (until - start + (until - start) // 8 + _SPARE_KEYS)))
        end = self._fill(keys, dirty, start, until)
        pieces = [piece for piece in self._partition.pieces if piece.base_offset < end]
        rewrites, done = Rewrites(self._log, self._now), Cleaned(self._partition.cleaned_to, 0, 0, 0, 0, finished=False)
        groups = list(self._groups(pieces))
        for number, group in enumerate(groups):
            is_last = number == len(groups) - 1
            data, read, kept = self._filtered(keys, group)
            rewrites.add(group, [data], end if is_last else -1)
            done = replace(
                done, bytes_before=done.bytes_before + group.size, bytes_after=done.bytes_after + len(data),
                records_before=done.records_before + read, records_after=done.records_after + kept,
            )  # fmt: skip
            if is_last or rewrites.size >= DECISION_BYTES:
                wanted = rewrites.write()
                # All of them or none: a key that is deleted in the one may have an earlier record in another.
                if self._log.decide(partial(proposals.merge, wanted=wanted, together=True)) is None:
                    return done
        return replace(done, cleaned_to=end, finished=end == until)

    def _fill(self, keys: OffsetMap, dirty: Sequence[Piece], start: int, until: int) -> int:
        """Enters the keys of the records [start, until); the offset up to which they fit."""
        keys.clear()
        keys.latest_offset = start - 1
        keys.note_replaced(start, until)
        full, follows = False, dirty[0].base_offset
        for data in chain.from_iterable(self._read(group.pieces) for group in self._groups(dirty)):
            _, follows, full = keys.take(
                data, 0, len(data), from_offset=start, until_offset=until, follows=follows,
                max_batch_bytes=self._config.max_batch_bytes, aborted=lambda *_: False,
            )  # fmt: skip
            if full:
                break
        if full and keys.latest_offset < start:
            raise InvalidConfigError(
                f"{self._at}: the keys of the batch at offset {start} alone are more than {keys.capacity}: "
                "set log.cleaner.dedupe.buffer.size higher"
            )
        return keys.latest_offset + 1

    def _groups(self, pieces: Sequence[Piece]) -> Iterator[Group]:
        most, some, size = min(OBJECT_BYTES, self._config.segment_bytes), list[Piece](), 0
        for piece in pieces:
            if some and (size + piece.size > most or piece.next_offset - some[0].base_offset > INT_MAX):
                yield Group(self._at, self._topic_id, some)
                some, size = [], 0
            some.append(piece)
            size += piece.size
        yield Group(self._at, self._topic_id, some)

    def _read(self, pieces: Sequence[Piece]) -> list[memoryview]:
        found = fetch(self._log.objects, [Group(self._at, self._topic_id, pieces)])
        data = list[memoryview]()
        for piece in pieces:
            one = found[piece]
            if isinstance(one, (CorruptRecordError, LogDamagedError)):
                raise one
            data.append(one)
        return data

    def _filtered(self, keys: OffsetMap, group: Group) -> tuple[bytes, int, int]:
        """What is left of a group; how many records it had, and has."""
        config, first = self._config, group.pieces[0].base_offset
        output = CleanedOutput(first, config.index_interval_bytes)
        batches = BatchFilter(
            keys, output, now=self._now, delete_retention_ms=config.delete_retention_ms,
            transactions=CleanedTransactions([]), is_last=lambda _: False,
            codec=config.codec if config.codec in CODECS else "none", level=config.level,
            max_batch_bytes=config.max_batch_bytes,
        )  # fmt: skip
        left = bytearray()
        for data in self._read(group.pieces):
            batches.take(data, 0, len(data))
            left += output.piece()
        output.finish(group.pieces[-1].next_offset)
        left += output.piece()
        return bytes(left), batches.records_read, batches.records_kept
