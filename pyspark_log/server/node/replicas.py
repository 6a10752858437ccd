"""The replicas of a node: made, followed and deleted as the image of the cluster's metadata says."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from pyspark_log.config import TOPIC_CONFIGS
from pyspark_log.errors import LogDamagedError, PylogError, UnknownTopicError
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import TIMEOUT, Connection
from pyspark_log.kafka.fetcher import Fetcher, Replica
from pyspark_log.replication import CopiedPartition, CopiedTopics, Copies, ReplicationError, Rules
from pyspark_log.server.cluster.image import (
    BROKER_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    Image,
    Partition,
    Resource,
    Topic,
)
from pyspark_log.server.cluster.registration import NO_EPOCH
from pyspark_log.server.node.leaders import Leaders
from pyspark_log.server.node.throttles import ReplicaThrottle
from pyspark_log.storage.catalog.topics import id_bytes
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.log.state.partition_state import of_node
from pyspark_log.storage.log_manager import TopicAdmin
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

# A follower has what its leader has.
_RULES: Final = Rules(skip_lost=True, follow_truncation=True)
# After as long (s) what has met an error, such as a full disk, is tried again.
_RETRY: Final = 5.0


class NodeReplicas(Copies):
    """The replicas of a node in its store. `follow` is called by one thread.

    Attributes:
        crashed: called with an error that no thread expects.
    """

    def __init__(
        self,
        store: FolderStore,
        node_id: int,
        listener: str,
        client: ClientConfig,
        replica: Callable[[], Replica],
        leaders: Leaders,
        incarnation_id: bytes,
        crashed: Callable[[BaseException], None],
    ) -> None:
        """
        Args:
            store: theirs.
            node_id: of the node.
            listener: by which brokers reach each other (Kafka's inter.broker.listener.name).
            client: how this node logs in to them.
            replica: what it is to them; until it has an epoch, nothing is fetched.
            leaders: what it leads.
            incarnation_id: of this process: what an earlier one has led, this one does not.
            crashed: see above.
        """
        super().__init__()
        self.crashed = crashed
        self._store, self._node_id, self._listener, self._client = store, node_id, listener, client
        self._admin = TopicAdmin(store.logs, follows_cluster=True)
        self._replica, self._topics = replica, CopiedTopics(store, self._admin)
        self._led, self._incarnation_id = leaders, incarnation_id
        self._names: dict[bytes, str] = {}  # of the topics of which this node has replicas
        self._throttle = ReplicaThrottle("follower", node_id)
        self._lost_dirs = set[int]()
        self._undone = set[bytes]()  # ids of topics that could not be followed at once
        self._undone_at = 0.0
        # What follows is shared between the threads.
        self._image = Image()
        self._failed: dict[TopicPartition, float] = {}  # and when

    def has(self, at: TopicPartition) -> bool:
        """Whether there is a replica of a partition."""
        return at in self._partitions or self._led.epoch(at) is not None

    # ---- what the image says

    def follow(self, image: Image, topics: Iterable[bytes], configs: Iterable[Resource]) -> None:
        """Takes a newer image.

        Args:
            image: it.
            topics: the ids of those that may differ from the one before; of all that there were or are, for the first.
            configs: of which topics these may differ.
        """
        with self._mutex:
            # There is a newer image every half second, even where nothing happens. A fenced broker is still lost.
            if image.brokers is not self._image.brokers:
                self._lost -= {node for node, broker in image.brokers.items() if not broker.fenced}
            self._image = image
        self._led.follow(image)
        topics = set(topics)
        self._undone -= topics
        for topic_id in topics - image.topics.keys():
            self._attempt(topic_id, self._names.get(topic_id), self._delete, topic_id)
        for topic_id in topics & image.topics.keys():
            topic = image.topics[topic_id]
            self._attempt(topic_id, topic.name, self._follow_topic, topic)
        configs = list(configs)
        changed = {resource.name for resource in configs if resource.type == TOPIC_RESOURCE}
        if any(resource.type == BROKER_RESOURCE for resource in configs):
            changed.update(self._names.values())
        for name in sorted(changed):
            changed_id = image.topic_ids.get(name)
            if changed_id in self._names:
                self._attempt(changed_id, name, self._topics.configure, name, self._configs_of(name))
        leaders = {leader for leader, _ in self._leaders.values()} - {self._node_id}
        self._fetch_from(leaders, lambda node: Fetcher(self.connect(node), replica=self._replica))

    def known_ids(self) -> list[bytes]:
        """The ids of the topics that the store has as copies: of those that the cluster has no more, too."""
        ids = []
        for name in self._store.topics(internal=True):
            topic_id = id_bytes(self._store.describe_topic(name).topic_id)
            if any(self._is_copy(TopicPartition(name, number)) for number in self._store.written_partitions(name)):
                self._names[topic_id] = name
                ids.append(topic_id)
        return ids

    def _is_copy(self, at: TopicPartition) -> bool:
        try:
            state = self._store.logs.topic(at.topic).reader(at.partition).state()
        except (PylogError, OSError) as error:
            log.warning("%s: cannot read the replica: %s", at, error)
            return False
        return state.owner_node == of_node(self._node_id)

    def undone(self) -> Collection[bytes]:
        """The ids of topics that `follow` is to be called with again, as it has met errors with them."""
        return set(self._undone) if time.monotonic() - self._undone_at > _RETRY else ()

    def _attempt(self, topic_id: bytes, subject: object, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except (PylogError, OSError) as error:
            log.warning("%s: cannot apply the cluster's change, trying again: %s", subject, error)
            self._undone.add(topic_id)
            self._undone_at = time.monotonic()

    def _follow_topic(self, topic: Topic) -> None:
        own = {
            number: partition for number, partition in topic.partitions.items() if self._node_id in partition.replicas
        }
        if own:
            configs = self._configs_of(topic.name)
            self._topics.ensure(topic.name, topic.id, len(topic.partitions), configs)
            self._topics.configure(topic.name, configs)
            self._names[topic.id] = topic.name
        elif topic.id not in self._names:
            return
        for number, partition in own.items():
            at = TopicPartition(topic.name, number)
            self._attempt(topic.id, at, self._follow_partition, at, topic.id, partition)
        for number in set(self._store.written_partitions(topic.name)) - own.keys():
            at = TopicPartition(topic.name, number)
            self._attempt(topic.id, at, self._stop, at)

    def _configs_of(self, topic: str) -> dict[str, str]:
        """What is set for a topic: for itself, for this broker, or for all brokers, in this order."""
        configs = self._image.configs
        brokers = dict[str, str]()
        for name in ("", str(self._node_id)):
            brokers.update(configs.get(Resource(BROKER_RESOURCE, name), {}))
        defaults = {name: brokers[key.store_name] for name, key in TOPIC_CONFIGS.items() if key.store_name in brokers}
        return {**defaults, **configs.get(Resource(TOPIC_RESOURCE, topic), {})}

    def _follow_partition(self, at: TopicPartition, topic_id: bytes, partition: Partition) -> None:
        leads = partition.leader == self._node_id
        if leads and self._is_known():
            if self._led.epoch(at) is None:
                # Whatever it was before: it is this node's, and no thread of a broker adds to it any more.
                self._forget(at)
                self._open(at, topic_id, partition)
            self._led.lead(at, topic_id, partition)
            return
        self._led.resign(at)
        leader = (NO_LEADER if leads else partition.leader, partition.leader_epoch)
        if self._leaders.get(at) == leader:
            return
        # The thread of the leader before may wait for its answer for long.
        self._forget(at)
        copy = self._open(at, topic_id, partition)
        with self._mutex:
            self._partitions[at], self._leaders[at] = copy, leader
            self._failed.pop(at, None)

    def _open(self, at: TopicPartition, topic_id: bytes, partition: Partition) -> CopiedPartition:
        """The copy of a partition; an empty one if its files lack what they had, or are damaged: they are set aside.

        Raises:
            ReplicationError: that is so, and no other broker leads it.
            PylogError, OSError: as CopiedPartition.
        """
        open_copy = partial(CopiedPartition, self._store, at, topic_id, _RULES, of_node(self._node_id))
        try:
            return open_copy()
        except LogDamagedError as error:
            why = error.what
        except UnknownTopicError:
            # The topic was there just now: the process was killed while it set the partition aside.
            why = f"{at}: only a part of it is left"
        if partition.leader in (NO_LEADER, self._node_id):
            raise ReplicationError(
                f"{why}. No other broker leads it, so nothing is changed: bring its files back as they were; or have "
                "another replica lead (kafka-leader-election.sh --election-type unclean, which may lose records), and "
                "this one is copied again from it"
            )
        logs = self._store.logs
        if problem := logs.log_dirs.problem_of(logs.place(at.topic, at.partition)):
            raise ReplicationError(f"{why}, as {problem}")
        aside = self._admin.remove_partition(at.topic, at.partition, aside=True)
        log.error(
            "%s. All of %s is copied again from broker %d; what was there is in %s", why, at, partition.leader, aside
        )
        return open_copy()

    def _is_known(self) -> bool:
        """Whether the image has the registration of this process."""
        broker = self._image.brokers.get(self._node_id)
        return broker is not None and broker.incarnation_id == self._incarnation_id

    def _stop(self, at: TopicPartition) -> None:
        """Deletes a replica that the node has no more."""
        self._led.resign(at)
        self._forget(at)
        self._admin.remove_partition(at.topic, at.partition)
        log.info("%s: deleting the replica, which was reassigned", at)

    def _delete(self, topic_id: bytes) -> None:
        """Deletes a topic that the cluster has deleted."""
        name = self._names.get(topic_id)
        if name is None:
            return
        if (
            name in self._store.topics(internal=True)
            and id_bytes(self._store.describe_topic(name).topic_id) == topic_id
        ):
            for at in [at for at in (*self._partitions, *self._led.leads()) if at.topic == name]:
                self._led.resign(at)
                self._forget(at)
            self._admin.delete(name)
            log.info("%s: deleting the topic, as the cluster has", name)
        del self._names[topic_id]

    def _forget(self, at: TopicPartition) -> None:
        """Ends the copy of a partition: no thread adds to it any more."""
        with self._mutex:
            copy = self._partitions.pop(at, None)
            self._leaders.pop(at, None)
            self._failed.pop(at, None)
        if copy is not None:
            copy.stop()

    # ---- what threads ask (see replication.Copies)

    def connect(self, node: int, timeout: float = TIMEOUT) -> Connection:
        """A connection to a broker, by the listener of brokers; `timeout`: of its answers (s). OSError, LoginError."""
        broker = self._image.brokers.get(node)
        endpoints = () if broker is None else broker.endpoints
        for endpoint in endpoints:
            if endpoint.listener == self._listener:
                return Connection(endpoint.host, endpoint.port, self._client, timeout=timeout)
        has = ", ".join(endpoint.listener for endpoint in endpoints) or "none"
        raise ConnectionRefusedError(f"broker {node} has no listener {self._listener}; it has {has}")

    def misplaced(self, directories: Mapping[int, bytes]) -> dict[bytes, dict[bytes, list[int]]]:
        """The replicas of which the cluster does not know the log dir: by its id, their topics' ids and numbers.

        Args:
            directories: the ids of the log dirs by their numbers.

        Raises:
            PylogError, OSError: the state of one cannot be read.
        """
        by_directory = dict[bytes, dict[bytes, list[int]]]()
        only = next(iter(directories.values())) if len(directories) == 1 else None
        for at in [*self._partitions, *self._led.leads()]:
            topic = self._image.topic(at.topic)
            partition = None if topic is None else topic.partitions.get(at.partition)
            if topic is None or partition is None or self._node_id not in partition.replicas:
                continue
            # Where there is one log dir its id may be another than before: the disk was replaced.
            here = only or directories.get(self._store.logs.topic(at.topic).reader(at.partition).state().log_dir)
            if here is not None and partition.directory_of(self._node_id) != here:
                by_directory.setdefault(here, {}).setdefault(topic.id, []).append(at.partition)
        return by_directory

    def lose_log_dir(self, number: int) -> None:
        """Takes that a log dir has failed: its replicas are not continued, until the node is started again."""
        self._lost_dirs.add(number)

    def _may_fetch(self, at: TopicPartition, _one: CopiedPartition) -> bool:
        if self._replica().epoch == NO_EPOCH:
            # Another process may be registered as this node. Leaders would take what this one has for what that has.
            return False
        since = self._failed.get(at)
        if since is not None and time.monotonic() - since <= _RETRY:
            return False
        if self._lost_dirs and self._store.logs.topic(at.topic).reader(at.partition).state().log_dir in self._lost_dirs:
            return False
        return not self._throttle.holds_back(self._image, at, self._node_id)

    def took(self, partition: CopiedPartition, size: int) -> None:
        """Counts bytes that were copied."""
        self._throttle.count(self._image, partition.at, self._node_id, size)

    def fail(self, at: TopicPartition, error: Exception) -> None:
        """Notes that a replica cannot be continued; it is tried again later."""
        with self._mutex:
            if at not in self._partitions:
                return  # It was moved away meanwhile.
            self._failed[at] = time.monotonic()
        problem: object = error
        if isinstance(error, LogDamagedError):
            # Nothing that is fetched helps it: it is opened again.
            problem, topic_id = error.what, self._image.topic_ids.get(at.topic)
            self._forget(at)
            if topic_id is not None:
                self._undone.add(topic_id)
        log.error("%s: replication has stopped, trying again: %s", at, problem)

    def crash(self, error: BaseException) -> None:
        """Ends the node."""
        self.crashed(error)
