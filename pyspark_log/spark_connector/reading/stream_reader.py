"""Streaming reads.

One object of this class lives in a process of its own for as long as the query runs; Spark asks it, for each
micro-batch and in this order: `latestOffset`, `reportLatestOffset`, `commit` of the batch before, `partitions`. How it
asks for the end of a micro-batch depends on the PySpark: admission.py and positioned.py have the two ways.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.spark_connector.errors import LossPolicy
from pyspark_log.spark_connector.options import ReadOptions, StorePlace
from pyspark_log.spark_connector.planning.offsets import Identity, Offsets, SourceOffset
from pyspark_log.spark_connector.planning.ranges import (
    earliest,
    end_within,
    identity_after,
    identity_of,
    limit_ends,
    limit_ends_by_bytes,
    missing_is_lost,
    of_same_topics,
    offsets_at,
    ranges_between,
    resolved,
    starts_of,
)
from pyspark_log.spark_connector.planning.steps import Steps
from pyspark_log.spark_connector.reading.task_reader import RangePartition, ReadPlan, in_tasks, read_partition
from pyspark_log.spark_connector.reading.transform import Transform
from pyspark_log.spark_connector.store_access import StoreRef, looking_at
from pyspark_log.spark_connector.worker_process import SentToTasks, end_with_query
from pyspark_log.storage.fs import clock
from pyspark_log.storage.groups import NEVER
from pyspark_log.storage.groups.members.query_readers import text_of_this_process
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.spark_connector.reading.dead_letters import DeadLetters
    from pyspark_log.spark_connector.typed_columns import TypedColumns

log = logging.getLogger(__name__)

# An idle query looks no more often where each look is a request, in seconds; Spark asks a hundred times a second.
_POLL_SECONDS = 1.0


class StreamReader(SentToTasks, DataSourceStreamReader):
    """Plans micro-batches, one task per topic-partition with new records, or more if options ask for it."""

    def __init__(
        self,
        place: StorePlace,
        options: ReadOptions,
        columns: tuple[str, ...],
        transform: Transform | None = None,
        typed: TypedColumns | None = None,
    ) -> None:
        self._place = place
        self._columns, self._transform, self._typed = columns, transform, typed
        self._options = options
        self._start = options.stream_start()
        self._limits = options.trigger_limits()
        self._loss = LossPolicy(fail=options.fail_on_data_loss)
        self._last_batch = -math.inf  # when the last micro-batch was planned, by the monotonic clock, in s
        self._new_group = options.group_id or f"{options.group_id_prefix}-{uuid.uuid4()}"
        self._initial: SourceOffset | None = None
        self._target: Offsets | None = None
        self._seen: Offsets = {}
        self._group_offsets, self._steps = GroupOffsets(options.query_name), Steps()
        self._is_prepared = False  # for dead letters

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a new query; resolved once, as Spark asks twice and "latest" moves."""
        with looking_at(self._place) as store:
            level = self._options.isolation_level
            assigned: list[TopicPartition] = []
            while self._initial is None:
                before, assigned = assigned, self._options.subscription.partitions(store)
                try:
                    identity = identity_of(store, {at.topic for at in assigned})
                    unresolved = offsets_at(store, assigned, self._start, "start", level)
                    self._initial = SourceOffset(
                        {at: resolved(store, at, offset, level) for at, offset in unresolved.items()}, identity=identity
                    )
                except UnknownTopicError:
                    # A topic was deleted since it was listed: the next list is without it, or fails.
                    if assigned == before:
                        raise
            return self._initial.to_json()

    def _next_end(self, start: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        """The end of the next micro-batch, within the options' limits or not; `start` if there are no new records."""
        steps = self._steps
        steps.begin()
        with looking_at(self._place, _POLL_SECONDS) as store:
            steps.done("store")
            begin = SourceOffset.from_json(start)
            # Before the log ends: if a topic is recreated in between, the tasks refuse it by its id.
            partitions, identity = self._current_partitions(store, begin)
            steps.done("topics")
            # Spark asks with this start only when all earlier batches are done, also after the last batch of
            # Trigger.AvailableNow, which gets no `commit`.
            self._commit_group(store, begin, identity, is_last=self._has_reached_target(begin.offsets))
            steps.done("group")
            store.publishes.apply_pending()
            steps.done("pending publishes")
            known = of_same_topics(begin.offsets, begin.identity, identity)
            ends = self._up_to_target(self._log_ends_after(store, partitions, known), begin.offsets)
            self._seen = ends
            steps.done("ends")
            begins = starts_of(known, ends, partial(earliest, store), self._options.subscription, self._loss)
            steps.done("begins")
            waits = is_limited and self._waits(begins, ends)
            if is_limited and not waits:
                ends = self._limited(store, begins, ends)
                steps.done("limits")
            steps.log(store.path)
            if waits or not ends:
                return start
            if begin.is_initial:
                return SourceOffset(ends, self._new_group, begin.offsets, identity).to_json()
            # A batch without records is run to store ids that an earlier version did not keep.
            if ends == begin.offsets and identity == begin.identity:
                return start
            return SourceOffset(ends, self._group_of(begin), identity=identity).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of one micro-batch."""
        # What `latestOffset` has seen.
        with looking_at(self._place, math.inf) as store:
            begin, until = SourceOffset.from_json(start), SourceOffset.from_json(end)
            starts = begin.offsets
            if begin.is_initial and until.start is not None:
                # Batch 0 again, after a restart: `initialOffset` may now differ from where it began.
                starts = until.start
            # Where the topic is another one by now, and that is no error, the tasks read nothing.
            topic_ids = {**self._current_partitions(store, until)[1].topic_ids, **until.identity.topic_ids}
            known = of_same_topics(starts, begin.identity, until.identity)
            begins = starts_of(known, until.offsets, partial(earliest, store), self._options.subscription, self._loss)
            ref, options = StoreRef.to(store, self._place.options), self._options
            letters = self._dead_letters(store, until)
            plan = ReadPlan.make(ref, self._columns, options, self._transform, self._typed, letters)
            planned = [
                RangePartition(plan, one, topic_ids.get(one.at.topic))
                for one in options.splitting.split(ranges_between(begins, until.offsets))
            ]
            return in_tasks(store, planned, options.partitions_per_task)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the rows of one range."""
        return read_partition(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commits the group's offsets: Spark has recorded the micro-batch that ends here as done."""
        with looking_at(self._place, math.inf) as store:
            done = SourceOffset.from_json(end)
            self._commit_group(store, done, self._current_partitions(store, done)[1])

    def stop(self) -> None:
        """Ends Spark's process with the query; nothing else is to be released."""
        end_with_query()

    def _dead_letters(self, store: Store, until: SourceOffset) -> DeadLetters | None:
        """Where bad records of a micro-batch go; None: to no topic."""
        if self._typed is None or not self._typed.dead_letter_topic:
            return None
        from pyspark_log.spark_connector.reading.dead_letters import DeadLetters  # noqa: PLC0415  (most do without)

        # Not a group that this process has made up: the next one would have another.
        letters = DeadLetters(self._typed.dead_letter_topic, until.group or self._options.group_id or "")
        letters.check({at.topic for at in until.offsets})
        if not self._is_prepared:
            letters.prepare(store)
            self._is_prepared = True
        return letters

    def _group_of(self, offset: SourceOffset) -> str:
        return self._options.group_id or offset.group or self._new_group

    def _current_partitions(self, store: Store, known: SourceOffset) -> tuple[list[TopicPartition], Identity]:
        """The partitions that the query is of now, and their identity. Raises if that is not the one of the offsets."""
        with missing_is_lost(store, known.offsets):
            while True:
                partitions = self._partitions(store)
                topics = {at.topic for at in partitions}
                with suppress(UnknownTopicError):  # It was deleted since: read the topics again.
                    return partitions, identity_after(store, topics, known.identity, known.offsets, self._loss)

    def _partitions(self, store: Store) -> list[TopicPartition]:
        """The partitions that the query is of now. Only at its start a missing topic is an error in any case."""
        return self._options.subscription.partitions(store, may_miss=not self._loss.fail)

    def _waits(self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        """Whether the next micro-batch waits for more records: `minOffsetsPerTrigger`, `maxTriggerDelay`."""
        now, least = time.monotonic(), self._limits.least
        found = sum(end - begins[at] for at, end in ends.items())
        if least is not None and found < least and now - self._last_batch < self._limits.delay_ms / 1000:
            return True
        self._last_batch = now
        return False

    def _limited(self, store: Store, begins: Offsets, ends: Offsets) -> Offsets:
        """The ends of a micro-batch within `maxOffsetsPerTrigger` and `maxBytesPerTrigger`."""
        if self._limits.most is not None:
            ends = limit_ends(self._limits.most, begins, ends)
        if self._limits.most_bytes is not None:
            ends = limit_ends_by_bytes(self._limits.most_bytes, begins, ends, partial(end_within, store))
        return ends

    def _has_reached_target(self, offsets: Offsets) -> bool:
        """Whether Trigger.AvailableNow has read all that it was to read."""
        return self._target is not None and all(offsets.get(at, 0) >= end for at, end in self._target.items())

    def _commit_group(self, store: Store, done: SourceOffset, now: Identity, *, is_last: bool = False) -> None:
        same = of_same_topics(done.offsets, done.identity, now)
        offsets = {at: offset for at, offset in same.items() if at.topic in now.topic_ids}
        expire = self._options.group_id is None
        self._group_offsets.commit(
            store, self._group_of(done), offsets, expire=expire, begins=done.is_initial, is_last=is_last
        )

    def _log_ends(self, store: Store, partitions: Iterable[TopicPartition]) -> Offsets:
        """The current ends. A topic that was deleted since it was listed has none; if it was read, that is reported."""
        level = self._options.isolation_level
        return store.partitions.latest_offsets(partitions, isolation_level=level, skip_missing=True)

    def _log_ends_after(
        self, store: Store, partitions: Sequence[TopicPartition], known: Mapping[TopicPartition, int]
    ) -> Offsets:
        """The current ends of the partitions. Retries while one is below the query's position.

        On a network file system another machine's last append can appear late.
        """
        retries = self._options.retries
        while True:
            ends = self._log_ends(store, partitions)
            retries -= 1
            if retries <= 0 or all(ends[at] >= known[at] for at in ends.keys() & known.keys()):
                return ends
            time.sleep(self._options.retry_interval_ms / 1000)

    def _up_to_target(self, ends: Offsets, known: Mapping[TopicPartition, int]) -> Offsets:
        """The ends, limited to the target of Trigger.AvailableNow, but not below the query's position."""
        if self._target is None:
            return ends
        target = {**self._target, **{at: max(self._target.get(at, 0), known[at]) for at in known}}
        return {at: min(end, target[at]) for at, end in ends.items() if at in target}


class GroupOffsets:
    """Commits one query's offsets; never backwards, and only changed ones."""

    def __init__(self, query_name: str) -> None:
        """`query_name`: as of ReadOptions."""
        self._query_name = query_name
        self._tried: tuple[str, Offsets, bool] | None = None
        self._renew_at = self._next_at = 0  # in ms
        self._text = ""

    def commit(
        self,
        store: Store,
        group: str,
        offsets: Offsets,
        *,
        expire: bool = False,
        begins: bool = False,
        is_last: bool = False,
    ) -> None:
        """Commits that the records before `offsets` are done. Best effort: never raises the store's errors.

        Each offset is tried once; otherwise an idle query would retry it a hundred times a second. The first commit of
        a process is made in any case, as its text says which process the query has.

        Args:
            store: the store that the query reads.
            group: the query's group.
            offsets: of the next records to read.
            expire: whether they expire once no query has committed them for `offsets.retention.minutes`, as those of a
                group without a name of the user's. While the query runs they are committed again before that.
            begins: whether the query has done nothing yet: what the group has committed stays.
            is_last: whether the query ends here. Else there is the time between commits that the store asks for.
        """
        committed = store.groups.log
        now = clock.now_ms()
        renew = expire and now >= self._renew_at
        is_early = now < self._next_at and not is_last
        if (self._tried == (group, offsets, begins) and not renew) or not committed.writable or is_early:
            return
        self._next_at = now + committed.interval_ms
        self._tried = (group, offsets, begins)
        if renew:
            self._renew_at = now + committed.retention_ms // 2
        try:
            known, begun = committed.fetch(group), bool(self._text)
            self._text = self._text or text_of_this_process(self._query_name)
            ahead = {
                at: new for at, new in offsets.items() if at not in known or (new > known[at].offset and not begins)
            }
            if renew or not begun:
                # What a publish has committed never expires.
                ahead |= {
                    at: one.offset
                    for at, one in known.items()
                    if one.offset == offsets.get(at) and (one.expire_timestamp != NEVER or not expire)
                }
            if ahead:
                committed.commit(group, ahead, self._text, expire_timestamp=-1 if expire else NEVER)
        except (PylogError, OSError) as error:
            log.warning("%s: the offsets of group %s were not committed: %s", store.path, group, error)
