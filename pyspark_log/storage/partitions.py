"""The partitions of an open store: where each one is, and this process's readers and appenders of them."""

from __future__ import annotations

import errno
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping

from pyspark_log.storage import files, retention, state_file
from pyspark_log.storage.appender import Appender
from pyspark_log.storage.config import TopicConfig
from pyspark_log.storage.errors import PylogError, UnknownTopicError
from pyspark_log.storage.locks import Mutex
from pyspark_log.storage.log_folder import LogFolder
from pyspark_log.storage.missing import no_state
from pyspark_log.storage.mounts import is_shared
from pyspark_log.storage.partition import Partition
from pyspark_log.storage.place import PartitionPlace
from pyspark_log.storage.power import RECOVERY
from pyspark_log.storage.segment import list_segments
from pyspark_log.storage.store_folder import DATA_FOLDER, STATE_FOLDER, TOPICS_FOLDER
from pyspark_log.storage.topics import TopicCatalog
from pyspark_log.storage.types import TopicDescription

log = logging.getLogger(__name__)

_TOPICS_LOCK = "topics.lock"
_CHECKPOINTS_LOCK = "checkpoints.lock"

# How long a reader waits for who puts a partition right, in seconds.
_RECOVERY_TIMEOUT = 10.0
# What the system says to who may not write.
_MAY_NOT_WRITE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
# Partitions that a process keeps open for appending, with five open files each; the least used go first.
_OPEN_APPENDERS = 128


class OpenTopic:
    """A topic with its partitions, as long as its description stays the same.

    Attributes:
        description: what the store says of it.
        config: its resolved settings.
    """

    def __init__(self, path: str, settings: Mapping[str, str], description: TopicDescription) -> None:
        """`path` and `settings` are the store's."""
        # No reference to the store: without a circle, its files close as soon as nobody uses it.
        self._path = path
        self.description = description
        self.config = TopicConfig.resolve(description.configs, settings)
        self._readers: dict[int, Partition] = {}

    def check(self, partition: int) -> None:
        """Refuses a partition that the topic does not have. UnknownTopicError."""
        if not 0 <= partition < self.description.partitions:
            raise UnknownTopicError(
                f"topic {self.description.name!r} has no partition {partition}; it has {self.description.partitions}"
            )

    def place(self, partition: int) -> PartitionPlace:
        """Where a partition's files are. UnknownTopicError."""
        self.check(partition)
        path, name, topic_id = self._path, self.description.name, self.description.topic_id
        return PartitionPlace(
            name, topic_id, partition,
            f"{path}/{DATA_FOLDER}/{name}-{partition}", f"{path}/{STATE_FOLDER}/{topic_id}-{partition}",
        )  # fmt: skip

    def places(self) -> list[PartitionPlace]:
        """Where all of them are."""
        return [self.place(partition) for partition in range(self.description.partitions)]

    def reader(self, partition: int) -> Partition:
        """The partition, for reading. UnknownTopicError."""
        # Two threads may make one each at first; both are right.
        found = self._readers.get(partition)
        if found is None:
            found = self._readers[partition] = self._open(self.place(partition))
        return found

    def _open(self, place: PartitionPlace) -> Partition:
        return Partition(place, self.config.max_batch_bytes)


class Partitions:
    """Finds the partitions of one store. Safe to use from several threads.

    Attributes:
        path, settings: the store's.
        catalog: the descriptions of its topics.
        log_folder: the folder of all partitions' folders.
    """

    def __init__(self, path: str, cluster_id: str, settings: Mapping[str, str]) -> None:
        """Looks at nothing yet."""
        self.path = path
        self.settings = settings
        self.catalog = TopicCatalog(f"{path}/{TOPICS_FOLDER}", f"{path}/{STATE_FOLDER}/{_TOPICS_LOCK}")
        self.log_folder = LogFolder(
            f"{path}/{DATA_FOLDER}", f"{path}/{STATE_FOLDER}/{_CHECKPOINTS_LOCK}", cluster_id
        )
        self._topics: dict[str, OpenTopic] = {}
        self._appenders: OrderedDict[PartitionPlace, Appender] = OrderedDict()
        self._recovered: set[PartitionPlace] = set()  # those that were written to since the machine was started
        self._used: dict[PartitionPlace, None] = {}  # those that `appender` gave out since the last `close`
        self._mutex = Mutex()

    def topic(self, name: str) -> OpenTopic:
        """A topic as it is at this moment. UnknownTopicError, InvalidTopicError."""
        description = self.catalog.describe(name)
        with self._mutex:
            topic = self._topics.get(name)
            if topic is not None and topic.description is description:
                return topic
            topic = self._topics[name] = self.open(description)
        self.forget_appenders(name, description.topic_id)
        return topic

    def open(self, description: TopicDescription) -> OpenTopic:
        """The topic of a description; it may be deleted by now."""
        return OpenTopic(self.path, self.settings, description)

    def recovered(self, topic: str, partition: int) -> Partition:
        """The partition, for reading; put right first, if possible, if the machine went down since it was written to.

        Else readers would meet what is left of records that were never synced, until somebody writes.
        UnknownTopicError.
        """
        reader = self.topic(topic).reader(partition)
        try:
            self._recover(reader.place)
        except (PylogError, OSError) as error:
            # What stands in the way is told to who reads there.
            log.info("%s: %s could not be put right after the machine went down: %s", self.path, reader.place, error)
        return reader

    def put_right(self, topic: str, partition: int) -> Partition:
        """The same for who relies on what is read: an error if it could not be put right.

        Who may not write to the store cannot, and changes nothing by what it finds; so it reads what is there.

        Raises:
            UnknownTopicError: there is no such topic.
            LockTimeoutError, LogDamagedError, OSError: the end that could be read may be too low.
        """
        reader = self.topic(topic).reader(partition)
        try:
            self._recover(reader.place)
        except OSError as error:
            if error.errno not in _MAY_NOT_WRITE:
                raise
        return reader

    def _recover(self, place: PartitionPlace) -> None:
        if place in self._recovered:
            return
        loaded = state_file.read(place.state_path)
        if loaded is None:
            return
        if loaded.state.boot != state_file.this_boot() and not is_shared(f"{self.path}/{STATE_FOLDER}"):
            with self.appender(place.topic, place.partition).hold(_RECOVERY_TIMEOUT):
                pass
        self._recovered.add(place)

    def appender(self, topic: str, partition: int) -> Appender:
        """The partition, for changing it. UnknownTopicError."""
        opened = self.topic(topic)
        place = opened.place(partition)
        if not os.path.exists(place.state_path):
            self.make_state(place)
        with self._mutex:
            self._used[place] = None
            found = self._appenders.pop(place, None)
            if found is None or found.config is not opened.config:
                found = Appender(place, opened.config, RECOVERY, retention.clean, self.log_folder)
            # One that goes here while it is at work is closed when it is done.
            self._appenders[place] = found
            if len(self._appenders) > _OPEN_APPENDERS:
                self._appenders.popitem(last=False)
        return found

    def check_writable(self) -> None:
        """Refuses what nobody may write to. ReadOnlyError."""

    def close(self) -> None:
        """Settles the partitions that were asked for to be changed, and lets their files go.

        Raises:
            PylogError, OSError: the first that a partition gave; the next call tries that one again.
        """
        failed: PylogError | OSError | None = None
        for place in list(self._used):
            try:
                # Not a topic of the same name that was made since.
                if self.topic(place.topic).description.topic_id == place.topic_id:
                    with self.appender(place.topic, place.partition).hold() as appender:
                        appender.settle()
            except UnknownTopicError:
                pass
            except (PylogError, OSError) as error:
                log.warning("%s: %s could not be synced: %s", self.path, place, error)
                failed = failed or error
                continue
            self._used.pop(place, None)
        with self._mutex:
            self._appenders.clear()
        if failed is not None:
            raise failed

    def forget_appenders(self, name: str, topic_id: str) -> None:
        """Closes the files of other topics of that name, which were deleted: open, they still take room."""
        with self._mutex:
            for place in [place for place in self._appenders if place.topic == name and place.topic_id != topic_id]:
                del self._appenders[place]

    def make_state(self, place: PartitionPlace) -> None:
        """Gives a partition its state file, with its first record; but not that of a topic that is deleted."""
        self.make_folders()
        with self.catalog.changing():
            if self.catalog.describe(place.topic).topic_id != place.topic_id:
                raise UnknownTopicError(f"{place}: the topic was deleted")
            if list_segments(place.folder) and not os.path.exists(place.state_path):
                raise no_state(place)
            state_file.create(place.state_path)

    def make_folders(self) -> None:
        """Makes the folders that topics and partitions need, if they are missing. OSError."""
        for name in (STATE_FOLDER, DATA_FOLDER):
            files.make_folder(f"{self.path}/{name}")
        self.log_folder.introduce()
