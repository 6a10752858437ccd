"""Reads records of topics as they come, as Kafka's consumer does; without a server.

with Consumer(store, "orders", auto_offset_reset="earliest") as consumer:
    for record in consumer:
        print(record.partition, record.offset, record.value)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from pyspark_log.arguments import check_store, check_whole
from pyspark_log.clients.consuming.commits import Commits
from pyspark_log.clients.consuming.fetching import FetchConfig, Reset, joined
from pyspark_log.clients.consuming.group_subscription import GroupSubscription
from pyspark_log.clients.consuming.holding import Holding
from pyspark_log.clients.consuming.membership import MemberConfig, Membership
from pyspark_log.clients.consuming.subscriptions import AllPartitions, Assigned, ConsumerRebalanceListener, Subscription
from pyspark_log.clients.deserializers import Deserializer
from pyspark_log.clients.records import ConsumerRecord, RecordIterator
from pyspark_log.errors import InvalidConfigError, UnknownTopicError
from pyspark_log.storage.groups.members.assignors import Assignor
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_UNCOMMITTED, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_Found = TypeVar("_Found")


class Consumer:
    """Reads the partitions that are assigned to it, or all partitions of topics.

    For one thread; only `wakeup` is for any: to read while another thread does is a RuntimeError, before anything is
    handed out. A forked child makes its own. Iterating hands out one record after the other, `poll` many, `poll_arrow`
    Arrow batches; these can be mixed. `position` is always the offset after the last record that was handed out: what
    was fetched and not handed out yet does not count.

    The records of a partition come in order. Partitions take turns, with about `max_partition_fetch_bytes` each.

    A key or value that a deserializer refuses is a DeserializationError, a damaged batch is a CorruptRecordError. The
    position stays at that record: the next call raises the same, until `seek` passes over it.

    Args:
        store: the store.
        topics: their names; they need not exist yet.
        group_id: the group that commits are made for, and whose committed offsets are read from; None: there are no
            commits.
        group_instance_id: of a static member: it may restart within session_timeout_ms, and nothing moves.
        partition_assignment_strategy: "range", "roundrobin", "sticky", "cooperative-sticky", or a function: see
            storage.groups.assignors. All members have the same.
        max_poll_interval_ms: a member that does not read for so long is removed from its group.
        session_timeout_ms: how long the partitions of a static member wait for it.
        client_id: a name of this consumer.
        auto_offset_reset: where reading begins without a committed offset, or if the log does not have it (any
            more): at the log end as of `subscribe` or `assign` ("latest"), at the log start ("earliest"), or it is
            an error ("none"). A partition that is added to a topic later is read from its start.
        isolation_level: as for Store.read.
        enable_auto_commit: with a group, commits what earlier calls have handed out: in `poll` and while iterating,
            as time passes, and in `close`.
        auto_commit_interval_ms: how often.
        max_poll_records: how many records `poll` returns at most.
        max_partition_fetch_bytes: about how many bytes of a partition's records are read at once; at least a batch.
        check_crcs: False: as for Store.read.
        key_deserializer, value_deserializer: "text", "json", a function of bytes, a deserializer of kafka-python or
            confluent-kafka; None: bytes. They are not called for None.
        metadata_max_age_ms: how long it takes at most until added topics and partitions are found, and publishes
            whose process has died are finished.
        consumer_timeout_ms: iterating ends when nothing has come for so long.
    """

    def __init__(
        self,
        store: Store,
        *topics: str,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        partition_assignment_strategy: str | Assignor = "range",
        max_poll_interval_ms: int = 300_000,
        session_timeout_ms: int = 45_000,
        client_id: str = "pylog",
        auto_offset_reset: Reset = "latest",
        isolation_level: str = READ_UNCOMMITTED,
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: float = 5000,
        max_poll_records: int = 500,
        max_partition_fetch_bytes: int = 1024 * 1024,
        check_crcs: bool = True,
        key_deserializer: Deserializer = None,
        value_deserializer: Deserializer = None,
        metadata_max_age_ms: float = 1000,
        consumer_timeout_ms: float = inf,
    ) -> None:
        """Subscribes to topics, if they are named; the class has the arguments.

        Raises:
            InvalidConfigError: an argument is refused. InvalidTopicError: no topic can have such a name.
            ReadOnlyError: it is to commit by itself, and the store is a Kafka broker's folder.
        """
        check_store(store)
        check_whole("max_poll_records", max_poll_records, low=1)
        config = FetchConfig(
            auto_offset_reset, group_id, isolation_level, max_partition_fetch_bytes, check_crcs, key_deserializer,
            value_deserializer,
        )  # fmt: skip
        self._store, self._group_id, self.client_id = store, group_id, client_id
        self._most, self._bytes = max_poll_records, max_partition_fetch_bytes
        self._age = metadata_max_age_ms / 1000
        interval = auto_commit_interval_ms / 1000 if enable_auto_commit else None
        self._commits = None if group_id is None else Commits(store, group_id, interval)
        self._member = None
        if group_id is not None:
            self._member = MemberConfig(
                group_id, client_id, group_instance_id, partition_assignment_strategy, max_poll_interval_ms,
                session_timeout_ms,
            )  # fmt: skip
        self._holding = Holding(store, config, self._commits, Assigned(store, self._age))
        self._fetcher = self._holding.fetcher
        self._iterator = RecordIterator(partial(self._holding.next_rows, consumer_timeout_ms / 1000))
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:
                self.close(autocommit=False)
                raise

    # ---- which partitions

    def subscribe(
        self, topics: Iterable[str] = (), pattern: str | None = None, listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Reads all partitions of topics, also of those that come later; in place of what it had.

        Partitions that it keeps keep their positions.

        Args:
            topics: their names; they need not exist yet.
            pattern: a regular expression; topics whose whole name matches it are read too.
            listener: is called when partitions come or end.

        Raises:
            InvalidConfigError: there are neither topics nor a pattern, or the pattern is malformed.
            InvalidTopicError: no topic can have such a name.
        """
        self._check_open()
        names = {topics} if isinstance(topics, str) else set(topics)
        if not names and pattern is None:
            raise InvalidConfigError("subscribe: expected names of topics, or a pattern")
        self._iterator.interrupt()
        subscription = self._holding.subscription
        if isinstance(subscription, GroupSubscription):
            subscription.change(names, pattern)
            self._holding.listen(listener)
        else:
            subscription = self._subscription_to(names, pattern)
            if self._member is not None and self._holding.held:
                # The group says what it has.
                self._holding.give_up(self._holding.held)
            self._holding.replace(subscription, listener)
        subscription.update(self._holding)

    def _subscription_to(self, topics: set[str], pattern: str | None) -> Subscription:
        if self._member is not None:
            membership = Membership(self._store, self._member)
            return GroupSubscription(self._store, topics, pattern, self._age, membership)
        return AllPartitions(self._store, self._age, topics, pattern)

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Reads these partitions, in place of what it had. Those that it had before keep their positions.

        Args:
            partitions: which ones; as a mapping: with the offsets to begin at.

        Raises:
            UnknownTopicError: one of them does not exist; nothing was changed.
        """
        self._check_open()
        starts = _offsets(partitions) if isinstance(partitions, Mapping) else {}
        wanted, held = set(partitions), self._holding.held
        self._fetcher.beginnings(wanted)
        self._give_up_but(wanted)
        self._fetcher.seek({at: starts[at] for at in starts.keys() & held})
        if new := wanted - held:
            if starts:
                self._holding.take_at({at: starts[at] for at in new})
            else:
                self._holding.take(new)

    def unsubscribe(self) -> None:
        """Has no partitions any more."""
        self._check_open()
        self._give_up_but(set())

    def _give_up_but(self, kept: Set[TopicPartition]) -> None:
        """Ends the subscription, and reading other partitions than these."""
        self._iterator.interrupt()
        if gone := self._holding.held - kept:
            self._holding.give_up(gone)
        self._holding.replace(Assigned(self._store, self._age))

    def subscription(self) -> set[str]:
        """The topics that it has subscribed to, with those that match the pattern."""
        return set(self._holding.subscription.topics)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that it has."""
        return set(self._holding.held)

    # ---- reading

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Hands out records one by one, and waits for more, until `consumer_timeout_ms` or `stop_at` ends it."""
        return self._iterator

    def __next__(self) -> ConsumerRecord:
        return next(self._iterator)

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Hands out records, as soon as there are some; the time is over if there are none.

        Args:
            timeout_ms: how long to wait for records.
            max_records: how many at most; None: `max_poll_records`.

        Raises:
            WakeupError: `wakeup` was called.
            NoOffsetError, OffsetOutOfRangeError: the partition has no offset to begin with, or none that its log has,
                and auto_offset_reset is none.
            UnknownTopicError: a partition that was assigned does not exist any more.
            DeserializationError, CorruptRecordError: see the class.
            Exception: what the listener raises; or a commit that time cannot help.
        """
        most = self._most if max_records is None else max_records
        check_whole("max_records", most, low=1)
        return self._poll(timeout_ms, lambda: self._fetcher.records(most)) or {}

    def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int | None = None, *, headers: bool = False
    ) -> pa.RecordBatch | None:
        """Hands out records as a batch in the row schema, of one or several partitions; None: there are none.

        Deserializers are not used.

        Args:
            timeout_ms: as `poll`.
            max_bytes: about how many bytes to hand out at most, and never more than 2 GiB, which is what one batch can
                have; None: `max_partition_fetch_bytes`.
            headers: adds the column of headers.

        Raises: as `poll`.
        """
        most = self._bytes if max_bytes is None else max_bytes
        check_whole("max_bytes", most, low=1)
        found = self._poll(timeout_ms, lambda: self._fetcher.batches(most))
        return None if not found else joined(found, headers)

    def _poll(self, timeout_ms: float, hand_out: Callable[[], _Found]) -> _Found | None:
        self._check_open()
        self._iterator.interrupt()
        return self._holding.hand_out(timeout_ms / 1000, hand_out)

    def wakeup(self) -> None:
        """Has the poll or iteration that waits raise WakeupError; or the next one.

        As in Java's client it is an error, since a poll that has found nothing returns nothing, too, and a loop over
        records would wait again. From any thread, and from a handler of a signal.
        """
        self._holding.waiter.wake()

    # ---- positions

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to hand out. NoOffsetError: there is none yet, and nothing says which."""
        return self._fetcher.position(partition)

    def lag(self, partition: TopicPartition) -> int:
        """How many offsets there are from the position to the end of the log, or the last stable offset, as of now."""
        position = self._fetcher.position(partition)
        return max(self._fetcher.ends([partition])[partition] - position, 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Hands out the record of an offset next, or the first one after it."""
        self._seek({partition: offset})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes to the log starts as of now; without arguments of all its partitions."""
        self._seek(self._fetcher.beginnings(partitions or self._holding.held))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes to the ends as of now, as `end_offsets`; without arguments of all its partitions."""
        self._seek(self._fetcher.ends(partitions or self._holding.held))

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._check_open()
        self._iterator.interrupt()
        self._fetcher.seek(_offsets(offsets))
        if self._commits is not None:
            self._commits.begin_at(offsets)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of partitions until `resume`."""
        self._iterator.interrupt()
        self._fetcher.pause(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hands out their records again."""
        self._fetcher.pause(partitions, False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._fetcher.paused()

    def stop_at(self, ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Reads up to these offsets, without the records at them. Then iterating ends, and `poll` returns at once.

        Of partitions that are not named, and of those that come later, no record is handed out any more.

        Args:
            ends: None: the ends of all partitions as of now.

        Raises:
            InvalidConfigError: one is not assigned.
            NoOffsetError: as `position`, of a partition that is not named.
        """
        self._check_open()
        self._iterator.interrupt()
        self._fetcher.stop_at(self._fetcher.ends(self._holding.held) if ends is None else _offsets(ends))

    @property
    def is_finished(self) -> bool:
        """Whether all was handed out up to the offsets of `stop_at`."""
        return self._fetcher.is_finished

    # ---- commits

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commits the offsets of the next records to read; None: the positions of all partitions.

        Raises:
            InvalidConfigError: the consumer has no group, or an offset is negative.
            ReadOnlyError: the store is a Kafka broker's folder. Others: as Group.commit.
        """
        self._check_open()
        commits = self._required_commits("commit")
        commits.commit(self._fetcher.positions() if offsets is None else offsets)

    def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset; None: it has none. InvalidConfigError: the consumer has no group."""
        return self._required_commits("committed").fetch([partition])[partition]

    def progress(self) -> dict[TopicPartition, tuple[int | None, int]]:
        """What was handed out since the last call, for `Transaction.send_offsets`: processed exactly once.

            with transactions.begin() as transaction:
                transaction.append("enriched", ...)
                transaction.send_offsets("enrich", consumer.progress())

        After a transaction that was not committed, call `rewind`. Without that the next one is refused with
        OffsetConflictError.

        Returns:
            For each partition of which something was handed out the committed offset at which that began (None: there
            was none), and the position.

        Raises:
            InvalidConfigError: the consumer has no group, or commits by itself (enable_auto_commit).
        """
        return self._required_commits("progress").progress(self._fetcher.positions())

    def rewind(self) -> None:
        """Reads again from the committed offsets on; where there are none, from where reading began.

        Raises:
            InvalidConfigError: the consumer has no group. Others: as Group.committed.
        """
        self._check_open()
        self._iterator.interrupt()
        self._fetcher.seek(self._required_commits("rewind").rewound())

    def _required_commits(self, what: str) -> Commits:
        if self._commits is None:
            raise InvalidConfigError(f"{what}: the consumer has no group: pass group_id")
        return self._commits

    # ---- the store

    def topics(self) -> set[str]:
        """The topics of the store."""
        return set(self._store.topics())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic; None: there is no such topic."""
        try:
            return set(range(self._store.describe_topic(topic).partitions))
        except UnknownTopicError:
            return None

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The log starts. UnknownTopicError."""
        return self._fetcher.beginnings(partitions)

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that the next records will get; or the last stable offsets, if it is read_committed."""
        return self._fetcher.ends(partitions)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first records of these times (ms) or later; None: there is none. As Store.offset_for_timestamp."""
        return {at: self._store.offset_for_timestamp(at.topic, at.partition, ms) for at, ms in timestamps.items()}

    # ---- the end

    def close(self, autocommit: bool = True) -> None:
        """Gives up the partitions, if it commits by itself with a commit; `autocommit` False: without.

        Raises:
            Exception: what the commit or the listener raises; it is closed nevertheless.
        """
        self._iterator.interrupt()
        self._holding.close(commit=autocommit)

    def _check_open(self) -> None:
        if self._holding.is_closed:
            raise ValueError("the consumer is closed; a forked child makes its own")

    def __repr__(self) -> str:
        what = "closed" if self._holding.is_closed else f"{len(self._holding.held)} partitions"
        what += "".join(f", no topic {name!r}" for name in sorted(self._holding.subscription.missing))
        return f"Consumer({what}, group_id={self._group_id!r}, store={self._store.path!r})"

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it; after an error without a commit, as the last records may not have been processed."""
        self.close(autocommit=kind is None)


def _offsets(given: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Refuses what is no offset. InvalidConfigError."""
    for at, offset in given.items():
        check_whole(f"{at}: offset", offset)
    return dict(given)
