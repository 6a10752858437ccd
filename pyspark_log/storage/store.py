"""A store, as its users see it: topics that any number of processes may open at once.

`Store` is all that the clients, the Spark connector, the jobs and the commands need of a store, whatever it is kept in;
its parts are in `seam`. `FolderStore` keeps one in a folder, or reads a broker's, `ObjectStore` in an object store.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from pyspark_log.errors import StoreExistsError, StoreNotFoundError
from pyspark_log.storage.abilities import Missing, refuse
from pyspark_log.storage.catalog import location
from pyspark_log.storage.fs import Mutex
from pyspark_log.storage.log.read import READ_BYTES, Damage
from pyspark_log.storage.objects import by_kind
from pyspark_log.storage.seam import Offsets, Partitions, Publishes
from pyspark_log.storage.topic import Topic
from pyspark_log.types import EARLIEST, READ_UNCOMMITTED, AppendResult, OffsetAndTimestamp, TopicDescription

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.storage.groups import Groups
    from pyspark_log.storage.record.rows import Rows

_S = TypeVar("_S", bound="Store")

# How many stores a process shares between callers that open them by path.
_SHARED_STORES = 8


class Store(ABC):
    """An open store. Thread-safe; opening one reads one small file.

    An implementation has the abstract members and the attributes. A path chooses the kind of store; where only one kind
    will do, as for `FolderStore.open`, another is refused (UnsupportedByStoreError).

    Attributes:
        path: where it is: its folder, absolute; or its URL.
        cluster_id: 22 characters that identify this store.
        configs: what it sets for all of its topics, and for itself, by Kafka's names for brokers.
        publishes: what publishes exactly once.
        partitions: what is known of partitions, for programs that plan or report.
    """

    path: str
    cluster_id: str
    configs: Mapping[str, str]
    publishes: Publishes
    partitions: Partitions

    def __repr__(self) -> str:
        return f"Store({self.path!r}, cluster_id={self.cluster_id!r})"

    # ---- opening

    @classmethod
    def open(cls: type[_S], path: str | os.PathLike[str], *, options: Mapping[str, str] | None = None) -> _S:
        """Opens the store in a folder or in an object store; or, read-only, a Kafka broker's log dir.

        Args:
            path: the folder, or a `file:` URI; or the URL of a bucket and a prefix. A broker's: one of its `log.dirs`,
                a copy of it, or the folder of a single partition; or several of its `log.dirs`, absolute, with commas
                between them.
            options: how an object store is reached, by the names in docs/guides/object-stores.md, such as `endpoint` or
                `secret_access_key`. What they leave out comes from the environment and the platform. No error shows
                their values.

        Raises:
            StoreNotFoundError: the folder is missing, or holds neither.
            StoreVersionError: a newer version wrote it.
            DescriptionError: its store.json is damaged.
            SideFileError: a broker's meta.properties is damaged.
            InvalidConfigError: it is not a path, or several folders are not those of one broker; an option is unknown
                or has a bad value, or a folder was given some.
            ObjectStoreError: the object store cannot be reached, or refuses the request.
            OSError: the folder cannot be accessed.
        """
        return _kind_of(path, cls)._open(os.fspath(path), options)

    @classmethod
    def create(
        cls: type[_S],
        path: str | os.PathLike[str],
        settings: Mapping[str, str] | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> _S:
        """Creates a store in a missing or empty folder, or below a prefix that no object has.

        Args:
            path: the folder, whose parent must exist; or the URL.
            settings: the store's configs, by Kafka's broker names. `log.dirs` are the folders over which partitions
                are spread.
            options: as for `open`.

        Raises:
            StoreExistsError: the folder is not empty.
            InvalidConfigError: an unknown config or option, or a bad value.
            ObjectStoreError: as `open`; or the object store cannot keep a store.
        """
        kind = _kind_of(path, cls)
        kind._create(os.fspath(path), settings or {}, options)
        forget_shared(location(path))
        return kind._open(os.fspath(path), options)

    @classmethod
    def open_or_create(
        cls: type[_S],
        path: str | os.PathLike[str],
        settings: Mapping[str, str] | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> _S:
        """Opens a store; creates one if its folder is missing or empty. Args, raises: as both."""
        try:
            return cls.open(path, options=options)
        except StoreNotFoundError:
            try:
                return cls.create(path, settings, options=options)
            except StoreExistsError as error:
                # Another process may have been faster; if not, this error says why the place is refused.
                try:
                    return cls.open(path, options=options)
                except StoreNotFoundError:
                    raise error from None

    @classmethod
    def shared(cls: type[_S], path: str | os.PathLike[str], *, options: Mapping[str, str] | None = None) -> _S:
        """Returns the store in a place: one object per process as long as the place holds the same store.

        For workers that outlive their tasks. With other options it is another object. Args, raises: as `open`.
        """
        place = location(path), frozenset((options or {}).items())
        with _shared_mutex.lock:
            known = _shared.pop(place, None)
            if not isinstance(known, cls) or not known._is_current():
                known = cls.open(path, options=options)
            _shared[place] = known
            if len(_shared) > _SHARED_STORES:
                _shared.popitem(last=False)
            return known

    @classmethod
    @abstractmethod
    def _open(cls: type[_S], path: str, options: Mapping[str, str] | None) -> _S:
        """Opens the store of this kind at a path."""

    @classmethod
    @abstractmethod
    def _create(cls, path: str, settings: Mapping[str, str], options: Mapping[str, str] | None) -> None:
        """Creates a store of this kind at a path."""

    @abstractmethod
    def _is_current(self) -> bool:
        """Whether the store is the one that is in its place now. Raises: as `open`."""

    @abstractmethod
    def close(self) -> None:
        """Ends this object's writing: syncs the partitions that it wrote to, and closes their files.

        As with `flush`, no later power loss costs offsets of these partitions, and Kafka's checkpoints are written if
        due. `with Store.open(path) as store:` closes at the end of the block. A store that was never written to has
        nothing to close; closing is optional for any other: acknowledged records stay without it. The object can be
        used again; it then opens what it needs.

        Raises:
            PylogError, OSError: the first that a partition raised; the others are closed.
        """

    def __enter__(self: _S) -> _S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- topics

    @abstractmethod
    def topics(self, *, internal: bool = False) -> list[str]:
        """The names of the topics, sorted; with `internal` also those internal to the engine or Kafka's brokers.

        StoreNotFoundError: the folder is gone.
        """

    @abstractmethod
    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's id, partitions and configs. UnknownTopicError, InvalidTopicError."""

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicDescription:
        """Creates a topic.

        Args:
            name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'.
            partitions: how many, 100,000 at most; None: the store's num.partitions.
            configs: its configs, by Kafka's names.

        Raises:
            TopicExistsError: a topic of that name exists.
            InvalidTopicError, InvalidConfigError: refused; nothing was changed.
        """

    @abstractmethod
    def ensure_topic(self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None) -> bool:
        """Creates a missing topic; True if this call created it. One that is there stays as it is.

        Args:
            name: the topic.
            partitions, configs: of a topic that this call creates, as for `create_topic`. Without either it is created
                only if the store lets writers do so (auto.create.topics.enable).

        Raises:
            UnknownTopicError: no such topic, and auto.create.topics.enable is false.
            InvalidTopicError, InvalidConfigError: refused; nothing was changed.
        """

    @abstractmethod
    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Adds partitions to a topic.

        Later records may go to another partition than earlier ones with the same key.

        Args:
            name: the topic.
            total: the new number of partitions.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
            InvalidConfigError: it already has as many or more; or `total` is more than a topic can have.
        """

    @abstractmethod
    def alter_configs(
        self, name: str, configs: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> TopicDescription:
        """Changes a topic's configs, for all processes from their next call on.

        Args:
            name: the topic.
            configs: its configs, by Kafka's names.
            delete: names of configs to reset to the store's values.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
            InvalidConfigError: refused; nothing was changed.
        """

    @abstractmethod
    def delete_topic(
        self, name: str, progress: Callable[[int, int], None] | None = None, *, topic_id: str | None = None
    ) -> None:
        """Deletes a topic with its records, durably, and what groups have committed for it.

        Its files are deleted after its file.delete.delay.ms. Running readers continue with the files that they have
        open, and then get UnknownTopicError.

        Args:
            name: the topic.
            progress: called with how many of its partitions are done, and of how many.
            topic_id: its id; None: whichever has the name.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
        """

    def topic(self, name: str) -> Topic:
        """Returns a handle to all partitions of a topic. UnknownTopicError, InvalidTopicError."""
        return Topic(self, name)

    # ---- groups

    @property
    @abstractmethod
    def groups(self) -> Groups[Offsets]:
        """The consumer groups: `store.groups["g"].commit({TopicPartition("t", 0): 5})`."""

    # ---- records

    @abstractmethod
    def append(
        self,
        topic: str,
        data: Rows,
        *,
        partition: int | None = None,
        sync: bool = False,
        compression_type: str | None = None,
    ) -> list[AppendResult]:
        """Appends records.

        Args:
            topic: an existing topic.
            data: Arrow data (of pyarrow, Polars, DuckDB, or anything else with `__arrow_c_stream__`), a pandas
                DataFrame, or a list of dicts. The columns are `value` (binary or string; null is a tombstone), and as
                wanted `key` (the same), `headers` (a list of structs of key and value; in dicts also of pairs of name
                and value), `timestamp` (a time, or whole ms; null: now) and `partition` (null: by the key, or spread).
            partition: the partition for all records.
            sync: True: returns when the records survive a power loss; else they survive the end of any process,
                and a power loss as far as the topic's flush.messages and flush.ms ensure.
            compression_type: none, gzip, snappy, lz4 or zstd, for a topic that leaves the codec to its writers
                (compression.type=producer); None: none.

        Returns:
            The offsets of the records, for each partition that got some.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidTopicError: one of the engine's own topics.
            InvalidConfigError: no such codec, or the data are no rows.
            InvalidRecordError: a column or record is refused; nothing was appended.
            OSError, OutcomeUnknownError, or another PylogError: only the partitions in the error's `results`, a list
                of AppendResult, have their records.
        """

    @abstractmethod
    def read(
        self,
        topic: str,
        partition: int,
        start: int = EARLIEST,
        end: int | None = None,
        *,
        max_bytes: int = READ_BYTES,
        columns: Sequence[str] | None = None,
        headers: bool = False,
        check_crcs: bool = True,
        isolation_level: str = READ_UNCOMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Reads the records of a range of offsets, in order, as batches in the row schema.

        Args:
            topic, partition: the partition.
            start: the first offset, or EARLIEST or LATEST.
            end: the exclusive end; None or LATEST: the log end at the call, or the last stable offset. Decided
                publishes that no process has finished are applied first, if this process may write.
            max_bytes: about how many bytes of records a batch holds, uncompressed; at least one record batch.
            columns: of the row schema, those that the batches have; None: all. Others are not copied.
            headers: adds the column of headers.
            check_crcs: False skips the checksums, as Kafka's check.crcs does.
            isolation_level: read_uncommitted, or read_committed: only records below the last stable offset, without
                those of aborted transactions.
            on_damage: called with each damage, before the records after it are read; None: damage is an error.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidConfigError: no such isolation level or column, or `max_bytes` is not from 1 to 2^63 - 1.
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: a damaged batch; the records before it are returned first.
            BatchTooLargeError: a batch that takes more memory than batch.max.memory.bytes.
        """

    @abstractmethod
    def flush(self, topic: str | None = None) -> None:
        """Makes durable what any process has appended; of one topic, or of all.

        Raises:
            UnknownTopicError: no such topic.
            PylogError, OSError: the first that a partition raised; the others were synced.
        """

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Deletes the records before an offset, durably; readers no longer see them when this returns.

        Args:
            topic, partition: the partition.
            before_offset: the first offset that stays; LATEST: none does.

        Returns:
            The log start: `before_offset`, or a larger offset if more was deleted already.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic or partition, or one of the engine's own.
            InvalidConfigError: the topic's cleanup.policy is not "delete".
            OffsetOutOfRangeError: beyond the log end; nothing was deleted.
        """

    # ---- offsets

    @abstractmethod
    def earliest_offset(self, topic: str, partition: int) -> int:
        """The first offset that can be read (the log start)."""

    @abstractmethod
    def latest_offset(self, topic: str, partition: int, *, isolation_level: str = READ_UNCOMMITTED) -> int:
        """The offset that the next record will get (the log end); for read_committed, the last stable offset.

        Like a read up to the log end, it first applies decided publishes that no process has finished.
        """

    @abstractmethod
    def offset_for_timestamp(self, topic: str, partition: int, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record, by offset, whose time is `timestamp` (ms) or later; None: there is none.

        A record without a time is never returned.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidConfigError: a negative time, as with Kafka's consumers, or one beyond 64 bits.
        """


def _kind_of(path: str | os.PathLike[str], wanted: type[_S]) -> type[_S]:
    """Which kind of store a path names. UnsupportedByStoreError: another than the wanted one."""
    kind = by_kind(path, folder=_folder_kind, objects=_object_kind)()
    if issubclass(kind, wanted):
        return kind
    refuse(by_kind(path, folder=Missing.OBJECTS, objects=Missing.FILES), os.fspath(path))


# The kinds are built on this module.
def _folder_kind() -> type[Store]:
    from pyspark_log.storage.folder_store import FolderStore  # noqa: PLC0415

    return FolderStore


def _object_kind() -> type[Store]:
    from pyspark_log.storage.object_store import ObjectStore  # noqa: PLC0415

    return ObjectStore


def forget_shared(place: str) -> None:
    """Has Store.shared look again for what is in a place, where a store was just created."""
    with _shared_mutex.lock:
        for known in [known for known in _shared if known[0] == place]:
            del _shared[known]


# By place and options; the least recently used are dropped first. A new token makes another one of a store.
_shared: OrderedDict[tuple[str, frozenset[tuple[str, str]]], Store] = OrderedDict()
_shared_mutex = Mutex()
