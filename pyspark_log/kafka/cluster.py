"""A Kafka cluster, as a client finds it: its brokers, its topics and their leaders, the configs of topics, groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

from pyspark_log.kafka import messages
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.error_codes import ErrorCode, name_of
from pyspark_log.kafka.errors import ClusterError, LoginError, MessageError
from pyspark_log.kafka.fetcher import offsets_in
from pyspark_log.kafka.schemas import Struct
from pyspark_log.types import LATEST, TopicPartition

log = logging.getLogger(__name__)

_TOPIC: Final = 2  # a kind of resource
_KAFKAS_DEFAULT: Final = 5  # a source of a config
_NO_ID: Final = bytes(16)
#: What is coordinated.
GROUP, TRANSACTION = 0, 1


class Leader(NamedTuple):
    """Which broker leads a partition: its id (-1: none does), and since which leader epoch (-1: not known)."""

    node: int
    epoch: int


class ClusterTopic(NamedTuple):
    """A topic: its id, of zeros where the cluster is older than ids; the leaders of its partitions, in order."""

    name: str
    topic_id: bytes
    leaders: Sequence[Leader]


class Cluster:
    """A cluster. Not thread-safe, but for `connect`.

    Each method raises OSError if no broker answers, ClusterError if one refuses, and LoginError.

    Attributes:
        cluster_id: its id; None: it is older than ids, or was not asked yet.
    """

    def __init__(self, bootstrap: Sequence[tuple[str, int]], config: ClientConfig) -> None:
        """Connects to nothing yet. `bootstrap`: hosts and ports, of which one has to answer."""
        self._bootstrap, self._config = bootstrap, config
        self.cluster_id: str | None = None
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], Connection] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connect(self, node: int) -> Connection:
        """A connection of its own to a broker. OSError, LoginError."""
        try:
            host, port = self._brokers[node]
        except KeyError:
            raise ConnectionRefusedError(f"broker {node} is not known") from None
        return Connection(host, port, self._config)

    # ---- topics

    def topics(self, names: Sequence[str] | None = None) -> list[ClusterTopic]:
        """The topics, but for Kafka's own; of `names`, those that exist and that may be seen."""
        asked = None if names is None else [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        response = self._ask_any(messages.MetadataRequest(asked, allow_auto_topic_creation=False))
        self._brokers = {one.node_id: (one.host, one.port) for one in response.brokers}
        self.cluster_id = response.cluster_id
        return [
            ClusterTopic(topic.name, bytes(topic.topic_id), [
                Leader(one.leader_id, one.leader_epoch)
                for one in sorted(topic.partitions, key=lambda one: int(one.partition_index))
            ])
            for topic in response.topics
            if not topic.error_code and not topic.is_internal
        ]  # fmt: skip

    def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The configs of each topic that differ from Kafka's defaults.

        Topics are missing whose configs this user may not read, and deleted ones.
        """
        resource = messages.DescribeConfigsRequest.DescribeConfigsResource
        response = self._ask_any(messages.DescribeConfigsRequest([resource(_TOPIC, name, None) for name in topics]))
        for one in response.results:
            if one.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                log.warning("the configs of topic %s cannot be read: %s", one.resource_name, _described(one))
        return {
            one.resource_name: {
                config.name: config.value
                for config in one.configs
                if config.config_source != _KAFKAS_DEFAULT and config.value is not None
            }
            for one in response.results
            if not one.error_code
        }

    def ends(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of partitions, as their leaders say, which are given by id; those that have moved are missing."""
        by_node = dict[int, list[TopicPartition]]()
        for at, leader in leaders.items():
            if leader >= 0:
                by_node.setdefault(leader, []).append(at)
        found = dict[TopicPartition, int]()
        for node, places in by_node.items():
            request = messages.ListOffsetsRequest
            topics = [
                request.ListOffsetsTopic(name, [
                    request.ListOffsetsPartition(at.partition, -1, LATEST) for at in places if at.topic == name
                ])
                for name in sorted({at.topic for at in places})
            ]  # fmt: skip
            try:
                response = self._ask(node, request(-1, 0, topics))
            except OSError as error:
                log.warning("broker %d does not answer: %s", node, error)
                continue
            found |= offsets_in(response)
        return found

    # ---- groups

    def groups(self) -> list[str]:
        """The names of the groups of consumers, sorted."""
        found = set[str]()
        for node in sorted(self._brokers):
            response = self._ask(node, messages.ListGroupsRequest())
            _check(response, f"the groups of broker {node}")
            found.update(one.group_id for one in response.groups)
        return sorted(found)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """A group's committed offsets. ClusterError: its coordinator is not there, or not yet."""
        connection = self.connection(self.coordinator(group, GROUP))
        if connection.version(messages.OffsetFetchRequest) < 8:
            response = connection.ask(messages.OffsetFetchRequest(group, None))
        else:
            # Of version 9: later ones have the ids of topics instead of their names.
            version = min(connection.version(messages.OffsetFetchRequest), 9)
            asked = messages.OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=None)
            [response] = connection.ask(messages.OffsetFetchRequest(groups=[asked]), version).groups
        _check(response, f"the offsets of group {group!r}")
        return {
            TopicPartition(topic.name, one.partition_index): one.committed_offset
            for topic in response.topics
            for one in topic.partitions
            if not one.error_code and one.committed_offset >= 0
        }

    def coordinator(self, key: str, kind: int) -> int:
        """The broker that coordinates a group (GROUP) or a transactional id (TRANSACTION)."""
        request = messages.FindCoordinatorRequest
        connection = self._any()
        if connection.version(request) < 4:
            found = connection.ask(request(key, kind))
        else:
            [found] = connection.ask(request("", kind, [key])).coordinators
        _check(found, f"the coordinator of {key!r}")
        self._brokers[found.node_id] = (found.host, found.port)
        return int(found.node_id)

    # ---- connections

    def connection(self, node: int) -> Connection:
        """The connection to a broker. OSError, LoginError."""
        return self._connection(self._brokers[node])

    def forget(self, connection: Connection) -> None:
        """Closes a connection that was lost; the next one is a new one."""
        connection.close()
        self._connections.pop((connection.host, connection.port), None)

    def _ask_any(self, request: Struct) -> Any:  # noqa: ANN401  (the request's response)
        return self._asked(self._any, request)

    def _ask(self, node: int, request: Struct) -> Any:  # noqa: ANN401  (the request's response)
        return self._asked(lambda: self._connection(self._brokers[node]), request)

    def _asked(self, connection: Callable[[], Connection], request: Struct) -> Any:  # noqa: ANN401
        """Asks, and once more if the connection has been lost since it was used last."""
        for _ in range(2):
            used = connection()
            try:
                return used.ask(request)
            except (OSError, MessageError) as error:
                used.close()
                self._connections.pop((used.host, used.port), None)
                failure = error
        raise failure

    def _connection(self, address: tuple[str, int]) -> Connection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = Connection(*address, self._config)
        return found

    def _any(self) -> Connection:
        """A connection to any broker. OSError: that of the last one, if none answers."""
        failure: OSError | None = None
        for address in self._known():
            try:
                return self._connection(address)
            except LoginError:
                raise
            except OSError as error:
                failure = failure or OSError(f"{address[0]}:{address[1]} does not answer: {error}")
        raise failure or OSError("no broker is known")

    def _known(self) -> Iterable[tuple[str, int]]:
        return dict.fromkeys([*self._connections, *self._brokers.values(), *self._bootstrap])


def _check(response: Struct, what: str) -> None:
    if response.error_code:
        raise ClusterError(f"{what}: {_described(response)}")


def _described(response: Struct) -> str:
    message = getattr(response, "error_message", None)
    return f"{name_of(response.error_code)}{f' ({message})' if message else ''}"
