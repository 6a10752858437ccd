"""The table of the APIs that are served, by a server that is alone and by a node of a cluster.

Lowest versions are those of Kafka 4.3, to the letter, and no version is left out in between: librdkafka up to 2.11.0
turns features off by versions that it misses. Highest ones are those of Kafka 4.3 that are complete there: not
FindCoordinator 6 (share groups, KIP-932) and InitProducerId 6 (two-phase commit, KIP-939), which the schemas have.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.handlers import api_versions
from pyspark_log.server.handlers.access import acls, quotas, sasl, users
from pyspark_log.server.handlers.call import Call, key_of
from pyspark_log.server.handlers.coordinators import (
    group_admin,
    group_offsets,
    membership,
    transaction_admin,
    transactions,
)
from pyspark_log.server.handlers.node import cluster as node_cluster
from pyspark_log.server.handlers.node import configs as node_configs
from pyspark_log.server.handlers.node import fetch as node_fetch
from pyspark_log.server.handlers.node import transactions as node_transactions
from pyspark_log.server.handlers.node.elsewhere import Coordinating, NodeHandler, coordinated, elsewhere, forward
from pyspark_log.server.handlers.records import fetch, leader_epochs, list_offsets, log_dirs, produce
from pyspark_log.server.handlers.topics import admin, cluster, configs, metadata

if TYPE_CHECKING:
    from pyspark_log.server.node.view import NodeView

#: A handler. It awaits only `Wait`s; returns the response, None if the client expects none.
Handler = Callable[[Call, Any], Coroutine[Any, Any, Any]]


class Api(NamedTuple):
    """An API that a server serves.

    Attributes:
        versions: of requests and responses.
        handler: answers them.
        counts_errors: whether the handler counts errors, as it sees each partition anyway; else its caller does.
    """

    versions: range
    handler: Handler
    counts_errors: bool = False


class _Node(Enum):
    """How a node answers that has no handler of its own."""

    SAME = auto()  # as a server that is alone
    COORDINATED = auto()  # likewise, if it coordinates what the request names; else it says that others do


_SAME, _COORDINATED = _Node.SAME, _Node.COORDINATED


class _Row(NamedTuple):
    """An API, by the name of its request.

    Attributes:
        request: the request.
        versions: the lowest and the highest.
        handler: of a server that is alone; None: it does not have the API.
        at_node: how a node answers; None: it does not have the API.
        node_versions: those of a node; None: the same.
        counts_errors: as of Api.
    """

    request: type[Struct]
    versions: tuple[int, int]
    handler: Handler | None
    at_node: NodeHandler | _Node | None
    node_versions: tuple[int, int] | None = None
    counts_errors: bool = False


# The numbers before words are versions, and what they add that matters here.
_TABLE = (
    # 7: zstd. 11: an error can ask to abort. 12: a batch adds its partition to the transaction. 13: topics by id.
    # Kafka has removed versions 0 to 2, so the schema lacks them. But Kafka lists them, since librdkafka compresses
    # nothing for a server that does not (KAFKA-18659). A client that sends one is disconnected.
    _Row(m.ProduceRequest, (0, 13), produce.produce, _SAME, counts_errors=True),
    # 9: leader epochs. 11: racks. 12: a copy that has diverged. 13: topics by id. 15: the epochs of followers.
    # 16: where the leader is (KIP-951), for which clients still ask Metadata. 17, 18: for controllers and followers.
    _Row(m.FetchRequest, (4, 18), fetch.fetch, node_fetch.fetch, counts_errors=True),
    # 4: leader epochs. 5: OFFSET_NOT_AVAILABLE. 7, 8, 9, 11: more that a negative time can ask for.
    _Row(m.ListOffsetsRequest, (1, 11), list_offsets.list_offsets, _SAME),
    # 4: says whether topics are to be created. 8: operations that are allowed. 12: topics by name or id.
    _Row(m.MetadataRequest, (0, 13), metadata.metadata, node_cluster.metadata),
    # Version 0, whose messages follow without headers, is refused: but librdkafka looks whether it is listed.
    _Row(m.SaslHandshakeRequest, (0, 1), sasl.sasl_handshake, _SAME),
    # 3: the client's software. 4: features whose lowest level is 0.
    _Row(m.ApiVersionsRequest, (0, 4), api_versions.api_versions, _SAME),
    # 6: leader epochs. 9: members of the new protocol. 10: topics by id.
    _Row(m.OffsetCommitRequest, (2, 10), group_offsets.offset_commit, _COORDINATED),
    # 2: all of a group, and an error of its own. 7: stable offsets. 8: many groups. 9: members. 10: topics by id.
    _Row(m.OffsetFetchRequest, (1, 10), group_offsets.offset_fetch, _COORDINATED),
    # 1: transactions. 4: many keys.
    _Row(m.FindCoordinatorRequest, (0, 5), membership.find_coordinator, node_cluster.find_coordinator),
    # 4: members get their ids first. 5: static members. 7: an answer with no protocol.
    _Row(m.JoinGroupRequest, (0, 9), membership.join_group, _COORDINATED),
    _Row(m.HeartbeatRequest, (0, 4), membership.heartbeat, _COORDINATED),
    # 3: many members.
    _Row(m.LeaveGroupRequest, (0, 5), membership.leave_group, _COORDINATED),
    _Row(m.SyncGroupRequest, (0, 5), membership.sync_group, _COORDINATED),
    # 3: operations that are allowed. 6: a group that is not there is an error.
    _Row(m.DescribeGroupsRequest, (0, 6), group_admin.describe_groups, _COORDINATED),
    # 4: by state. 5: by type.
    _Row(m.ListGroupsRequest, (0, 5), group_admin.list_groups, _SAME),
    # 5: configs in the answer. 6: refused when a quota is used up. 7: ids in the answer.
    _Row(m.CreateTopicsRequest, (2, 7), admin.create_topics, forward),
    # 5: refused when a quota is used up. 6: by name or id.
    _Row(m.DeleteTopicsRequest, (1, 6), admin.delete_topics, forward),
    _Row(m.DeleteRecordsRequest, (0, 2), cluster.delete_records, _SAME),
    # 3: a producer that has an id. 4: PRODUCER_FENCED.
    _Row(m.InitProducerIdRequest, (0, 5), transactions.init_producer_id, _COORDINATED),
    _Row(m.OffsetForLeaderEpochRequest, (2, 4), leader_epochs.offset_for_leader_epoch, _SAME),
    # 2: PRODUCER_FENCED. 4, 5: for brokers, many transactions at once.
    _Row(m.AddPartitionsToTxnRequest, (0, 3), transactions.add_partitions_to_txn,
         coordinated(m.AddPartitionsToTxnRequest, node_transactions.add_partitions_to_txn), (0, 5)),
    # 2: PRODUCER_FENCED.
    _Row(m.AddOffsetsToTxnRequest, (0, 4), transactions.add_offsets_to_txn, _COORDINATED),
    # 2: PRODUCER_FENCED. 5: an epoch for each transaction.
    _Row(m.EndTxnRequest, (0, 5), transactions.end_txn, _COORDINATED),
    _Row(m.WriteTxnMarkersRequest, (1, 2), transaction_admin.write_txn_markers, node_transactions.write_txn_markers),
    # 3: members. 5: a commit adds the group's partition to the transaction.
    _Row(m.TxnOffsetCommitRequest, (0, 5), transactions.txn_offset_commit, _COORDINATED),
    _Row(m.DescribeAclsRequest, (1, 3), acls.describe_acls, _SAME),
    _Row(m.CreateAclsRequest, (1, 3), acls.create_acls, forward),
    _Row(m.DeleteAclsRequest, (1, 3), acls.delete_acls, forward),
    # 3: documentation.
    _Row(m.DescribeConfigsRequest, (1, 4), configs.describe_configs, node_configs.describe_configs),
    _Row(m.AlterConfigsRequest, (0, 2), configs.alter_configs, forward),
    _Row(m.AlterReplicaLogDirsRequest, (1, 2), log_dirs.alter_replica_log_dirs, None),
    # 4: sizes of the disks. 5: whether a folder takes no new partitions, as none does here.
    _Row(m.DescribeLogDirsRequest, (1, 5), log_dirs.describe_log_dirs, _SAME),
    _Row(m.SaslAuthenticateRequest, (0, 2), sasl.sasl_authenticate, _SAME),
    # 3: refused when a quota is used up.
    _Row(m.CreatePartitionsRequest, (0, 3), admin.create_partitions, forward),
    _Row(m.DeleteGroupsRequest, (0, 2), group_admin.delete_groups, _COORDINATED),
    _Row(m.ElectLeadersRequest, (0, 2), cluster.elect_leaders, forward),
    _Row(m.IncrementalAlterConfigsRequest, (0, 1), configs.incremental_alter_configs, forward),
    _Row(m.AlterPartitionReassignmentsRequest, (0, 1), cluster.alter_partition_reassignments, forward),
    _Row(m.ListPartitionReassignmentsRequest, (0, 0), cluster.list_partition_reassignments, forward),
    _Row(m.OffsetDeleteRequest, (0, 0), group_offsets.offset_delete, _COORDINATED),
    _Row(m.DescribeClientQuotasRequest, (0, 1), quotas.describe_client_quotas, _SAME),
    _Row(m.AlterClientQuotasRequest, (0, 1), quotas.alter_client_quotas, forward),
    _Row(m.DescribeUserScramCredentialsRequest, (0, 0), users.describe_user_scram_credentials, _SAME),
    _Row(m.AlterUserScramCredentialsRequest, (0, 0), users.alter_user_scram_credentials, forward),
    _Row(m.DescribeQuorumRequest, (0, 2), None, forward),
    _Row(m.UpdateFeaturesRequest, (0, 2), None, forward),
    # 1: a type of endpoint.
    _Row(m.DescribeClusterRequest, (0, 2), cluster.describe_cluster, node_cluster.describe_cluster),
    _Row(m.DescribeProducersRequest, (0, 0), transaction_admin.describe_producers, _SAME),
    _Row(m.UnregisterBrokerRequest, (0, 0), None, forward),
    _Row(m.DescribeTransactionsRequest, (0, 0), transaction_admin.describe_transactions, _COORDINATED),
    # 1: by age. 2: by a pattern.
    _Row(m.ListTransactionsRequest, (0, 2), transaction_admin.list_transactions, _SAME),
    # 1: regular expressions.
    _Row(m.ConsumerGroupHeartbeatRequest, (0, 1), membership.consumer_group_heartbeat, _COORDINATED),
    _Row(m.ConsumerGroupDescribeRequest, (0, 1), group_admin.consumer_group_describe, _COORDINATED),
    # 0: metrics of clients alone. 1: all kinds (KIP-1142).
    _Row(m.ListConfigResourcesRequest, (0, 1), configs.list_config_resources, node_configs.list_config_resources),
)  # fmt: skip

#: The keys of all APIs that a server of any kind has.
KEYS = [key_of(row.request) for row in _TABLE]


def _versions(bounds: tuple[int, int]) -> range:
    lowest, highest = bounds
    return range(lowest, highest + 1)


#: The APIs of a server that is alone, by key.
APIS: Mapping[int, Api] = {
    key: Api(_versions(row.versions), row.handler, row.counts_errors)
    for key, row in zip(KEYS, _TABLE, strict=True)
    if row.handler is not None
}


# The topics of requests that have some by their names. Not of Produce, as requests that overlap keep their order.
_TOPICS: Mapping[type[Struct], Callable[[Any], Iterable[str | None]]] = {
    m.MetadataRequest: lambda request: [topic.name for topic in request.topics or ()],
    m.FetchRequest: lambda request: [topic.topic for topic in request.topics],
    m.ListOffsetsRequest: lambda request: [topic.name for topic in request.topics],
    m.OffsetForLeaderEpochRequest: lambda request: [topic.topic for topic in request.topics],
    m.OffsetCommitRequest: lambda request: [topic.name for topic in request.topics],
    m.TxnOffsetCommitRequest: lambda request: [topic.name for topic in request.topics],
    m.AddPartitionsToTxnRequest: lambda request: [topic.name for topic in request.v3_and_below_topics],
    m.ElectLeadersRequest: lambda request: [topic.topic for topic in request.topic_partitions or ()],
    m.AlterPartitionReassignmentsRequest: lambda request: [topic.name for topic in request.topics],
}


def apis_beside_others(coordinators: Coordinating) -> Mapping[int, Api]:
    """The APIs of one of several servers of a store, by key."""

    def beside_others(request: type[Struct], handler: Handler) -> Handler:
        names = _TOPICS.get(request)

        async def answer(call: Call, asked: Any) -> Any:  # noqa: ANN401  (any request)
            refusal = elsewhere(request, coordinators, asked)
            if refusal is not None:
                return refusal
            if names is not None and call.broker.logs.may_lack(name for name in names(asked) if name):
                # Clients may know of it from a server that has just created it, and some give up on an unknown one.
                await call.broker.workers.run(call.broker.logs.catch_up)
            return await handler(call, asked)

        return answer

    requests = {key: row.request for key, row in zip(KEYS, _TABLE, strict=True)}
    return {key: api._replace(handler=beside_others(requests[key], api.handler)) for key, api in APIS.items()}


def node_apis(view: NodeView) -> Mapping[int, Api]:
    """The APIs of a node of a cluster, by key: all that other brokers serve.

    Some clients ask one broker for what all of them know.
    """
    handlers = {key: (row, _node_handler(row, view)) for key, row in zip(KEYS, _TABLE, strict=True)}
    return {
        key: Api(_versions(row.node_versions or row.versions), handler, row.counts_errors)
        for key, (row, handler) in handlers.items()
        if handler is not None
    }


def _node_handler(row: _Row, view: NodeView) -> Handler | None:
    """How a node answers; None: it does not have the API."""
    alone = row.handler
    if not isinstance(row.at_node, _Node):
        return None if row.at_node is None else partial(row.at_node, view)
    if alone is None or row.at_node is _SAME:
        return alone
    return partial(coordinated(row.request, lambda _, *call: alone(*call)), view)
