"""Creates, changes and deletes the topics of a store."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping

from pyspark_log.config import int_config, store_config
from pyspark_log.errors import LogDirOfflineError, PylogError, TopicExistsError, UnknownTopicError
from pyspark_log.storage.catalog import PUBLISH_TOPIC, PartitionPath, check_name
from pyspark_log.storage.catalog.store_json import check_free
from pyspark_log.storage.catalog.topics import check_has_id
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.log.state import PartitionState, state_file
from pyspark_log.storage.log_manager import deletion
from pyspark_log.storage.log_manager.manager import LogManager
from pyspark_log.types import TopicDescription

log = logging.getLogger(__name__)


class TopicAdmin:
    """Changes topics, each change under the lock of all topics. Errors are documented at the methods of Store."""

    def __init__(
        self, logs: LogManager, *, follows_cluster: bool = False, forget: Callable[[str], bool] = lambda _name: True
    ) -> None:
        """For the store of `logs`.

        Args:
            logs: of the store.
            follows_cluster: the changes are those of the Kafka cluster whose node the store is. Others are refused in
                such a store (PartitionOwnedError), but for the topic of publishes, which is the store's own.
            forget: deletes what else the store has of a deleted topic of that name, while there is none of that name.
                Returns whether all of it is deleted; if not, or if the process is killed, it is called again before
                the next topic of that name is created, or before the last files of the deleted one go.
        """
        self._logs, self._follows_cluster, self._forget = logs, follows_cluster, forget
        self._catalog = logs.catalog
        self._path = logs.path

    def create(self, name: str, partitions: int | None, configs: Mapping[str, str]) -> TopicDescription:
        """Creates a topic; None: with the store's num.partitions."""
        if partitions is None:
            partitions = int_config(self._logs.configs, "num.partitions")
        self._check_free(name)
        self._logs.make_folders()
        with self._catalog.changing():
            self._make_room(name)
            return self._catalog.create(name, partitions, configs)

    def adopt(
        self, description: TopicDescription, states: Mapping[int, PartitionState], folders: Mapping[int, str]
    ) -> None:
        """Creates a topic from partitions whose logs are ready: all of it, or nothing.

        Args:
            description: with an id of its own.
            states: of the partitions that have a log; they name its log dir.
            folders: the folders of these logs, in the same log dir.

        Raises:
            TopicExistsError: there is one of that name.
            OSError: what was done so far is deleted with the deleted topics.
        """
        name, opened = description.name, self._logs.open(description)
        self._check_free(name)
        with self._catalog.changing():
            self._make_room(name)
            self._catalog.prepare(description)
            for number, state in states.items():
                place = opened.place_in(number, state.log_dir)
                files.rename(folders[number], place.folder)
                state_file.create(place.state_path, state)
            for folder in {self._logs.log_dirs.at(state.log_dir).path for state in states.values()}:
                files.sync_folder(folder)
            self._catalog.adopt(description)

    def internal(self, name: str, partitions: str, configs: Mapping[str, str]) -> TopicDescription:
        """Describes one of the engine's own topics, which is created if it is missing.

        `partitions`: the store's config that says how many it gets.
        """
        try:
            return self._catalog.describe(name)
        except UnknownTopicError:
            try:
                return self.create(name, int_config(self._logs.configs, partitions), configs)
            except TopicExistsError:  # Another process was faster.
                return self._catalog.describe(name)

    def create_if_missing(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> bool:
        """As Store.ensure_topic."""
        try:
            self._catalog.describe(name)
        except UnknownTopicError:
            asked = partitions is not None or configs is not None
            if not asked and not store_config(self._logs.configs, "auto.create.topics.enable"):
                raise
        else:
            return False
        try:
            made = self.create(name, partitions, configs or {})
        except TopicExistsError:
            return False  # Another process was faster.
        log.info("%s: created topic %s, partitions: %d", self._path, name, made.partitions)
        return True

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Raises a topic's number of partitions to `total`."""
        self._check_free(name)
        self._logs.make_folders()
        with self._catalog.changing():
            return self._catalog.add_partitions(name, total)

    def alter_configs(self, name: str, configs: Mapping[str, str], delete: Collection[str]) -> TopicDescription:
        """Changes configs of a topic; those in `delete` follow the store's again."""
        self._check_free(name)
        self._logs.make_folders()
        with self._catalog.changing():
            return self._catalog.alter_configs(name, configs, delete)

    def delete(
        self, name: str, progress: Callable[[int, int], None] | None = None, topic_id: str | None = None
    ) -> None:
        """Deletes a topic, and removes topics that were deleted long enough ago; arguments as of Store.delete_topic."""
        self._check_free(name)
        self._logs.make_folders()
        with self._catalog.changing():
            check_has_id(self._catalog.describe(name), topic_id)
            topic = self._catalog.delete(name)
            try:
                self._forget_rest(topic)
                self._schedule_delete(topic, progress)
            except (PylogError, OSError) as error:
                log.warning("%s: topic %s is deleted, but some files are still in place: %s", self._path, name, error)
        self._logs.close_writers(name, "")
        self.remove_deleted()

    def remove_partition(self, name: str, partition: int, *, aside: bool = False) -> str:
        """Deletes the log of one partition, which the topic still has: it is as if nothing was ever written to it.

        With `aside`, its folder stays for `file.delete.delay.ms`, by another name.

        Returns:
            That name; its path.
        """
        with self._catalog.changing():
            place = self._logs.place(name, partition)
            deletion.schedule_delete(place)
            files.sync_folder(os.path.dirname(place.folder))
            deletion.remove(place)
            grave = deletion.tombstone_path(place)
            if not aside:
                files.remove_folder(grave)
        self._logs.forget(place)
        return grave

    def _check_free(self, name: str) -> None:
        if not self._follows_cluster and name != PUBLISH_TOPIC:
            check_free(self._path, f"topic {name!r}")

    def _make_room(self, name: str) -> None:
        """Ends deleted topics whose name is about to be used again. The topics' lock is held.

        Raises:
            InvalidTopicError: no topic can have that name.
            TopicExistsError: there is one of that name; its folder may have no `partition.metadata` yet.
        """
        check_name(name)
        if self._catalog.exists(name):
            raise TopicExistsError(f"topic {name!r} exists already")
        for deleted in self._catalog.deleted():
            if deleted.topic.name == name:
                self._schedule_delete(deleted.topic)
                if not deleted.forgotten:
                    self._forget_rest(deleted.topic)

    def _forget_rest(self, topic: TopicDescription) -> bool:
        """Deletes what else the store has of a deleted topic; whether all of it is. The topics' lock is held.

        That is noted, for it must not be done twice: what is committed for that name from now on is the next topic's.
        """
        done = self._forget(topic.name)
        if done:
            self._catalog.note_forgotten(topic)
        return done

    def _schedule_delete(self, topic: TopicDescription, progress: Callable[[int, int], None] | None = None) -> None:
        """Marks the partitions of a deleted topic as dead; no other has its name yet. The topics' lock is held.

        What is in a failed log dir waits until that is back.
        """
        touched: dict[str, PartitionPath] = {}
        places = self._logs.open(topic).left()
        for done, place in enumerate(places):
            if progress is not None:
                progress(done, len(places))
            with self._failed_folder_waits(place):
                problem = self._logs.log_dirs.problem_of(place)
                if problem:
                    # The existing folder belongs to another topic, or to another store.
                    deletion.mark_dead(place)
                    log.warning("%s: the remaining files of %s will be removed later: %s", self._path, place, problem)
                    continue
                deletion.schedule_delete(place)
                touched[os.path.dirname(place.folder)] = place
        for folder in self._logs.log_dirs:
            if folder.path in touched:
                with self._failed_folder_waits(touched[folder.path]):
                    files.sync_folder(folder.path)
                # Or a topic of that name that is created next would begin with the offsets of this one.
                folder.write(timeouts.CHECKPOINTS)

    @contextlib.contextmanager
    def _failed_folder_waits(self, place: PartitionPath) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            explained = self._logs.log_dirs.explained(error, place)
            if not isinstance(explained, LogDirOfflineError):
                raise
            log.warning("%s: the remaining files of %s will be removed later: %s", self._path, place, explained)

    def remove_deleted(self) -> None:
        """Deletes the files of deleted topics whose delay is over, and what a killed process has left of them."""
        for topic, _, since in self._catalog.deleted():
            opened = self._logs.open(topic)
            if self._logs.clock() - since < opened.config.file_delete_delay_ms:
                continue
            try:
                with self._catalog.changing():
                    found = self._catalog.find_deleted(topic.topic_id)
                    if found is None:
                        continue  # It was just created: by an import.
                    if not self._catalog.exists(topic.name):  # Otherwise it was marked before that one was created.
                        self._schedule_delete(topic)
                        if not found.forgotten and not self._forget_rest(topic):
                            continue
                places = opened.left()
                failed = {place.folder for place in places if self._remove_folders(place)}
                for place in places:
                    if place.folder not in failed:
                        deletion.remove(place)
                if not failed:
                    self._catalog.invalidate(topic.topic_id)
            except (PylogError, OSError) as error:
                log.warning("%s: files of the deleted topic %s are still there: %s", self._path, topic.name, error)

    def _remove_folders(self, place: PartitionPath) -> str:
        """Deletes the folders of a dead partition; returns why they have to wait, if its log dir has failed."""
        problem = ""
        for folder in self._logs.log_dirs:
            there = place.in_log_dir(folder.path)
            if folder.problem():
                problem = problem or (folder.problem() if there.folder == place.folder else "")
                continue
            if there.owner() == place.topic_id:
                # The log dir had failed when the topic was deleted; or a move was stopped.
                deletion.set_aside(there)
            for ending in deletion.ASIDE:
                files.remove_folder(deletion.aside(there, ending))
        return problem
