"""The log dirs of one Kafka broker (its `log.dirs`) as one: its topics, and where their partitions are.

Usually there is one. Several are given as in the broker's own configs, separated by commas; each partition is
in one of them. Nothing is ever changed.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

from pyspark_log.errors import InvalidConfigError, StoreNotFoundError, UnknownTopicError
from pyspark_log.near_names import did_you_mean
from pyspark_log.storage.broker.log_dir import BrokerLogDir
from pyspark_log.storage.catalog.kafka_files import META_PROPERTIES
from pyspark_log.storage.fs import Mutex, files
from pyspark_log.types import TopicDescription, TopicPartition
from pyspark_log.units import plural

log = logging.getLogger(__name__)

#: The partitions of a topic, and the log dir of each.
Where = Mapping[int, BrokerLogDir]
_Listing = Mapping[str, list[int]]

_BETWEEN = re.compile(r"\s*,\s*(?=/)")
_NOTHING: _Listing = {}


class BrokerLogDirs:
    """All log dirs that were asked for. Safe to use from several threads.

    Attributes:
        path: as it was asked for, absolute.
        recorded_cluster_id: of the broker's cluster; None if no log dir has it.
        cluster_id: the same; made from the path if no log dir has it.
        first: one of the log dirs, for partitions that are in none.
    """

    def __init__(self, path: str, folders: list[BrokerLogDir]) -> None:
        """Called by `find`."""
        self.path = path
        self.recorded_cluster_id = folders[0].recorded_cluster_id
        self.cluster_id = folders[0].cluster_id
        self.first = folders[0]
        self._folders = folders
        self._topics: tuple[list[_Listing], dict[str, Where]] = ([], {})
        self._described: dict[str, tuple[tuple[int, int], Where, TopicDescription]] = {}
        self._left_out: set[str] = set()
        self._mutex = Mutex()

    @classmethod
    def find(cls, path: str) -> BrokerLogDirs | None:
        """Returns the log dir at an absolute path, or several separated by commas, if the path names any.

        Of several, a log dir that cannot be read is left out, with a warning.

        Raises:
            SideFileError: a `meta.properties` is damaged.
            StoreNotFoundError: one belongs to a store; or one of several is no broker's log dir, or none can be read.
            InvalidConfigError: several are of different clusters, or have a partition in common.
        """
        single = BrokerLogDir.find(path)
        if single is not None:
            return cls(path, [single])
        parts = _BETWEEN.split(path)
        if len(parts) == 1:
            return None
        folders = []
        for part in map(os.path.normpath, parts):
            try:
                files.list_folder(part)
                found = BrokerLogDir.find(part)
            except OSError as error:
                log.warning("%s: its partitions are left out: %s", part, error)
                continue
            if found is None or not files.exists(f"{part}/{META_PROPERTIES}"):
                raise StoreNotFoundError(f"{part} is not one of a Kafka broker's log.dirs: it has no {META_PROPERTIES}")
            folders.append(found)
            if found.cluster_id != folders[0].cluster_id:
                raise InvalidConfigError(
                    f"{folders[0].path} is of the Kafka cluster {folders[0].cluster_id}, and {part} of "
                    f"{found.cluster_id}: only folders of one broker can be read as one"
                )
        if not folders:
            raise StoreNotFoundError(f"none of the folders {path} can be read")
        broker = cls(path, folders)
        broker.topics()
        return broker

    def topics(self) -> Mapping[str, Where]:
        """The topics, and where their partitions are, ascending. InvalidConfigError: one is in two log dirs."""
        listings = self._list()
        with self._mutex.lock:
            if [*map(id, listings)] != [*map(id, self._topics[0])]:
                try:
                    self._topics = listings, self._merged(listings)
                except InvalidConfigError:
                    # The broker may just have moved it from the log dir that was listed first to another.
                    listings = self._list()
                    self._topics = listings, self._merged(listings)
            return self._topics[1]

    def _list(self) -> list[_Listing]:
        listings = []
        for folder in self._folders:
            try:
                listings.append(folder.topics())
                self._left_out.discard(folder.path)
            except OSError as error:
                if len(self._folders) == 1:
                    raise
                if folder.path not in self._left_out:
                    self._left_out.add(folder.path)
                    log.warning("%s: its partitions are left out: %s", folder.path, error)
                listings.append(_NOTHING)
        return listings

    def _merged(self, listings: list[_Listing]) -> dict[str, Where]:
        found: dict[str, dict[int, BrokerLogDir]] = {}
        for folder, listing in zip(self._folders, listings, strict=True):
            for topic, partitions in listing.items():
                where = found.setdefault(topic, {})
                for partition in partitions:
                    if partition in where:
                        raise InvalidConfigError(
                            f"partition {topic}-{partition} is in {where[partition].path} and in {folder.path}: "
                            "a broker has each partition once"
                        )
                    where[partition] = folder
        return {topic: dict(sorted(where.items())) for topic, where in found.items()}

    def describe(self, name: str) -> TopicDescription:
        """A topic, with as many partitions as the largest number here implies. UnknownTopicError."""
        where = self.topics().get(name)
        if not where:
            near = did_you_mean(name, self.topics())
            raise UnknownTopicError(f"there is no folder of a partition of topic {name!r} in {self.path}{near}")
        numbers = list(where)
        at = TopicPartition(name, numbers[0])
        # The same object for as long as it is the same topic, in the same place: cached data of its partitions depends
        # on it.
        stamp = where[at.partition].topic_id_stamp(at)
        with self._mutex.lock:
            known = self._described.get(name)
            if known is None or known[:2] != (stamp, where):
                missing = numbers[-1] + 1 - len(numbers)
                if missing:
                    log.warning(
                        "%s: without %s of %s, which read as empty", self.path, plural(missing, "partition"), name
                    )
                known = stamp, where, TopicDescription(name, where[at.partition].topic_id(at), numbers[-1] + 1)
                self._described[name] = known
        return known[2]
