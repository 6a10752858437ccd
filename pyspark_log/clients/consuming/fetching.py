"""What a consumer reads: the partitions that it has, the position in each, and the rows that were fetched."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from pyspark_log.arguments import check_whole
from pyspark_log.clients.consuming.waiting import LOOK_SECONDS
from pyspark_log.clients.deserializers import Deserializer, check_deserializer, reader_of
from pyspark_log.clients.records import ConsumerRecord, FetchedRows
from pyspark_log.config import INT_MAX
from pyspark_log.errors import InvalidConfigError, NoOffsetError, OffsetOutOfRangeError, PylogError, UnknownTopicError
from pyspark_log.storage.record.decoding import decoder  # noqa: F401  (else the first record waits while it is loaded)
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_UNCOMMITTED, TopicPartition, check_isolation

log = logging.getLogger(__name__)

#: Where reading begins without an offset, or with one that the log does not have.
Reset = Literal["latest", "earliest", "none"]

# The most bytes of a column of one batch: Arrow counts them by 32 bits.
_MOST_JOINED = INT_MAX
# How many partitions are read at a time: each has a segment open.
_MOST_OPEN = 200


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """How a consumer reads.

    Attributes:
        reset: auto_offset_reset.
        group: whose committed offsets it begins with, for errors.
        isolation_level, check_crcs: as for Store.read.
        max_bytes: about how many bytes of a partition are fetched at once.
        key, value: deserializers.
    """

    reset: Reset
    group: str | None
    isolation_level: str
    max_bytes: int
    check_crcs: bool
    key: Deserializer = None
    value: Deserializer = None

    def __post_init__(self) -> None:
        """Refuses what a consumer cannot read by. InvalidConfigError."""
        check_isolation(self.isolation_level)
        check_whole("max_partition_fetch_bytes", self.max_bytes, low=1)
        if self.reset not in ("latest", "earliest", "none"):
            raise InvalidConfigError(f"auto_offset_reset {self.reset!r}: must be latest, earliest or none")


class _Reading:
    """A partition that is read.

    Attributes:
        topic_id: of its topic; None: it is not known.
        log_end: where its log, or what may be read of it, has ended at the last look.
        stop: the offset at which reading ends; None: there is none.
        is_paused: whether nothing is handed out.
    """

    __slots__ = (
        "_at",
        "_batches",
        "_config",
        "_key",
        "_position",
        "_rows",
        "_until",
        "_value",
        "is_paused",
        "log_end",
        "stop",
        "topic_id",
    )

    def __init__(self, at: TopicPartition, topic_id: str | None, config: FetchConfig) -> None:
        self._at, self.topic_id, self._config = at, topic_id, config
        self._key, self._value = reader_of(config.key, at.topic, "key"), reader_of(config.value, at.topic, "value")
        self.log_end = 0
        self.stop: int | None = None
        self.is_paused = False
        self._position: int | None = None
        self._rows: FetchedRows | None = None
        # The batches of a range of offsets that is being read, and its end.
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._until = 0

    @property
    def position(self) -> int | None:
        """The offset after the last record that was handed out, or after what the log has there instead of records."""
        return self._position if self._rows is None else self._rows.position

    def seek(self, offset: int | None) -> None:
        """Drops what was fetched; `offset` is read next."""
        self._position, self._rows, self._batches = offset, None, None

    def release(self) -> None:
        """Closes what is open; what comes after the rows that are fetched is opened again when its turn comes."""
        self._batches = None

    @property
    def rows(self) -> FetchedRows | None:
        """The rows that are fetched and not handed out; None: there are none, or it is paused."""
        return None if self.is_paused or self._rows is None or not self._rows.left else self._rows

    @property
    def had_turn(self) -> bool:
        """Whether it was fetched without an error, since when nothing was sought. If not, it is still its turn."""
        return self._rows is not None

    @property
    def is_finished(self) -> bool:
        """Whether all up to `stop` was handed out."""
        return self.stop is not None and self.position is not None and self.position >= self.stop

    def fetch(self, store: Store) -> FetchedRows | None:
        """Fetches rows up to the end that is known; None: there are none. Raises: as Store.read."""
        try:
            while self.rows is None:
                self._position, self._rows = self.position, None
                if self._batches is None and not self._begin(store):
                    return None
                assert self._batches is not None
                assert self._position is not None
                batch = next(self._batches, None)
                if batch is None:
                    # What is missing up to there was compacted away, or is no record.
                    self._position, self._batches = self._until, None
                elif batch.num_rows:
                    topic, partition = self._at.topic, self._at.partition
                    self._rows = FetchedRows(batch, topic, partition, self._position, self._key, self._value)
        except BaseException:
            self._batches = None
            raise
        return self.rows

    def _begin(self, store: Store) -> bool:
        """Begins to read what there is; False: there is nothing."""
        end = self.log_end if self.stop is None else min(self.log_end, self.stop)
        if self._position is None or self._position >= end:
            return False
        self._batches = store.read(
            self._at.topic, self._at.partition, self._position, end, max_bytes=self._config.max_bytes, headers=True,
            check_crcs=self._config.check_crcs, isolation_level=self._config.isolation_level,
        )  # fmt: skip
        self._until = end
        return True


class Fetcher:
    """The partitions that a consumer has. They take turns: each has what was fetched of it handed out, then the next.

    Of one partition at a time are there rows that were fetched and not handed out, unless it is paused.
    """

    def __init__(self, store: Store, config: FetchConfig, changes: Callable[[], Set[TopicPartition] | None]) -> None:
        """It has no partitions yet.

        Args:
            store: where.
            config: see there.
            changes: the partitions that may have new records since the last call; None: any may.

        Raises:
            InvalidConfigError: a deserializer can be none.
        """
        check_deserializer(config.key, "key")
        check_deserializer(config.value, "value")
        self._store, self._config, self._changes = store, config, changes
        # The one whose turn it is comes first.
        self._readings = OrderedDict[TopicPartition, _Reading]()
        # Those that may have files open; the one that was read last is the last.
        self._open = OrderedDict[TopicPartition, _Reading]()
        self._has_stops = False
        # Those that may have new records; None: any may.
        self._changed: Set[TopicPartition] | None = set()

    # ---- the partitions

    @property
    def partitions(self) -> Set[TopicPartition]:
        """Those that it has."""
        return self._readings.keys()

    def take(self, starts: Mapping[TopicPartition, int | None]) -> None:
        """Begins to read partitions at offsets; None: where `reset` says. UnknownTopicError; nothing was changed."""
        ids = self._store.partitions.recorded_ids({at.topic for at in starts})[1]
        begun = {at: _Reading(at, ids.get(at.topic), self._config) for at in starts}
        unknown = [at for at, start in starts.items() if start is None]
        offsets = {at: start for at, start in starts.items() if start is not None}
        for at, start in (offsets | self._resets(unknown)).items():
            begun[at].seek(start)
        for reading in begun.values():
            reading.log_end = reading.position or 0
            if self._has_stops:
                reading.stop = 0
        self._readings |= begun
        self._note(begun.keys())

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends reading them."""
        for at in partitions:
            reading = self._readings.pop(at)
            self._open.pop(at, None)
            reading.is_paused = True  # For rows that are being handed out.
            reading.seek(None)

    @property
    def ended(self) -> set[TopicPartition]:
        """Those whose topic was deleted; there may be another one of its name."""
        by_topic = dict[str, set[TopicPartition]]()
        for at in self._readings:
            by_topic.setdefault(at.topic, set()).add(at)
        return set[TopicPartition]().union(*(of_topic for of_topic in by_topic.values() if self._have_ended(of_topic)))

    def _have_ended(self, partitions: Iterable[TopicPartition]) -> bool:
        try:
            self._check_topics(partitions)
        except UnknownTopicError:
            return True
        return False

    def _check_topics(self, partitions: Iterable[TopicPartition]) -> None:
        """Refuses partitions whose topic was deleted. UnknownTopicError."""
        ids = self._store.partitions.recorded_ids({at.topic for at in partitions})[1]
        for at in partitions:
            if ids.get(at.topic) != self._readings[at].topic_id:
                raise UnknownTopicError(f"topic {at.topic!r} was deleted and recreated")

    def _resets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self._config.reset == "latest":
            return self.ends(partitions)
        return self.beginnings(partitions) if self._config.reset == "earliest" else {}

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Their log starts. UnknownTopicError."""
        with self._store.partitions.looking():
            return {at: self._store.earliest_offset(at.topic, at.partition) for at in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Their ends as of now, with all that is decided. UnknownTopicError."""
        if partitions:
            self._store.publishes.apply_pending()
        return self._store.partitions.latest_offsets(partitions, isolation_level=self._config.isolation_level)

    def _reading(self, at: TopicPartition) -> _Reading:
        try:
            return self._readings[at]
        except KeyError:
            raise InvalidConfigError(f"{at} is not assigned to this consumer") from None

    # ---- positions

    def position(self, at: TopicPartition) -> int:
        """The offset of the next record. NoOffsetError."""
        position = self._reading(at).position
        if position is None:
            raise NoOffsetError(at.topic, at.partition, self._config.group)
        return position

    def positions(self) -> dict[TopicPartition, int]:
        """Those of all partitions that have one."""
        all_positions = {at: reading.position for at, reading in self._readings.items()}
        return {at: position for at, position in all_positions.items() if position is not None}

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Has offsets read next."""
        readings = {self._reading(at): offset for at, offset in offsets.items()}
        for reading, offset in readings.items():
            reading.seek(offset)
        # They may be beyond the end.
        self._note(offsets.keys())

    def pause(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        """Hands out nothing of them, or again."""
        for reading in [self._reading(at) for at in partitions]:
            reading.is_paused = is_paused

    def paused(self) -> set[TopicPartition]:
        """Those of which nothing is handed out."""
        return {at for at, reading in self._readings.items() if reading.is_paused}

    def stop_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Reads up to these offsets; of other partitions nothing more, nor of those that it takes later.

        Raises:
            NoOffsetError: another partition has no position.
            InvalidConfigError: one is not assigned.
        """
        stops = self.positions() | {at: self.position(at) for at in self._readings.keys() - ends.keys()} | dict(ends)
        for reading, stop in [(self._reading(at), stop) for at, stop in stops.items()]:
            reading.seek(reading.position)
            reading.stop = stop
        self._has_stops = True

    @property
    def is_finished(self) -> bool:
        """Whether all partitions have reached the offsets of `stop_at`."""
        return self._has_stops and all(reading.is_finished for reading in self._readings.values())

    # ---- looking, fetching

    def _look(self) -> None:
        """Looks where the logs end of partitions that may have changed."""
        asked = list(self._readings if self._changed is None else self._readings.keys() & self._changed)
        partitions, level = self._store.partitions, self._config.isolation_level
        if asked:
            with partitions.looking(LOOK_SECONDS):
                ends = partitions.latest_offsets(asked, isolation_level=level)
                # After that: so they are the ends of these topics.
                self._check_topics(asked)
            for at, end in ends.items():
                reading = self._readings[at]
                reading.log_end = end
                # The end of a broker's log is known some seconds later; its groups may be past that.
                if reading.position is not None and reading.position > end and not partitions.are_brokers:
                    self._check_end(at, reading, reading.position)
        self._changed = set()

    def _check_end(self, at: TopicPartition, reading: _Reading, position: int) -> None:
        end = reading.log_end
        if self._config.isolation_level != READ_UNCOMMITTED:
            # What is not committed yet is not beyond the end of the log.
            end = self._store.partitions.latest_offsets([at])[at]
        if position > end:
            start = self._store.earliest_offset(at.topic, at.partition)
            self._reset(at, reading, OffsetOutOfRangeError(at.topic, at.partition, position, start, end))

    def next_rows(self, look: bool = True) -> FetchedRows | None:
        """The rows to hand out next, those of the first partition; None: there are none.

        Args:
            look: whether to look for new records before, if the first partition has no more rows.

        Raises:
            NoOffsetError, OffsetOutOfRangeError: no offset to begin with, or none that the log has, and
                auto_offset_reset is none.
            UnknownTopicError: a topic does not exist any more.
            CorruptRecordError, others: as Store.read.
        """
        first = next(iter(self._readings), None)
        if first is not None:
            if (rows := self._readings[first].rows) is not None:
                return rows
            if self._readings[first].had_turn:
                self._readings.move_to_end(first)
        # Without partitions too: what has changed is taken, so that a wait does not end for it again.
        if look:
            self._note(self._changes())
            self._look()
        for at, reading in list(self._readings.items()):
            if not reading.is_paused and (rows := self._fetch(at, reading)) is not None:
                return rows
            self._readings.move_to_end(at)
        return None

    def _note(self, changed: Set[TopicPartition] | None) -> None:
        """Has partitions looked at; also if the look fails before."""
        self._changed = None if changed is None or self._changed is None else self._changed | changed

    def _fetch(self, at: TopicPartition, reading: _Reading) -> FetchedRows | None:
        self.position(at)
        self._open[at] = reading
        self._open.move_to_end(at)
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1].release()
        try:
            return reading.fetch(self._store)
        except OffsetOutOfRangeError as error:
            reading.log_end = min(reading.log_end, error.log_end)
            if not error.log_start <= self.position(at) <= error.log_end:
                self._reset(at, reading, error)
        return reading.fetch(self._store)

    def _reset(self, at: TopicPartition, reading: _Reading, error: OffsetOutOfRangeError) -> None:
        """Continues where auto_offset_reset says."""
        start, end, offset = error.log_start, error.log_end, self.position(at)
        if self._config.reset == "none":
            advice = "call seek, or set auto_offset_reset to earliest or latest"
            raise OffsetOutOfRangeError(at.topic, at.partition, offset, start, end, advice) from None
        target = self._resets([at])[at]
        effect = f"{target - offset} offsets are skipped" if target > offset else "records may be read again"
        log.warning(
            "%s: the position %d is out of range: the log holds offsets %d to %d; by auto_offset_reset=%s reading "
            "continues at %d: %s",
            at, offset, start, end, self._config.reset, target, effect,
        )  # fmt: skip
        reading.seek(target)

    # ---- handing out

    def records(self, most: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `most` records, of as many partitions as that takes. Raises: as `next_rows`, if there are none before;
        DeserializationError.
        """
        by_partition = dict[TopicPartition, list[ConsumerRecord]]()

        def take(rows: FetchedRows, most_left: int) -> int:
            records = rows.take(most_left)
            by_partition.setdefault(next(iter(self._readings)), []).extend(records)
            return len(records)

        self._hand_out(take, most)
        return by_partition

    def batches(self, max_bytes: int) -> list[pa.RecordBatch]:
        """Batches of `max_bytes` or somewhat more, but no more than `joined` can join; or all that there is.

        Raises: as `next_rows`, if there are none before.
        """
        handed_out: list[pa.RecordBatch] = []

        def take(rows: FetchedRows, most_left: int) -> int:
            size = rows.bytes_left
            if handed_out and max_bytes - most_left + size > _MOST_JOINED:
                return most_left
            handed_out.append(rows.rest())
            return size

        self._hand_out(take, max_bytes)
        return handed_out

    def _hand_out(self, take: Callable[[FetchedRows, int], int], most: int) -> None:
        """Calls `take` with rows, and with what is left of `most`, until it has taken that much in all."""
        most_left = most
        try:
            while most_left > 0 and (rows := self.next_rows(look=most_left == most)) is not None:
                most_left -= take(rows, most_left)
        except (PylogError, OSError):
            if most_left == most:
                raise
            # What was handed out is the caller's; the next call meets the same error first.


def joined(batches: Sequence[pa.RecordBatch], headers: bool) -> pa.RecordBatch:
    """Batches as one, with or without the column of headers; a single one is not copied."""
    if len(batches) > 1:
        [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    else:
        [batch] = batches
    return batch if headers else batch.drop_columns(["headers"])
