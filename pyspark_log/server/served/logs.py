"""The logs of a store as a server's handlers ask for them: the contracts, for each kind of store.

A handler runs in the loop's thread, which must not wait for a disk, a lock or a network. So each function says how it
may be called:

- At once: it needs what is in memory, or in a small local file, and takes microseconds.
- Awaited: a coroutine. It awaits only `Wait`s.
- May wait: in one of the server's workers alone. One with `may_wait` can be called in the loop's thread with False, and
  raises MustWaitError there if it would have to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

from pyspark_log.group_records import RecordKey, Value
from pyspark_log.kafka import FileRange
from pyspark_log.server.documents import Documents
from pyspark_log.server.network import Wait
from pyspark_log.server.served.servers import Servers
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.log.metadata import GroupMetadataValue
from pyspark_log.storage.log.leader_epochs import EpochEnd
from pyspark_log.storage.log.producers import ProducerEntry
from pyspark_log.storage.log_manager import LogDirDescription
from pyspark_log.storage.publish_log.entries.changes import Step
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.seam import PartitionEvents
from pyspark_log.storage.transactions import TransactionMetadata
from pyspark_log.types import OffsetAndTimestamp, TopicDescription, TopicPartition

#: The members of groups: of classic ones, None: it has committed offsets alone; and the records of those of KIP-848.
GroupMembers: TypeAlias = tuple[dict[str, GroupMetadataValue | None], dict[str, dict[RecordKey, Value]]]
#: That a client is to know of no leader epoch.
NO_LEADER_EPOCH = -1


class MustWaitError(Exception):
    """It cannot be done without waiting for a disk, a lock or a network."""


# ---- reading


class Batches(NamedTuple):
    """Whole record batches, as they are stored.

    Attributes:
        records: their bytes, or where these are in a file, which closes when nothing refers to it any more.
        next_offset: the offset after the last of their records.
    """

    records: bytes | FileRange
    next_offset: int


class LogView(Protocol):
    """A partition's log as it was a moment ago. Its errors are PylogError and OSError.

    Attributes:
        leader_epoch: Kafka's leader epoch; 0: no other server could lead it.
        log_start: the first offset that readers may see.
        next_offset: the log end.
        high_watermark: the offset up to which consumers read.
        may_have_transactions: whether there may be transactions; if not, all below the high watermark is committed.
        is_reported: whether the store's events report each change of it, so that it need not be looked at before.
    """

    is_reported: bool
    leader_epoch: int
    log_start: int
    next_offset: int
    high_watermark: int
    may_have_transactions: bool

    def is_near(self, offset: int, *, committed: bool) -> bool:
        """Whether records from an offset on can be read without waiting; if committed, with what aborted. At once."""

    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided. May wait, unless records from the end are near."""

    def batches(self, start: int, end: int, max_bytes: int) -> Batches | None:
        """The batches from `start` on that are below `end` and within `max_bytes`; None: there are none.

        The first one is there however large it is. May wait, unless they are near.
        """

    def aborted(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        """The aborted transactions with records in [start, end): producer id and first offset. May wait likewise."""

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of a record; -1: it is not known. May wait."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where a leader epoch ends, as Kafka answers OffsetForLeaderEpoch. May wait, unless it is the current one."""

    def find_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record whose time is `timestamp` (ms) or later. May wait."""

    def find_max_timestamp(self) -> OffsetAndTimestamp | None:
        """The record with the largest time, of several the first. May wait."""


class ServedTopic(Protocol):
    """A topic as it is described. All of it at once, but `view`.

    Attributes:
        name, topic_id, partitions: see TopicDescription.
    """

    name: str
    topic_id: str
    partitions: int

    def check(self, partition: int) -> None:
        """UnknownTopicError: it has no such partition."""

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch that clients get with a partition's leader. PylogError, OSError.

        NO_LEADER_EPOCH where several servers lead: all have the same epoch. A client that had one would ask each leader
        that it turns to whether its position is right there, and Java's reads nothing until it is answered.
        """

    def view(self, partition: int, *, may_wait: bool, client_end: int = 0) -> LogView:
        """A partition's log as it is. PylogError, OSError: it cannot be read; MustWaitError.

        `client_end`: up to which offset the client has read or written: if another server has served more than this one
        knows, this one looks at the store first.
        """


# ---- appending


#: Gives a log as an append has left it, with its batch at hand; None: it cannot. To be called at once.
AsLeft: TypeAlias = Callable[[], LogView | None]


class Batch(NamedTuple):
    """A client's record batch on its way into a partition; its bytes are as the client has sent them.

    Attributes:
        on_written: may be called with the partition, by the id of its topic, once the batch is there and before anyone
            else can change the partition; in the loop's thread, and `on_stored` comes next.
        on_stored: is called in the loop's thread if the server is to wake what waits for the partition, and not only
            the system's report of the change: with the id of its topic, the batch's offset, and what gives the log;
            None: nothing does.
    """

    at: TopicPartition
    records: bytes
    on_written: Callable[[str, int], object] | None = None
    on_stored: Callable[[str, int, AsLeft | None], object] | None = None


class Stored(NamedTuple):
    """A batch is in the log.

    Attributes:
        base_offset, next_offset: the offsets of its first record, and after its last.
        log_start: the log's first offset.
        time: the time (ms) that its records have got; -1: they keep their own.
        is_duplicate: whether it was there before.
    """

    base_offset: int
    next_offset: int
    log_start: int
    time: int
    is_duplicate: bool


class Refused(NamedTuple):
    """A batch is not in the log; the log's first offset, or -1: that was not looked at."""

    error: Exception
    log_start: int


# ---- groups and transactions


class GroupsLog(Protocol):
    """The log of committed offsets and of groups' members, for the server that coordinates them.

    All of it may wait, but `writable`: whether this server may coordinate groups.
    """

    @property
    def writable(self) -> bool:
        """See above."""

    def write(self, changes: Sequence[GroupChange]) -> Sequence[Exception | None]:
        """Writes what the coordinator has decided, in that order; None: it is written."""

    def commit_in_transaction(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int, producer_epoch: int
    ) -> None:
        """Commits offsets that count when the producer's transaction does. PylogError, OSError, ValueError."""

    def members(self, partitions: Iterable[int] | None = None) -> GroupMembers:
        """The members of each group; of those in some partitions of the log, if they are named. CorruptRecordError."""

    def partition_of(self, group: str) -> TopicPartition:
        """The partition that has a group's records. PylogError, OSError."""

    def fetch(self, group: str, *, with_resets: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's committed offsets. PylogError, OSError."""

    def pending(self, group: str) -> Iterable[TopicPartition]:
        """The partitions whose offsets an open transaction may change. PylogError, OSError."""

    def expire(self) -> int:
        """Deletes the offsets that are not kept any more; how many. PylogError, OSError."""


class SharedGroups(GroupsLog, Protocol):
    """The same, where each of several servers may come to coordinate groups."""

    def take_over(self) -> tuple[int, GroupMembers]:
        """The members of each group, and the term in which this server coordinates them. At once.

        What it writes from then on counts as long as this term lasts: in a later one of its own, another server may
        have changed them in between.
        """


class TransactionsLog(Protocol):
    """What is known of transactional ids, and the markers of transactions.

    All of it may wait, but the epoch, and `writable`: whether this server may coordinate transactions.
    """

    @property
    def writable(self) -> bool:
        """See above."""

    def load(self, partitions: Iterable[int] | None = None) -> dict[str, TransactionMetadata]:
        """What is known of each id; of those in some partitions of the log, if they are named. CorruptRecordError."""

    def write(self, transactional_id: str, metadata: TransactionMetadata | None, *, sync: bool) -> None:
        """Writes what is known of an id from now on; None: nothing any more. PylogError, OSError, ValueError."""

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch that the markers of an id have."""

    def end(
        self, at: TopicPartition, producer_id: int, producer_epoch: int, marker: EndTxnMarker, *, sync: bool
    ) -> None:
        """Ends a producer's transaction in a partition; a second time it changes nothing. PylogError, OSError."""


class Changed(NamedTuple):
    """What becomes of a transactional id.

    Attributes:
        metadata: what is known of it from then on; None: nothing any more.
        answer: what is answered once that is decided.
        step: what becomes of its transaction; of that of which producer id and epoch.
    """

    metadata: TransactionMetadata | None
    answer: Any
    step: Step = Step.NONE
    producer: tuple[int, int] = (-1, -1)


#: Makes a change of what is known of a transactional id, or something else that is answered.
Rule: TypeAlias = Callable[[TransactionMetadata | None], object]


class SharedTransactions(Protocol):
    """What is known of transactional ids, where each of several servers may change it."""

    def known(self) -> dict[str, TransactionMetadata]:
        """What is known of each id, as this server has it. At once."""

    def of(self, transactional_id: str) -> TransactionMetadata | None:
        """The same of one; None: nothing. At once."""

    def open(self) -> dict[str, TransactionMetadata]:
        """The same of those whose transactions are open. At once."""

    def partitions(self, producer_id: int) -> frozenset[TopicPartition]:
        """Those to which an open transaction has written. At once."""

    def change(self, transactional_id: str, rule: Rule) -> Wait[Any]:
        """Decides what `rule` makes of what is known at that moment.

        The wait gives the answer; or what the rule has returned instead of a change. It fails if nothing was decided,
        or that is not known: PylogError, OSError, ValueError.
        """


class Background(Protocol):
    """What is done for the store in a thread of its own: compaction, and over an object store merging and retention."""

    def start(self) -> None:
        """Begins."""

    def stop(self) -> None:
        """Stops, at the latest after the partition at hand."""


# ---- the store


class ServedLogs(Protocol):
    """The logs of the store that a server serves. Topics are described, created and changed by the store itself.

    Attributes:
        configs: the store's.
        groups, transactions: what the coordinators of groups and transactions write.
        background: see Background.
        documents: users, rights and quotas; their content at once.
        servers: this server, and others of the store.
        overlaps: whether it pays to append what a connection sends next while what it has sent before is being decided.
    """

    configs: Mapping[str, str]
    groups: GroupsLog
    transactions: TransactionsLog
    background: Background
    documents: Documents
    servers: Servers
    overlaps: bool

    # ---- all of it at once

    @property
    def writable(self) -> bool:
        """Whether this server may change the store."""

    @property
    def why_read_only(self) -> str:
        """Why this server changes nothing, where it may not."""

    def check_writable(self) -> None:
        """ReadOnlyError: nothing of the store is ever changed."""

    def clock(self) -> int:
        """The store's time (ms)."""

    def has_topic(self, name: str) -> bool:
        """Whether there is a topic. OSError."""

    def may_lack(self, names: Iterable[str]) -> bool:
        """Whether one of these topics is not known here, and others may have created it."""

    def catch_up(self) -> None:
        """Takes in what others have decided by now, where that is not known at once. May wait."""

    def topics(self, *, fresh: bool) -> Collection[TopicDescription]:
        """The topics, and internal ones; `fresh`: not as they were a second ago. May wait. PylogError, OSError."""

    def topic(self, name: str) -> ServedTopic:
        """A topic as it is. UnknownTopicError, InvalidTopicError, OSError."""

    def events(self) -> PartitionEvents | None:
        """Reports changed partitions from now on; None: they have to be looked at."""

    def problem(self) -> str:
        """What keeps the store from being served, as a monitor asks for it; "": nothing."""

    def is_there(self) -> bool:
        """Whether the store can be looked at."""

    # ---- what takes longer

    async def append(
        self, batches: Sequence[Batch], *, sync: bool, on_order: Callable[[], object]
    ) -> Sequence[Stored | Refused]:
        """Appends the batches of a request, each for itself, in their order; awaited.

        Args:
            batches: the batches.
            sync: what is appended survives a power loss before it is answered.
            on_order: called once what is appended from then on comes after them, at the latest at the end.
        """

    def producers(self, at: TopicPartition) -> Sequence[ProducerEntry]:
        """The idempotent producers of a partition. May wait. PylogError, OSError."""

    def has_log_dir(self, path: str) -> bool:
        """Whether it has a log dir of that path. At once."""

    def log_dirs(self) -> Sequence[LogDirDescription]:
        """Where the partitions are, on which disks. May wait. PylogError, OSError."""

    def move(self, at: TopicPartition, path: str) -> None:
        """Moves a partition to another log dir. May wait. PylogError, OSError."""

    def clean(self) -> None:
        """Deletes what exceeds the retention of topics, unless `background` does. May wait. PylogError, OSError."""

    # ---- from the beginning to the end

    def held(self, most_files: int) -> AbstractContextManager[None]:
        """Keeps other servers of the store away, where there can be one alone. StoreError: there is one.

        `most_files`: how many files this process may have open.
        """

    def begin_alone(self) -> Callable[[], object] | None:
        """Takes in that the server is alone in its cluster, before any request.

        Returns:
            What reports in the log which records are not shown; it may wait. None: there is nothing of that kind.
        """

    def close(self) -> None:
        """Leaves the store in order. PylogError, OSError."""
