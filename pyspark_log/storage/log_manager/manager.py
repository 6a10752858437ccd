"""The partitions of an open store: where each one is, and this process's readers and writers of them."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from pyspark_log.config import TopicConfig
from pyspark_log.errors import (
    InvalidConfigError,
    LogDamagedError,
    PylogError,
    ReadOnlyError,
    StoreError,
    UnknownTopicError,
)
from pyspark_log.storage.catalog import INTERNAL_TOPICS, LogDirs, PartitionPath, TopicCatalog, log_dir_list, store_json
from pyspark_log.storage.catalog.log_dir_list import ListedLogDir
from pyspark_log.storage.catalog.store_json import STATE_FOLDER, TOPICS_FOLDER, TOPICS_LOCK
from pyspark_log.storage.fs import Mutex, files
from pyspark_log.storage.fs.clock import StoreClock
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.fs.mounts import is_shared
from pyspark_log.storage.log import HeldLog, Turnstile
from pyspark_log.storage.log.producers import ProducerEntry
from pyspark_log.storage.log.read import LogReader
from pyspark_log.storage.log.state import EMPTY, PartitionState, state_file
from pyspark_log.storage.log.state.partition_state import holds_segments, no_state
from pyspark_log.storage.log_manager import deletion
from pyspark_log.types import TopicDescription

log = logging.getLogger(__name__)

# Up to this many partitions are each looked up by name; for more all state files are listed.
_FEW_PARTITIONS = 64
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
# The system's errors for a process that may not write.
_MAY_NOT_WRITE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_OPEN_WRITERS = 128


class TopicLogs:
    """A topic with its partitions, as long as its description stays the same.

    Attributes:
        description: the topic's, as stored.
        config: its resolved configs.
    """

    def __init__(self, path: str, configs: Mapping[str, str], description: TopicDescription, log_dirs: LogDirs) -> None:
        """`path`, `configs` and `log_dirs` are the store's. InvalidConfigError: a config has a bad value."""
        # No reference to the store: without a cycle, its files close as soon as it is dropped.
        self._path = path
        self.description = description
        try:
            self.config = TopicConfig.resolve(description.configs, configs)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"topic {description.name!r}: {error}") from None
        self._log_dirs = log_dirs
        self._readers: dict[int, LogReader] = {}
        self._leader_epochs: dict[int, int] = {}
        #: The partitions that are known to be recovered since the machine was started.
        self.recovered: set[int] = set()

    def check(self, partition: int) -> None:
        """Raises UnknownTopicError if the topic does not have that partition."""
        if not 0 <= partition < self.description.partitions:
            raise UnknownTopicError(
                f"topic {self.description.name!r} has no partition {partition}; it has {self.description.partitions}"
            )

    def state_path(self, partition: int) -> str:
        """The path of a partition's state file. UnknownTopicError."""
        self.check(partition)
        return f"{self._path}/{STATE_FOLDER}/{self.description.topic_id}-{partition}"

    def place(self, partition: int) -> PartitionPath:
        """Where a partition's files are now. UnknownTopicError."""
        path = self.state_path(partition)
        return self.place_in(partition, _log_dir_of(self._log_dirs, path, f"{self.description.name}-{partition}"))

    def place_in(self, partition: int, log_dir: int) -> PartitionPath:
        """Where its files are if they are in the log dir of that number. UnknownTopicError."""
        name, path = self.description.name, self._log_dirs.at(log_dir).path
        return PartitionPath(
            name, self.description.topic_id, partition, f"{path}/{name}-{partition}", self.state_path(partition)
        )

    def written(self) -> list[int]:
        """The partitions that were ever written to, ascending. OSError."""
        count = self.description.partitions
        if count <= _FEW_PARTITIONS:
            return [number for number in range(count) if files.exists(self.state_path(number))]
        start = f"{self.description.topic_id}-"
        try:
            names = files.list_folder(f"{self._path}/{STATE_FOLDER}")
        except FileNotFoundError:
            return []
        numbers = (name[len(start) :] for name in names if name.startswith(start))
        return sorted(number for text in numbers if _NUMBER.fullmatch(text) and (number := int(text)) < count)

    def places(self) -> list[PartitionPath]:
        """Where the partitions are that were ever written to."""
        return [self.place(partition) for partition in self.written()]

    def left(self) -> list[PartitionPath]:
        """Where the partitions are that have a state file, or a folder of any name. OSError."""
        found = set(self.written())
        name = re.compile(
            re.escape(self.description.name) + r"-(0|[1-9][0-9]{0,9})|"
            r".*-([0-9]+)\." + deletion.hex_id(self.description.topic_id) + "-[a-z]+"
        )
        for folder in self._log_dirs:
            # A failed log dir lists no names; what is in it waits, as its partitions' state files name it.
            with contextlib.suppress(OSError):
                matches = filter(None, map(name.fullmatch, files.list_folder(folder.path)))
                found.update(int(match[1] or match[2]) for match in matches)
        return [self.place(number) for number in sorted(found) if number < self.description.partitions]

    def leader_epoch(self, partition: int) -> int:
        """Kafka's leader epoch of a partition; 0: it was never written to. UnknownTopicError, LogDamagedError.

        It changes only in a log that is or was a copy of another one, so it is read once, until `note_leader_epoch`.
        """
        known = self._leader_epochs.get(partition)
        if known is None:
            known = self._leader_epochs[partition] = self.reader(partition).state().leader_epoch
        return known

    def note_leader_epoch(self, partition: int, epoch: int) -> None:
        """Takes in the leader epoch of a partition that a caller has just read."""
        self._leader_epochs[partition] = epoch

    def reader(self, partition: int) -> LogReader:
        """The reader of a partition. UnknownTopicError."""
        # Two threads may create one each at first; both are valid.
        found = self._readers.get(partition)
        if found is None:
            found = self._readers[partition] = self._open(self.place(partition))
        return found

    def _open(self, place: PartitionPath) -> LogReader:
        return LogReader(place, self.config.max_batch_bytes, self._log_dirs)


class LogManager:
    """Finds the partitions of one store. Safe to use from several threads.

    Attributes:
        path, cluster_id, configs: the store's.
        clock: the clock of everything that is done with this store.
        recorded_cluster_id: the store's id; None if its folder has none.
        catalog: the descriptions of its topics.
        led: of a node of a Kafka cluster: the leader epochs of the partitions that it leads, by their state files.
        log_dirs: the store's log dirs.
        reads_only: why this process changes nothing that it might change; "": it may.
        most_writers: how many partitions are kept open for appending, with five open files each. The least recently
            used is closed; to open it again takes the longer, the more idempotent producers have written to it.
    """

    def __init__(
        self,
        path: str,
        cluster_id: str,
        configs: Mapping[str, str],
        log_dirs: Mapping[int, ListedLogDir] = log_dir_list.DEFAULT,
        next_log_dir: int = len(log_dir_list.DEFAULT),
    ) -> None:
        """Reads nothing yet. The arguments are the contents of store.json."""
        self.path = path
        self.cluster_id = cluster_id
        self.configs = configs
        self.recorded_cluster_id: str | None = cluster_id
        self.clock = StoreClock()
        self.catalog = TopicCatalog(f"{path}/{TOPICS_FOLDER}", f"{path}/{STATE_FOLDER}/{TOPICS_LOCK}")
        self.log_dirs = LogDirs(path, cluster_id, log_dirs, next_log_dir, self.clock)
        self.most_writers = _OPEN_WRITERS
        self._topics: dict[str, TopicLogs] = {}
        self.led: dict[str, int] = {}
        self.reads_only = ""
        self._writers: OrderedDict[str, Turnstile] = OrderedDict()  # by their state files
        self._used: dict[str, PartitionPath] = {}  # those that `writer` returned since the last `close`
        self._mutex = Mutex()

    #: Whether it is a Kafka broker's folder, which cannot be written.
    is_brokers = False

    @property
    def writable(self) -> bool:
        """Whether this process may change the store; a reader does not need that."""
        return not self.is_brokers and not self.reads_only and files.may(self.path, os.W_OK)

    # ---- topics

    def topics(self, *, internal: bool = False) -> list[str]:
        """The names of the topics, sorted; with `internal` also internal ones, of the engine and of Kafka's brokers."""
        return [name for name in self.catalog.names() if internal or name not in INTERNAL_TOPICS]

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's id, partitions and configs. UnknownTopicError, InvalidTopicError."""
        return self.catalog.describe(name)

    def topic_config(self, name: str) -> TopicConfig:
        """A topic's resolved configs. UnknownTopicError, InvalidTopicError."""
        return self.topic(name).config

    def written_partitions(self, topic: str) -> list[int]:
        """The partitions that have files, ascending; of a broker's topic those that are here.

        The cost grows with these, not with the topic's number of partitions. UnknownTopicError.
        """
        return [place.partition for place in self.topic(topic).left()]

    def topic(self, name: str) -> TopicLogs:
        """A topic as it is now. UnknownTopicError, InvalidTopicError."""
        description = self.catalog.describe(name)
        with self._mutex.lock:
            topic = self._topics.get(name)
            if topic is not None and topic.description is description:
                return topic
            topic = self._topics[name] = self.open(description)
        self.close_writers(name, description.topic_id)
        return topic

    def open(self, description: TopicDescription) -> TopicLogs:
        """The topic of a description; it may be deleted by now."""
        return TopicLogs(self.path, self.configs, description, self.log_dirs)

    def recorded_topic_id(self, name: str) -> str | None:
        """A topic's id; None if no file has it. UnknownTopicError, InvalidTopicError."""
        return self.catalog.describe(name).topic_id

    # ---- partitions

    def place(self, topic: str, partition: int) -> PartitionPath:
        """Where a partition's files are now. UnknownTopicError."""
        return self.topic(topic).place(partition)

    def state_paths(self, topic: str, partitions: Iterable[int]) -> list[str]:
        """The state files of partitions: they change with each append. A broker's do not exist. UnknownTopicError."""
        return list(map(self.topic(topic).state_path, partitions))

    def reader(self, topic: str, partition: int) -> LogReader:
        """The reader of a partition as it is. UnknownTopicError."""
        return self.topic(topic).reader(partition)

    def recovered(self, topic: str, partition: int) -> LogReader:
        """The reader of a partition, which is first recovered, if possible, if a crash came after the last write.

        Without that readers would meet what is left of records that were never synced, until the next write.
        UnknownTopicError.
        """
        opened = self.topic(topic)
        reader = opened.reader(partition)
        try:
            self._recover(opened, partition)
        except (PylogError, OSError) as error:
            # The error is reported to the reader of that partition.
            log.info("%s: %s could not be recovered after a power loss: %s", self.path, reader.place, error)
        return reader

    def recovered_or_raise(self, topic: str, partition: int) -> LogReader:
        """The same for a caller that relies on what is read: an error if the partition could not be recovered.

        A process that may not write to the store cannot recover, and changes nothing by what it finds; it reads what is
        there.

        Raises:
            UnknownTopicError: there is no such topic.
            LockTimeoutError, LogDamagedError, OSError: the readable end may be too low.
        """
        opened = self.topic(topic)
        reader = opened.reader(partition)
        try:
            self._recover(opened, partition)
        except OSError as error:
            if error.errno not in _MAY_NOT_WRITE:
                raise
        return reader

    def _recover(self, topic: TopicLogs, partition: int) -> None:
        if partition in topic.recovered:
            return
        loaded = state_file.read(topic.state_path(partition))
        if loaded is None:
            return
        if loaded.state.boot != state_file.this_boot() and not is_shared(f"{self.path}/{STATE_FOLDER}"):
            with self.writer_of(topic, partition).hold(timeouts.RECOVERY):
                pass
        topic.recovered.add(partition)

    def writer(self, topic: str, partition: int) -> Turnstile:
        """What lets appends to a partition in. UnknownTopicError."""
        return self.writer_of(self.topic(topic), partition)

    def writer_of(self, topic: TopicLogs, partition: int) -> Turnstile:
        """The same for a topic that was looked up just now. UnknownTopicError."""
        path = topic.state_path(partition)
        if path not in self._writers and not files.exists(path):
            self.make_state(topic, partition)
        with self._mutex.lock:
            found = self._writers.get(path)
            if found is None or found.config is not topic.config:
                held = HeldLog(topic.place(partition), topic.config, self.log_dirs, self.clock, self.led)
                found = self._writers[path] = Turnstile(held)
            self._writers.move_to_end(path)
            self._used[path] = found.place
            # A writer that is dropped here while it is in use is closed when it is done.
            if len(self._writers) > self.most_writers:
                self._writers.popitem(last=False)
        return found

    def producers(self, topic: str, partition: int) -> list[ProducerEntry]:
        """The idempotent producers of a partition. Raises as `Turnstile.hold`; UnknownTopicError."""
        if not self.recovered(topic, partition).state().may_have_transactions:
            return []
        with self.writer(topic, partition).hold() as writer:
            return writer.log.producers.entries(writer.state, self.clock())

    def check_log_dirs(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Checks that the log dirs of partitions can be written to, by reading from each disk.

        Raises:
            UnknownTopicError: there is no such topic.
            LogDirOfflineError: a log dir has failed; or none can take a new partition.
        """
        looked = set()
        self.log_dirs.refresh()
        topics = dict[str, TopicLogs]()
        for topic, partition in partitions:
            opened = topics[topic] = topics.get(topic) or self.topic(topic)
            path = opened.state_path(partition)
            if self.log_dirs.had_several:
                loaded = state_file.read(path)
                number = None if loaded is None else loaded.state.log_dir
            else:
                number = 0 if files.exists(path) else None
            if number is None:
                self.log_dirs.choose(f"{topic}-{partition}")
            elif number not in looked:
                self.log_dirs.check(number, opened.place_in(partition, number), written=True)
                looked.add(number)

    def check_writable(self) -> None:
        """Raises ReadOnlyError if this store is never written to."""
        if self.reads_only:
            raise ReadOnlyError(f"{self.path} is for reading only: {self.reads_only}")

    def close(self) -> None:
        """Settles the partitions that were opened for changes, and closes their files.

        Raises:
            PylogError, OSError: the first error of a partition; the next call tries that one again.
        """
        failed: PylogError | OSError | None = None
        for path, place in list(self._used.items()):
            try:
                # Not a topic of the same name that was created since.
                if self.topic(place.topic).description.topic_id == place.topic_id:
                    with self.writer(place.topic, place.partition).hold() as writer:
                        writer.log.flush()
            except UnknownTopicError:
                pass
            except (PylogError, OSError) as error:
                log.warning("%s: %s could not be synced: %s", self.path, place, error)
                failed = failed or error
                continue
            self._used.pop(path, None)
        with self._mutex.lock:
            self._writers.clear()
        if failed is not None:
            raise failed

    def close_writers(self, name: str, topic_id: str) -> None:
        """Closes the files of deleted topics of that name: while they are open, they still take space."""
        with self._mutex.lock:
            for path, writer in list(self._writers.items()):
                if writer.place.topic == name and writer.place.topic_id != topic_id:
                    del self._writers[path]

    def forget(self, place: PartitionPath) -> None:
        """Closes the files of a partition that was deleted, and forgets what is known of it."""
        with self._mutex.lock:
            self._writers.pop(place.state_path, None)
            self._used.pop(place.state_path, None)
            self._topics.pop(place.topic, None)

    def make_state(
        self, opened: TopicLogs, partition: int, log_dir: int | None = None, begins: PartitionState = EMPTY
    ) -> None:
        """Creates a partition's state file, before its first record; not for a topic that is deleted.

        Args:
            opened: the topic.
            partition: which one.
            log_dir: where its log is to be; None: `LogDirs.choose` decides.
            begins: its first state.

        Raises:
            LogDirOfflineError: none of the log dirs can be used.
        """
        self.make_folders()
        place = opened.place(partition)
        with self.catalog.changing():
            if self.catalog.describe(place.topic).topic_id != place.topic_id:
                raise UnknownTopicError(f"{place}: the topic was deleted")
            if files.exists(place.state_path):
                return  # Another process was faster.
            if holds_segments(self.log_dirs, place) and (
                not self.log_dirs.had_several or place.owner() in ("", place.topic_id)
            ):
                raise no_state(place)
            number = self.log_dirs.choose(str(place)) if log_dir is None else log_dir
            state_file.create(place.state_path, begins._replace(log_dir=number))
            if self.log_dirs.at(number).directory_id:
                # So that it is counted when the next one is placed.
                files.make_folder(opened.place_in(partition, number).folder)

    def make_folders(self) -> None:
        """Creates the folders that topics and partitions need, if they are missing. OSError.

        A log dir that has an id is never recreated: it would look like one to which nothing was ever written.
        """
        files.make_folder(f"{self.path}/{STATE_FOLDER}")
        self.log_dirs.refresh()
        for folder in self.log_dirs:
            if not folder.directory_id:
                files.make_folder(folder.path)
                folder.introduce()

    def add_log_dir(self, name: str) -> None:
        """Adds a log dir to the store; see `Store.add_log_dir`."""
        self.make_folders()
        with self.catalog.changing():
            store_json.add_log_dir(self.path, name)
        self.log_dirs.refresh()

    def write_checkpoints(self) -> None:
        """Updates Kafka's checkpoints if they are due; never fails."""
        for folder in self.log_dirs:
            folder.write_due()


def _log_dir_of(folders: LogDirs, state_path: str, name: str) -> int:
    """The number of the log dir that a partition is in, by its state; without a readable state, by its folder.

    Args:
        folders: the store's log dirs.
        state_path: the partition's state file.
        name: of its folder.
    """
    try:
        loaded = state_file.read(state_path)
    except (LogDamagedError, StoreError):
        loaded = None
    if loaded is not None:
        return loaded.state.log_dir
    if folders.had_several:
        for number, folder in folders.numbered():
            if files.is_folder(f"{folder.path}/{name}"):
                return number
    return next(number for number, _ in folders.numbered())
