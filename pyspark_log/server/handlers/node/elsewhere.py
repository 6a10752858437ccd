"""What a node of a cluster answers to requests for coordinators and controllers, which are elsewhere.

Clients look for coordinators again after these errors. What is for the controllers is forwarded (KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.network import ClosedByServerError

if TYPE_CHECKING:
    from pyspark_log.server.node.view import NodeView

_COORDINATOR = ErrorCode.NOT_COORDINATOR

Answer = Callable[[Any], Struct]


def _committed(request: m.OffsetCommitRequest) -> Struct:
    response = m.OffsetCommitResponse
    return response(topics=[
        response.OffsetCommitResponseTopic(topic.name, topic.topic_id, [
            response.OffsetCommitResponsePartition(part.partition_index, _COORDINATOR) for part in topic.partitions
        ])
        for topic in request.topics
    ])  # fmt: skip


def _fetched(request: m.OffsetFetchRequest) -> Struct:
    row = m.OffsetFetchResponse.OffsetFetchResponseGroup
    if request.groups:
        return m.OffsetFetchResponse(groups=[row(group.group_id, (), _COORDINATOR) for group in request.groups])
    return m.OffsetFetchResponse(error_code=_COORDINATOR)


def _added(request: m.AddPartitionsToTxnRequest) -> Struct:
    response = m.AddPartitionsToTxnResponse
    row = response.AddPartitionsToTxnPartitionResult
    return response(results_by_topic_v3_and_below=[
        response.AddPartitionsToTxnTopicResult(topic.name, [row(number, _COORDINATOR) for number in topic.partitions])
        for topic in request.v3_and_below_topics
    ])  # fmt: skip


def _committed_in_transaction(request: m.TxnOffsetCommitRequest) -> Struct:
    response = m.TxnOffsetCommitResponse
    row = response.TxnOffsetCommitResponsePartition
    return response(topics=[
        response.TxnOffsetCommitResponseTopic(
            topic.name, [row(part.partition_index, _COORDINATOR) for part in topic.partitions]
        )
        for topic in request.topics
    ])  # fmt: skip


#: The answers to requests for what another server coordinates.
ANSWERS: Mapping[type[Struct], Answer] = {
    m.OffsetCommitRequest: _committed,
    m.OffsetFetchRequest: _fetched,
    m.JoinGroupRequest: lambda _: m.JoinGroupResponse(error_code=_COORDINATOR, generation_id=-1, protocol_name=""),
    m.HeartbeatRequest: lambda _: m.HeartbeatResponse(error_code=_COORDINATOR),
    m.LeaveGroupRequest: lambda _: m.LeaveGroupResponse(error_code=_COORDINATOR),
    m.SyncGroupRequest: lambda _: m.SyncGroupResponse(error_code=_COORDINATOR),
    m.DescribeGroupsRequest: lambda request: m.DescribeGroupsResponse(
        groups=[m.DescribeGroupsResponse.DescribedGroup(_COORDINATOR, None, name) for name in request.groups]
    ),
    m.AddPartitionsToTxnRequest: _added,
    m.InitProducerIdRequest: lambda _: m.InitProducerIdResponse(
        error_code=_COORDINATOR, producer_id=-1, producer_epoch=-1
    ),
    m.AddOffsetsToTxnRequest: lambda _: m.AddOffsetsToTxnResponse(error_code=_COORDINATOR),
    m.EndTxnRequest: lambda _: m.EndTxnResponse(error_code=_COORDINATOR),
    m.TxnOffsetCommitRequest: _committed_in_transaction,
    m.DeleteGroupsRequest: lambda request: m.DeleteGroupsResponse(
        results=[m.DeleteGroupsResponse.DeletableGroupResult(name, _COORDINATOR) for name in request.groups_names]
    ),
    m.OffsetDeleteRequest: lambda _: m.OffsetDeleteResponse(error_code=_COORDINATOR),
    m.DescribeTransactionsRequest: lambda request: m.DescribeTransactionsResponse(
        transaction_states=[
            m.DescribeTransactionsResponse.TransactionState(_COORDINATOR, name) for name in request.transactional_ids
        ]
    ),
    m.ConsumerGroupHeartbeatRequest: lambda _: m.ConsumerGroupHeartbeatResponse(error_code=_COORDINATOR),
    m.ConsumerGroupDescribeRequest: lambda request: m.ConsumerGroupDescribeResponse(
        groups=[m.ConsumerGroupDescribeResponse.DescribedGroup(_COORDINATOR, None, name) for name in request.group_ids]
    ),
}


async def forward(view: NodeView, call: Call, request: Struct) -> Struct:
    """The answer of the controllers, asked in the name of this client. ClosedByServerError: there is none."""
    node, principal, host = view.node, call.client.principal, call.client.host
    try:
        return await node.asking.run(node.forward, request, call.version, call.client_id or "", principal, host)
    except (OSError, ClusterError) as error:
        raise ClosedByServerError(f"the controllers do not answer: {error}") from None
