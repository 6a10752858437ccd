"""A store: a folder with topics in it, opened by any number of processes at once."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from pyspark_log.storage import files, retention, state_file, topic_remains
from pyspark_log.storage.appender import Appender
from pyspark_log.storage.client_batch import admit
from pyspark_log.storage.clock import now_ms
from pyspark_log.storage.config import TopicConfig, check_store_settings, store_setting
from pyspark_log.storage.encoder import TopicEncoder
from pyspark_log.storage.errors import (
    InvalidConfigError,
    PylogError,
    StoreExistsError,
    StoreNotFoundError,
    StoreVersionError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.locks import Mutex
from pyspark_log.storage.log_folder import LogFolder
from pyspark_log.storage.missing import no_state
from pyspark_log.storage.partition import Partition
from pyspark_log.storage.place import PartitionPlace
from pyspark_log.storage.power import RECOVERY
from pyspark_log.storage.schema import RowBuilder
from pyspark_log.storage.segment import LOG, list_segments, segment_path
from pyspark_log.storage.topics import TopicCatalog, check_open_to_all, new_id
from pyspark_log.storage.types import (
    EARLIEST,
    LATEST,
    AppendResult,
    OffsetAndTimestamp,
    TopicDescription,
)

log = logging.getLogger(__name__)

VERSION = 1
STORE_FILE = "store.json"
DATA_FOLDER = "data"
STAGING_FOLDER = "staging"
STATE_FOLDER = "state"
TOPICS_FOLDER = "topics"
_TOPICS_LOCK = "topics.lock"
_CHECKPOINTS_LOCK = "checkpoints.lock"

# What a process that was killed while it made a store may leave behind.
_UNFINISHED = re.compile(r"[0-9a-f]{16}\.tmp")
# Partitions that a process keeps open for appending, with five open files each; the least used go first.
_OPEN_APPENDERS = 128
# Stores that a process shares between those who ask for them by path; the least used go first.
_SHARED_STORES = 8
# How long cleaning waits for a partition's lock, in seconds; what is left is for the next time.
_CLEAN_TIMEOUT = 5.0
# An append of more bytes than this is made in several, so that others get their turn.
_APPEND_BYTES = 16 * 1024 * 1024

#: Bytes of records (before compression) in a batch that a read gives.
READ_BYTES = 8 * 1024 * 1024


def local_path(path: str | os.PathLike[str]) -> str:
    """The absolute path that a path or a `file:` URI names. InvalidConfigError for any other URI."""
    text = os.fspath(path)
    if not text:
        raise InvalidConfigError("the path of the store is empty")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text) or text.startswith("file:"):
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise InvalidConfigError(f"{text}: a store is a folder of a file system: give a path or a file: URI")
        text = unquote(parts.path)
    return os.path.abspath(text)


class Store:
    """An open store. Safe to use from several threads; opening one costs the reading of one small file.

    Attributes:
        path: its folder, absolute.
        cluster_id: 22 characters that tell this store from all others.
        settings: what store.json sets, by Kafka's broker names.
    """

    def __init__(self, path: str, cluster_id: str, settings: Mapping[str, str]) -> None:
        """For `open`, `create` and `open_or_create`, which look at the folder first."""
        self.path = path
        self.cluster_id = cluster_id
        self.settings = settings
        self._catalog = TopicCatalog(f"{path}/{TOPICS_FOLDER}", f"{path}/{STATE_FOLDER}/{_TOPICS_LOCK}")
        self._log_folder = LogFolder(
            f"{path}/{DATA_FOLDER}", f"{path}/{STATE_FOLDER}/{_CHECKPOINTS_LOCK}", cluster_id
        )
        self._topics: dict[str, _Topic] = {}
        self._appenders: OrderedDict[PartitionPlace, Appender] = OrderedDict()
        self._mutex = Mutex()

    def __repr__(self) -> str:
        return f"Store({self.path!r}, cluster_id={self.cluster_id!r})"

    # ---- opening

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Opens the store in a folder.

        Args:
            path: the folder, or a `file:` URI.

        Raises:
            StoreNotFoundError: the folder is missing, or holds no store.
            StoreVersionError: a newer version wrote it.
        """
        folder = local_path(path)
        try:
            with open(f"{folder}/{STORE_FILE}", "rb") as file:
                content = json.load(file)
        except (FileNotFoundError, NotADirectoryError):
            what = "there is no such folder" if not os.path.isdir(folder) else f"it holds no {STORE_FILE}"
            raise StoreNotFoundError(f"{folder} is no store: {what}") from None
        except ValueError as error:
            raise StoreNotFoundError(f"{folder}/{STORE_FILE} is no store's description: {error}") from None
        if content["version"] > VERSION:
            raise StoreVersionError(
                f"{folder}: the store has format version {content['version']}, this pyspark-log knows {VERSION}: "
                "use a newer pyspark-log"
            )
        return cls(folder, content["cluster_id"], content["settings"])

    @classmethod
    def create(cls, path: str | os.PathLike[str], settings: Mapping[str, str] | None = None) -> Store:
        """Makes a store in a missing or empty folder.

        Args:
            path: the folder; its parent must exist.
            settings: of the store, by Kafka's broker names.

        Raises:
            StoreExistsError: the folder is not empty.
            InvalidConfigError: an unknown setting or a bad value.
        """
        folder = local_path(path)
        check_store_settings(settings or {})
        try:
            files.make_folder(folder)
            names = os.listdir(folder)
        except FileNotFoundError:
            raise StoreNotFoundError(f"{folder}: the folder above it does not exist") from None
        except NotADirectoryError:
            raise StoreExistsError(f"{folder} is a file") from None
        if any(not _UNFINISHED.fullmatch(name) for name in names):
            raise StoreExistsError(f"{folder} is not empty: a store is made in an empty or a new folder only")
        content = {
            "version": VERSION,
            "cluster_id": new_id(),
            "log_folders": [DATA_FOLDER],
            "settings": dict(settings or {}),
        }
        try:
            files.create_whole(f"{folder}/{STORE_FILE}", json.dumps(content, indent=2).encode() + b"\n")
        except FileExistsError:
            raise StoreExistsError(f"{folder}: another process has just made a store there") from None
        log.info("created a store in %s", folder)
        return cls.open(folder)

    @classmethod
    def open_or_create(cls, path: str | os.PathLike[str], settings: Mapping[str, str] | None = None) -> Store:
        """Opens the store in a folder; makes one if the folder is missing or empty. Errors as of both."""
        try:
            return cls.open(path)
        except StoreNotFoundError:
            try:
                return cls.create(path, settings)
            except StoreExistsError:
                # Another process may have been faster; if not, this says why the folder is refused.
                if os.path.exists(f"{local_path(path)}/{STORE_FILE}"):
                    return cls.open(path)
                raise

    @classmethod
    def shared(cls, path: str | os.PathLike[str]) -> Store:
        """The store in a folder, one object a process as long as the folder holds the same store.

        For workers that live longer than what they do. Errors as of `open`.
        """
        folder = local_path(path)
        try:
            status = os.stat(f"{folder}/{STORE_FILE}")
            # The inode alone is not enough: that of a removed file is given to the next one.
            stamp = (status.st_ino, status.st_mtime_ns)
        except OSError:
            stamp = (-1, -1)
        with _shared_mutex:
            known = _shared.pop(folder, None)
            if known is None or known[0] != stamp:
                known = (stamp, cls.open(folder))
            _shared[folder] = known
            if len(_shared) > _SHARED_STORES:
                _shared.popitem(last=False)
            return known[1]

    # ---- topics

    def topics(self, *, internal: bool = False) -> list[str]:
        """The names of the topics, sorted; with `internal` also those that begin with "__"."""
        return [name for name in self._catalog.names() if internal or not name.startswith("__")]

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's id, partitions and settings. UnknownTopicError, InvalidTopicError."""
        return self._catalog.describe(name)

    def topic_config(self, name: str) -> TopicConfig:
        """A topic's resolved settings. UnknownTopicError, InvalidTopicError."""
        return self._topic(name).config

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicDescription:
        """Makes a topic.

        Args:
            name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'.
            partitions: how many; None: the store's num.partitions.
            configs: settings by Kafka's names.

        Raises:
            TopicExistsError: there is one of that name.
            InvalidTopicError, InvalidConfigError: refused; nothing was changed.
        """
        if partitions is None:
            default = store_setting(self.settings, "num.partitions")
            assert isinstance(default, int)
            partitions = default
        self._make_folders()
        with self._catalog.changing():
            for deleted in self._catalog.deleted():
                if deleted.topic.name == name:
                    self._bury(deleted.topic)
            return self._catalog.create(name, partitions, configs or {})

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Gives a topic more partitions.

        Records with keys that are written from now on can go to other partitions than those before.

        Args:
            name: which topic.
            total: how many it is to have in all.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
            InvalidConfigError: it has as many already, or more.
        """
        check_open_to_all(name)
        self._make_folders()
        with self._catalog.changing():
            return self._catalog.add_partitions(name, total)

    def alter_configs(
        self, name: str, configs: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> TopicDescription:
        """Changes settings of a topic, for all processes from their next call on.

        Args:
            name: which topic.
            configs: settings by Kafka's names.
            delete: names of settings that are to be the store's again.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
            InvalidConfigError: refused; nothing was changed.
        """
        check_open_to_all(name)
        self._make_folders()
        with self._catalog.changing():
            return self._catalog.alter_configs(name, configs or {}, delete)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its records, durably. Its files go after its file.delete.delay.ms.

        Readers that are at work go on with what they have open, and then get UnknownTopicError.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
        """
        check_open_to_all(name)
        self._make_folders()
        with self._catalog.changing():
            topic = self._catalog.delete(name)
            try:
                self._bury(topic)
            except (PylogError, OSError) as error:
                log.warning("%s: topic %s is deleted, but some files are still in place: %s", self.path, name, error)
        self._forget_appenders(name, "")
        self._remove_deleted()

    def _bury(self, topic: TopicDescription) -> None:
        """Ends the partitions of a deleted topic, of whose name there is no other yet. The topics' lock is held."""
        for place in self._places(topic):
            topic_remains.bury(place)
        files.sync_folder(f"{self.path}/{DATA_FOLDER}")

    def _remove_deleted(self) -> None:
        """Removes the files of deleted topics whose time has come."""
        for topic, since in self._catalog.deleted():
            delay = TopicConfig.resolve(topic.configs, self.settings).file_delete_delay_ms
            if now_ms() - since < delay:
                continue
            try:
                with self._catalog.changing():
                    if not self._catalog.exists(topic.name):  # Else it was buried before that one was made.
                        self._bury(topic)
                for place in self._places(topic):
                    topic_remains.remove(place)
                self._catalog.forget(topic.topic_id)
            except (PylogError, OSError) as error:
                log.warning("%s: files of the deleted topic %s are still there: %s", self.path, topic.name, error)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Deletes the records before an offset, durably; readers no longer see them when this returns.

        Args:
            topic, partition: where.
            before_offset: the first offset that stays; LATEST: none does.

        Returns:
            The log start: `before_offset`, or one beyond it where more was deleted before.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic or partition, or one of the engine's own.
            InvalidConfigError: the topic's cleanup.policy is not to delete.
            OffsetOutOfRangeError: beyond the log end; nothing was deleted.
        """
        check_open_to_all(topic)
        if not self.topic_config(topic).deletes:
            raise InvalidConfigError(f"topic {topic!r}: records are deleted only where cleanup.policy has delete")
        with self.appender(topic, partition).hold() as appender:
            end = appender.state.next_offset
            retention.delete_before(appender, end if before_offset == LATEST else before_offset)
            return appender.state.log_start

    def clean(self, topic: str | None = None) -> int:
        """Lets go of segments that retention no longer asks for, and removes files whose delay is over.

        Appenders do this too, each for its partition when it begins a segment. This is for partitions that nobody
        writes to any more.

        Args:
            topic: which one; None: all, and what is left of deleted ones.

        Returns:
            How many segments went.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic.
            PylogError, OSError: the first that a partition gave; the others were cleaned.
        """
        count, failed = 0, None
        for name in self.topics(internal=True) if topic is None else [topic]:
            runtime = self._topic(name)
            for partition in range(runtime.description.partitions):
                if not os.path.exists(runtime.place(partition).state_path):
                    continue  # Nothing was ever written to it.
                try:
                    with self.appender(name, partition).hold(_CLEAN_TIMEOUT) as appender:
                        count += retention.clean(appender)
                except (PylogError, OSError) as error:
                    log.warning("%s: %s-%d could not be cleaned: %s", self.path, name, partition, error)
                    failed = failed or error
        if topic is None:
            self._remove_deleted()
        if failed is not None:
            raise failed
        return count

    def make_topic_if_missing(self, name: str) -> bool:
        """Makes a topic that is about to be written to, where the store lets writers do so; True if it did.

        Raises:
            UnknownTopicError: there is no such topic, and auto.create.topics.enable is false.
            InvalidTopicError: no topic can have that name.
        """
        try:
            self.describe_topic(name)
        except UnknownTopicError:
            if not store_setting(self.settings, "auto.create.topics.enable"):
                raise
        else:
            return False
        try:
            made = self.create_topic(name)
        except TopicExistsError:
            return False  # Another process was faster.
        log.info("%s: made topic %s with %d partitions", self.path, name, made.partitions)
        return True

    @property
    def writable(self) -> bool:
        """Whether this process may change the store; a reader need not be allowed to."""
        return os.access(self.path, os.W_OK)

    def _topic(self, name: str) -> _Topic:
        description = self._catalog.describe(name)
        with self._mutex:
            topic = self._topics.get(name)
            if topic is not None and topic.description is description:
                return topic
            topic = self._topics[name] = _Topic(self.path, self.settings, description)
        self._forget_appenders(name, description.topic_id)
        return topic

    def _forget_appenders(self, name: str, topic_id: str) -> None:
        """Closes the files of other topics of that name, which were deleted: open, they still take room."""
        with self._mutex:
            for place in [place for place in self._appenders if place.topic == name and place.topic_id != topic_id]:
                del self._appenders[place]

    def _places(self, topic: TopicDescription) -> Iterator[PartitionPlace]:
        return map(_Topic(self.path, self.settings, topic).place, range(topic.partitions))

    # ---- records

    def append(
        self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None, sync: bool = False
    ) -> list[AppendResult]:
        """Appends records.

        Args:
            topic: an existing topic.
            data: the columns `value` (binary or string; null is a tombstone), and as wanted `key` (the same),
                `headers` (list of structs of key and value), `timestamp` (a time, or whole ms; null: now) and
                `partition` (null: by the key, or spread).
            partition: all records go to this one.
            sync: True: returns when the records survive a power loss; else they survive the end of any process.

        Returns:
            The offsets that the records got, for each partition that got some.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidTopicError: one of the engine's own topics.
            InvalidRecordError: a column or record is refused; nothing was appended.
            OSError, OutcomeUnknownError: partitions before the one that failed have theirs.
        """
        check_open_to_all(topic)
        return self.append_to(topic, data, partition=partition, sync=sync)

    def append_to(
        self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None, sync: bool = False
    ) -> list[AppendResult]:
        """The same for any topic; for the parts of the engine that keep their records in one."""
        runtime = self._topic(topic)
        count = runtime.description.partitions
        if partition is not None:
            runtime.check(partition)
            data = _with_partition(data, partition)
        batches: dict[int, list[bytes]] = {}
        now = time.time_ns() // 1_000_000
        encoder = TopicEncoder(
            topic, count, runtime.config, lambda target, batch, _: batches.setdefault(target, []).append(batch),
            now if runtime.config.log_append_time else None,
        )  # fmt: skip
        for part in data.to_batches() if isinstance(data, pa.Table) else [data]:
            encoder.add(part, now)
        encoder.flush()
        return [
            _append_all(self.appender(topic, target), encoded, sync) for target, encoded in sorted(batches.items())
        ]

    def append_batch(self, topic: str, partition: int, batch: bytes, *, sync: bool = False) -> AppendResult:
        """Appends a record batch as a client of Kafka sends it; once, if its producer numbers its records.

        A batch with producer id, epoch and sequence numbers that was appended before, and is one of the producer's
        last five, is answered with the offsets that it got then. Nothing is written for it.

        Args:
            topic, partition: where.
            batch: one whole batch of format 2 with base offset 0, in any codec. A part of a transaction is taken
                as well; there is nobody here to end it.
            sync: as for `append`.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidTopicError: one of the engine's own topics.
            InvalidRecordError, CorruptRecordError: the batch is refused for what it is; nothing was appended.
            ProducerError: it does not follow the producer's last one, or a newer epoch of that producer has
                written here; nothing was appended.
            OSError, OutcomeUnknownError: it can be sent again: what is there by then is recognised.
        """
        check_open_to_all(topic)
        target = self.appender(topic, partition)
        data = admit(batch, target.config, str(target.place))
        with target.hold() as appender:
            return AppendResult(partition, *appender.append(data, sync=sync))

    def _make_folders(self) -> None:
        for name in (STATE_FOLDER, DATA_FOLDER):
            files.make_folder(f"{self.path}/{name}")
        self._log_folder.introduce()

    def read(
        self,
        topic: str,
        partition: int,
        start: int = EARLIEST,
        end: int | None = None,
        *,
        max_bytes: int = READ_BYTES,
        headers: bool = False,
        check_crcs: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The records of a range of offsets, in order, as batches in the row schema.

        Args:
            topic, partition: where.
            start: the first offset, or EARLIEST or LATEST.
            end: the offset behind the last; None or LATEST: the log end at the call.
            max_bytes: about how many bytes of records a batch holds, before compression; one record batch at least.
            headers: adds the column of headers.
            check_crcs: False leaves the checksums out, as Kafka's check.crcs does.

        Raises:
            UnknownTopicError: no such topic or partition.
            OffsetOutOfRangeError: with the range that is valid.
            CorruptRecordError: a damaged batch; what stands before it is given out first.
        """
        reader = self.reader(topic, partition)
        if start in (EARLIEST, LATEST) or end in (None, LATEST):
            state = reader.state()
            start = {EARLIEST: state.log_start, LATEST: state.next_offset}.get(start, start)
            end = state.next_offset if end is None or end == LATEST else end
        assert end is not None
        chunks = reader.read(start, end, max_bytes=max_bytes, headers=headers, check_crcs=check_crcs)
        rows = RowBuilder(topic, partition, headers)
        return (rows.rows(chunk.columns, chunk.num_rows) for chunk in chunks)

    def flush(self, topic: str | None = None) -> None:
        """Makes durable what was appended, by whomever; of one topic, or of all.

        Raises:
            UnknownTopicError: no such topic.
            OSError, OutcomeUnknownError: a partition could not be synced.
        """
        for name in self.topics(internal=True) if topic is None else [topic]:
            for partition in range(self.describe_topic(name).partitions):
                if self.reader(name, partition).state().next_offset:
                    with self.appender(name, partition).hold() as appender:
                        appender.settle()
        self._log_folder.write_due()

    # ---- offsets

    def earliest_offset(self, topic: str, partition: int) -> int:
        """The first offset that can be read (the log start)."""
        return self.reader(topic, partition).state().log_start

    def latest_offset(self, topic: str, partition: int) -> int:
        """The offset that the next record will get (the log end)."""
        return self.reader(topic, partition).state().next_offset

    def offset_for_timestamp(self, topic: str, partition: int, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record, in the order of offsets, of the time `timestamp` (ms) or later; None: there is none."""
        return self.reader(topic, partition).find_timestamp(timestamp)

    def size(self, topic: str, partition: int) -> int:
        """Bytes of the partition's `.log` files."""
        return self.reader(topic, partition).size()

    def segment_files(self, topic: str, partition: int) -> list[str]:
        """The partition's `.log` files, oldest first."""
        folder = self._topic(topic).place(partition).folder
        return [segment_path(folder, base, LOG) for base in list_segments(folder)]

    # ---- for the parts of the engine above

    def reader(self, topic: str, partition: int) -> Partition:
        """The partition, for reading. UnknownTopicError."""
        return self._topic(topic).reader(partition)

    def appender(self, topic: str, partition: int) -> Appender:
        """The partition, for changing it. UnknownTopicError."""
        runtime = self._topic(topic)
        place = runtime.place(partition)
        if not os.path.exists(place.state_path):
            self._make_state(place)
        with self._mutex:
            found = self._appenders.pop(place, None)
            if found is None or found.config is not runtime.config:
                found = Appender(place, runtime.config, RECOVERY, self._log_folder)
            # One that goes here while it is at work is closed when it is done.
            self._appenders[place] = found
            if len(self._appenders) > _OPEN_APPENDERS:
                self._appenders.popitem(last=False)
        return found

    def _make_state(self, place: PartitionPlace) -> None:
        """Gives a partition its state file, with its first record; but not that of a topic that is deleted."""
        self._make_folders()
        with self._catalog.changing():
            if self._catalog.describe(place.topic).topic_id != place.topic_id:
                raise UnknownTopicError(f"{place}: the topic was deleted")
            if list_segments(place.folder) and not os.path.exists(place.state_path):
                raise no_state(place)
            state_file.create(place.state_path)


_shared: OrderedDict[str, tuple[tuple[int, int], Store]] = OrderedDict()
_shared_mutex = Mutex()


class _Topic:
    """A topic with its partitions, as long as its description stays the same."""

    def __init__(self, path: str, settings: Mapping[str, str], description: TopicDescription) -> None:
        # No reference to the store: without a circle, its files close as soon as nobody uses it.
        self._path = path
        self.description = description
        self.config = TopicConfig.resolve(description.configs, settings)
        self._readers: dict[int, Partition] = {}

    def check(self, partition: int) -> None:
        if not 0 <= partition < self.description.partitions:
            raise UnknownTopicError(
                f"topic {self.description.name!r} has no partition {partition}; it has {self.description.partitions}"
            )

    def place(self, partition: int) -> PartitionPlace:
        self.check(partition)
        path, name, topic_id = self._path, self.description.name, self.description.topic_id
        return PartitionPlace(
            name, topic_id, partition,
            f"{path}/{DATA_FOLDER}/{name}-{partition}", f"{path}/{STATE_FOLDER}/{topic_id}-{partition}",
        )  # fmt: skip

    def reader(self, partition: int) -> Partition:
        # Two threads may make one each at first; both are right.
        found = self._readers.get(partition)
        if found is None:
            found = self._readers[partition] = Partition(self.place(partition))
        return found


def _with_partition(data: pa.RecordBatch | pa.Table, partition: int) -> pa.RecordBatch | pa.Table:
    column = pa.repeat(pa.scalar(partition, pa.int32()), data.num_rows)
    if "partition" in data.schema.names:
        return data.set_column(data.schema.get_field_index("partition"), "partition", column)
    return data.append_column("partition", column)


def _append_all(appender: Appender, batches: list[bytes], sync: bool) -> AppendResult:
    limit = min(_APPEND_BYTES, appender.config.segment_bytes)
    first = end = -1
    data = bytearray()
    for batch in [*batches, None]:
        if data and (batch is None or len(data) + len(batch) > limit):
            with appender.hold():
                base, end, _ = appender.append(data, sync=sync)
            first = base if first < 0 else first
            data = bytearray()
        data += batch or b""
    return AppendResult(appender.place.partition, first, end)
