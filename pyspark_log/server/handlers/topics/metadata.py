"""Metadata: the topics, their partitions, and which server to ask for them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.config import int_config
from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import MetadataRequest, MetadataResponse
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.network import ClosedByServerError
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.server.served import Server
from pyspark_log.server.state.topic_ids import NO_ID
from pyspark_log.storage.catalog import INTERNAL_TOPICS, PUBLISH_TOPIC, check_name
from pyspark_log.storage.catalog.topics import id_bytes

_Broker = MetadataResponse.MetadataResponseBroker
_Topic = MetadataResponse.MetadataResponseTopic
_Partition = MetadataResponse.MetadataResponsePartition

_DESCRIBE = Operation.DESCRIBE, Resource.TOPIC
# A part of a client.id, which has a comma between its parts.
_RACK = "rack="
# Topics are asked for by name or id from this version on.
_FIRST_BY_ID = 12
#: What is in place of the operations that a client may do if it has not asked for them.
NOT_ASKED = -(1 << 31)


def cluster_operations(call: Call, *, asked: bool) -> int:
    """The operations that the client may do with the cluster."""
    if not asked:
        return NOT_ASKED
    cluster = Resource.CLUSTER, CLUSTER_NAME
    return call.operations(*cluster) if call.allows(Operation.DESCRIBE, *cluster) else 0


def require_create(call: Call, topic: str) -> None:
    """Refuses a client that may create neither each topic nor this one. RefusedError."""
    if not call.allows(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
        call.require(Operation.CREATE, Resource.TOPIC, topic)


def advertised(call: Call) -> tuple[str, int]:
    """Host and port at which this client finds the server."""
    return call.broker.advertised or call.client.reached_at


def address_of(call: Call, server: Server) -> tuple[str, int]:
    """Host and port at which this client finds a server of the store."""
    return (server.host, server.port) if server.host else advertised(call)


def rack_of(call: Call) -> str:
    """The rack of a client, for which Metadata has no field: NAME of `rack=NAME` in its client.id; "": it has none."""
    parts = (call.client_id or "").split(",")
    return next((part[len(_RACK) :] for part in parts if part.startswith(_RACK)), "")


def check_replicas(call: Call, nodes: Sequence[int]) -> None:
    """RefusedError: replicas are not on servers of the store, each once. It has the records of a partition for all."""
    servers = {server.node_id for server in call.broker.logs.servers.alive()}
    if not nodes or len({*nodes}) < len(nodes) or not servers.issuperset(nodes):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas on {list(nodes)}: expected servers of the store, each once; here are {sorted(servers)}",
        )


async def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describes the topics that are asked for, and creates those that are missing if it may."""
    topics = await call.broker.workers.run(_topics, call, request)
    broker = call.broker
    return MetadataResponse(
        brokers=[
            _Broker(server.node_id, *address_of(call, server), server.rack or None)
            for server in broker.logs.servers.alive()
        ],
        cluster_id=broker.store.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )


def _topics(call: Call, request: MetadataRequest) -> list[MetadataResponse.MetadataResponseTopic]:
    asked = request.include_topic_authorized_operations
    if request.topics is None or (call.version == 0 and not request.topics):
        names = [
            name
            for name in call.broker.store.topics(internal=True)
            if name != PUBLISH_TOPIC and call.allows(*_DESCRIBE, name)
        ]
        rows = [_describe_topic(call, name, asked=asked) for name in names]
        # One that was deleted meanwhile is none of all topics.
        return [topic for topic in rows if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if call.version < _FIRST_BY_ID and any(topic.name is None for topic in request.topics):
        raise ClosedByServerError(f"version {call.version} of Metadata has names of topics, not ids")
    # Versions without the field create what is missing.
    may_create = call.version < 4 or request.allow_auto_topic_creation
    topics = []
    for topic in request.topics:
        if topic.name is not None:
            topics.append(_describe_topic(call, topic.name, asked=asked, may_create=may_create))
            continue
        name = call.broker.topics.name(topic.topic_id)
        if name is not None and call.allows(*_DESCRIBE, name):
            topics.append(_describe_topic(call, name, asked=asked))
        else:
            error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topics.append(_Topic(error, None, topic.topic_id))
    return topics


def _describe_topic(
    call: Call, name: str, *, asked: bool, may_create: bool = False
) -> MetadataResponse.MetadataResponseTopic:
    broker = call.broker
    try:
        call.require(*_DESCRIBE, name)
        check_name(name)
        may_create = may_create and name not in INTERNAL_TOPICS and broker.logs.writable
        if may_create and not broker.logs.has_topic(name):
            require_create(call, name)
            if not call.may_mutate(int_config(broker.logs.configs, "num.partitions"), strict=True):
                # As Kafka: the client asks again.
                raise UnknownTopicError(f"topic {name!r} cannot be created now")
            broker.store.ensure_topic(name)
        topic = broker.logs.topic(name)
        servers, rack = broker.logs.servers, rack_of(call)
        leaders = [servers.leader(topic.topic_id, number, rack).node_id for number in range(topic.partitions)]
        partitions = [
            _Partition(ErrorCode.NONE, number, leader, topic.leader_epoch(number), [leader], [leader])
            for number, leader in enumerate(leaders)
        ]
    except RefusedError as error:
        return _Topic(error.code, name, NO_ID, False, (), NOT_ASKED)
    except (PylogError, OSError) as error:
        operations = call.operations(Resource.TOPIC, name) if asked else NOT_ASKED
        return _Topic(code_of(error), name, NO_ID, name in INTERNAL_TOPICS, (), operations)
    operations = call.operations(Resource.TOPIC, name) if asked else NOT_ASKED
    broker.topics.note(name)
    topic_id = id_bytes(topic.topic_id)
    return _Topic(ErrorCode.NONE, name, topic_id, name in INTERNAL_TOPICS, partitions, operations)
