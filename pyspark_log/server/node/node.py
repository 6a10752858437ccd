"""A node in a Kafka cluster: its threads follow the metadata, register it, and copy what it has replicas of."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final

from pyspark_log.errors import PylogError
from pyspark_log.kafka import decode_response
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.error_codes import name_of
from pyspark_log.kafka.fetcher import Replica
from pyspark_log.kafka.messages import AlterPartitionResponse, AssignReplicasToDirsRequest
from pyspark_log.kafka.schemas import Struct, message_of
from pyspark_log.server.cluster.errors import NodeError, RegistrationError
from pyspark_log.server.cluster.fold import Change, differing
from pyspark_log.server.cluster.image import Endpoint, Image
from pyspark_log.server.cluster.observer import Observer, ObserverConfig
from pyspark_log.server.cluster.registration import NO_EPOCH, NodeConfig, Registration, State
from pyspark_log.server.cluster.requests import Address, Send
from pyspark_log.server.network import Workers
from pyspark_log.server.node.clean_shutdown import note_clean_shutdown, take_clean_shutdown
from pyspark_log.server.node.cluster_clients import ClusterClients
from pyspark_log.server.node.config import ClusterConfig
from pyspark_log.server.node.controllers import TIMEOUT, Connections, envelope
from pyspark_log.server.node.leaders import Leaders
from pyspark_log.server.node.replicas import NodeReplicas
from pyspark_log.storage.catalog.kafka_files import META_PROPERTIES, read_meta_properties
from pyspark_log.storage.catalog.store_json import OwnCluster, note_cluster
from pyspark_log.storage.catalog.topics import id_bytes
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

# Kafka's numbers are their places here.
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# How long a thread sleeps at most, in seconds.
_NAP: Final = 0.5
# How long the controllers have to let the node leave, and to fence one that gives up, in seconds.
_LEAVING: Final = 30.0
_GIVING_UP: Final = 5.0
# After as long (s) a change of which replicas are in sync is asked for again.
_AGAIN: Final = 0.1


class Node:
    """A node. Its threads run from `start` to `stop`.

    Attributes:
        image: the newest one.
        listener: by which brokers reach each other.
        asking: runs `forward` and `ask_controllers`, and nothing that must not wait for controllers.
        creating: topics that the controllers are being asked to create. For the thread of handlers alone.
        leaders: what the node leads.
    """

    def __init__(
        self, store: FolderStore, node_id: int, config: ClusterConfig, reached_at: tuple[str, int, str],
        clients: ClusterClients, failed: Callable[[BaseException], object], joined: Callable[[], object],
        changed: Callable[[TopicPartition], object], later: Callable[[Callable[[], object]], object], asking: Workers,
    ) -> None:  # fmt: skip
        """
        Args:
            store: of the cluster's id.
            node_id: its broker.id.
            config: how it is a node.
            reached_at: where clients and brokers find it: host, port, and Kafka's security protocol.
            clients: those of the cluster, which follow the image, too.
            failed: called, by any thread, with an error that ends the node.
            joined: called once, by another thread, when clients can be served: the node knows the cluster, and is known
                to it as unfenced, unless it stays fenced. Clients that learned of no broker before would find none.
            changed, later: as of Leaders.
            asking: see above; closed by `stop`.
        """
        store.logs.make_folders()
        self._store, self._log_dirs = store, [folder.path for folder in store.logs.log_dirs]
        # Before anything else changes, as from now on this run counts.
        previous_epoch = take_clean_shutdown(self._log_dirs)
        self._directories = {number: _directory_id(log_dir.path) for number, log_dir in store.logs.log_dirs.numbered()}
        self._lost = set[bytes]()
        directories = tuple(self._directories.values())
        host, port, protocol = reached_at
        self.image, self.listener = Image(), config.listener or protocol
        self.asking, self.creating = asking, set[str]()
        endpoint = Endpoint(self.listener, host, port, _PROTOCOLS.index(protocol))
        self._node_id, self._config, self._failed, self._joined = node_id, config, failed, joined
        self._clients, self._later = clients, later
        controllers = tuple(Address(*address) for address in config.controllers)
        self._incarnation_id = incarnation_id = secrets.token_bytes(16)
        self._observer = Observer(
            ObserverConfig(controllers, cluster_id=store.cluster_id, node_id=node_id, directory_id=directories[0])
        )
        registered = NodeConfig(
            node_id, store.cluster_id, incarnation_id, (endpoint,), directories, config.rack, previous_epoch,
            stay_fenced=config.stay_fenced,
        )  # fmt: skip
        self._registration = Registration(registered)
        self.leaders = Leaders(store, node_id, changed, later)
        self._replicas = NodeReplicas(
            store, node_id, self.listener, config.client, self._replica, self.leaders, incarnation_id, self._end
        )
        self._is_first, self._is_joined = True, False
        # Of the registration.
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), name=loop.__name__, daemon=True)
            for loop in (self._follow_metadata, self._beat, self._propose)
        ]

    def start(self) -> None:
        """Starts its threads."""
        for thread in self._threads:
            thread.start()

    def leave(self, then: Callable[[], object]) -> None:
        """Begins to leave the cluster in order, while the node serves; `then` is called by another thread.

        It is called once another broker leads what the node has led, or after a while if the controllers do not answer.
        """

        def wait() -> None:
            with self._changed:
                self._registration.shut_down()
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._registration.state is State.STOPPED or self._stopping.is_set(), _LEAVING
                )
            then()

        threading.Thread(target=wait, name="leave", daemon=True).start()

    def stop(self) -> None:
        """Ends its threads."""
        self._stopping.set()
        self.leaders.due.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._replicas.close()
        self.asking.close()

    def note_end(self) -> None:
        """Notes that the node has ended in order, once nothing changes its logs any more. PylogError, OSError."""
        self._store.flush()
        if self._registration.epoch != NO_EPOCH:
            note_clean_shutdown(self._log_dirs, self._registration.epoch)

    @property
    def is_unfenced(self) -> bool:
        """Whether the node is a broker of the cluster that clients are named, as far as it knows."""
        own = self.image.brokers.get(self._node_id)
        return own is not None and own.incarnation_id == self._incarnation_id and not own.fenced

    def connect(self, broker: int) -> Connection:
        """A connection to another broker; called by any thread. OSError, LoginError."""
        return self._replicas.connect(broker, timeout=TIMEOUT)

    def has_replica(self, at: TopicPartition) -> bool:
        """Whether the node has a replica of a partition."""
        return self._replicas.has(at)

    def forward(self, request: Struct, version: int, client_id: str, principal: str, host: str) -> Struct:
        """Sends a client's request to the controllers, in its name (KIP-590).

        Args:
            request, version, client_id: of the client.
            principal: the client's, as `User:NAME`.
            host: its address.

        Returns:
            The response.

        Raises:
            OSError, ClusterError: they do not answer, or refuse to take it from this node.
            MessageError: it is no response.
        """
        response = self.ask_controllers(envelope(request, version, client_id, principal, host))
        if response.error_code or response.response_data is None:
            raise ConnectionRefusedError(f"they answer {name_of(response.error_code)}")
        api_key = message_of(request).api_key
        assert api_key is not None
        return decode_response(api_key, version, response.response_data)[1]

    def ask_controllers(self, request: Struct) -> Any:  # noqa: ANN401  (the request's response)
        """The answer of the controllers to a request of this node's own. OSError, ClusterError: there is none."""
        leader = self._observer.leader
        if leader is None or self._stopping.is_set():
            raise ConnectionRefusedError("their leader is not known, or this node stops")
        with Connection(*leader, self._config.controller_client, timeout=TIMEOUT) as connection:
            return connection.ask(request)

    def _replica(self) -> Replica:
        # Leaders refuse an epoch that is not the newest one (KIP-903). They would not refuse that there is none.
        return Replica(self._node_id, self._registration.last_epoch)

    # ---- threads

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:  # noqa: BLE001  (it ends the server, with its reason)
            self._end(error)

    def _end(self, error: BaseException) -> None:
        """Has the controllers fence the node, and ends it with an error."""
        with self._changed:
            if not self._stopping.is_set():
                self._registration.give_up()
                self._changed.notify_all()
                if threading.current_thread() is not self._threads[1]:
                    self._changed.wait_for(lambda: self._registration.is_fenced, _GIVING_UP)
        self._replicas.stopping.set()
        self._stopping.set()
        self._failed(error)

    def _follow_metadata(self) -> None:
        """Follows the metadata until the node stops. NodeError, MessageError: it cannot any more."""
        observer, connections = self._observer, Connections(self._config.controller_client)
        try:
            while not self._stopping.is_set():
                send = observer.poll(_now_ms())
                if send is None:
                    self._stopping.wait(_pause(observer.next_deadline()))
                    continue
                response = connections.ask(send, send.to)
                if isinstance(response, str):
                    observer.failed(send.number, response, _now_ms())
                else:
                    self._take(observer.answered(send.number, response, _now_ms()))
        finally:
            connections.close()

    def _take(self, change: Change | None) -> None:
        image = self._observer.image
        with self._changed:
            self._registration.follow(image, self._observer.is_current)
            self._changed.notify_all()
        if self._is_first:
            # What was there in between is of the past, and means nothing for the store.
            if not self._observer.is_current or image.position.offset < 0:
                return
            self._is_first = False
            topics = {*self._replicas.known_ids(), *image.topics}
            self._follow(image, topics, list(image.configs))
        elif change is not None:
            self._follow(image, change.topics, differing(change.before.configs, image.configs))
            for topic_id in change.before.topics.keys() & set(change.topics) - image.topics.keys():
                # Also by a node that has no replica of it, but leads the partition of a group.
                self._later(partial(self._store.groups.log.forget_topic, change.before.topics[topic_id].name))
        elif undone := self._replicas.undone():
            self._follow(image, undone, ())

    def _follow(self, image: Image, topics: Any, configs: Any) -> None:  # noqa: ANN401  (as of NodeReplicas.follow)
        if image.brokers != self.image.brokers:
            self._note_brokers(image)
        self.image = image
        self._clients.follow(image)
        self._replicas.follow(image, topics, configs)
        with self._changed:
            self._registration.be_ready()
            self._changed.notify_all()
        if not self._is_joined and (self._config.stay_fenced or self.is_unfenced):
            self._is_joined = True
            self._joined()

    def _note_brokers(self, image: Image) -> None:
        """Notes where the cluster is, for programs that write to its topics with the files of this store."""
        brokers = [
            (endpoint.host, endpoint.port)
            for broker in image.brokers.values()
            for endpoint in broker.endpoints
            if endpoint.listener == self.listener
        ]
        try:
            note_cluster(self._store.path, OwnCluster(brokers, self._config.client_file))
        except OSError as error:
            log.warning("cannot note the addresses of the cluster: %s", error)

    def _propose(self) -> None:
        """Asks the controllers for changes of which replicas are in sync, until the node stops."""
        leaders, connections, assigned_at = self.leaders, Connections(self._config.controller_client), -inf
        try:
            while not self._stopping.is_set():
                leaders.due.wait(_NAP)
                leaders.due.clear()
                # It looks at each replica, and `due` may be set by each fetch.
                if time.monotonic() - assigned_at >= _NAP:
                    self._assign(connections)
                    assigned_at = time.monotonic()
                request = leaders.proposals(self._registration.epoch)
                if request is None:
                    continue
                response = connections.ask(Send(0, None, request, 0), self._observer.leader)
                if isinstance(response, AlterPartitionResponse):
                    leaders.answered(request, response)
                else:
                    log.info("the controllers do not change the ISR: %s", response)
                    leaders.failed(request)
                    self._stopping.wait(_AGAIN)
        finally:
            connections.close()

    def _assign(self, connections: Connections) -> None:
        """Reports to the controllers which log dirs the replicas are in, so that they know what a failed one takes."""
        try:
            misplaced = self._replicas.misplaced(self._directories)
        except (PylogError, OSError) as error:
            log.warning("cannot report the log dirs of replicas: %s", error)
            return
        if not misplaced or self._registration.epoch == NO_EPOCH:
            return
        of = AssignReplicasToDirsRequest
        directories = [
            of.DirectoryData(directory, [
                of.TopicData(topic_id, [of.PartitionData(number) for number in numbers])
                for topic_id, numbers in topics.items()
            ])
            for directory, topics in misplaced.items()
        ]  # fmt: skip
        request = of(self._node_id, self._registration.epoch, directories)
        response = connections.ask(Send(0, None, request, 0), self._observer.leader)
        if isinstance(response, str) or response.error_code:
            log.info("the controllers refuse the log dirs of replicas: %s", response)
            self._stopping.wait(_AGAIN)

    def _check_log_dirs(self) -> None:
        """Reports log dirs that have failed: the controllers move away what was led there. NodeError: all have."""
        for number, folder in self._store.logs.log_dirs.numbered():
            directory = self._directories.get(number)
            if directory is None or directory in self._lost or not (problem := folder.write_problem()):
                continue
            log.error("log dir %s has failed, and is offline until this node restarts: %s", folder.path, problem)
            self._lost.add(directory)
            self._replicas.lose_log_dir(number)
            with self._changed:
                self._registration.lose_log_dir(directory)
        if len(self._lost) == len(self._directories):
            raise NodeError("all log dirs have failed")

    def _beat(self) -> None:
        """Registers the node, and sends heartbeats until it stops. NodeError."""
        registration, connections = self._registration, Connections(self._config.controller_client)
        if not self._config.takes_new:
            registration.cordon(tuple(self._directories.values()))
        try:
            while not self._stopping.is_set():
                self._check_log_dirs()
                with self._changed:
                    send = registration.poll(_now_ms())
                    if send is None:
                        self._changed.wait(_pause(registration.next_deadline()))
                        continue
                response = connections.ask(send, self._observer.leader)
                with self._changed:
                    before = registration.epoch, registration.is_fenced
                    if isinstance(response, str):
                        registration.failed(send.number, response, _now_ms())
                    else:
                        registration.answered(send.number, response, _now_ms())
                    self._changed.notify_all()
                    self._report(*before)
        finally:
            connections.close()

    def _report(self, epoch: int, was_fenced: bool) -> None:
        registration = self._registration
        if registration.epoch != epoch:
            log.info("node %d: registered, broker epoch %d", self._node_id, registration.epoch)
        if registration.is_fenced != was_fenced:
            log.info("node %d: %s", self._node_id, "fenced" if registration.is_fenced else "unfenced")


def _pause(deadline: int | None) -> float:
    """How long a thread sleeps that has to act at a time (ms), in seconds; None: when something happens."""
    return _NAP if deadline is None else min(max(deadline - _now_ms(), 1) / 1000, _NAP)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _directory_id(path: str) -> bytes:
    """The id of a log dir. RegistrationError: it has none."""
    properties = read_meta_properties(f"{path}/{META_PROPERTIES}")
    if properties is None or properties.directory_id is None:
        raise RegistrationError(f"{path} has no directory.id in its {META_PROPERTIES}")
    return id_bytes(properties.directory_id)
