"""What a node of a cluster answers to requests for the leaders, coordinators and controllers, which are elsewhere.

Clients look for leaders and coordinators again after these errors. What is for the controllers is forwarded (KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.network import ClosedByServerError

_COORDINATOR = ErrorCode.NOT_COORDINATOR

Answer = Callable[[Any], Struct]


def _refused(answer: Answer) -> Callable[[Call, Any], Coroutine[Any, Any, Struct]]:
    async def handler(_call: Call, request: Any) -> Struct:  # noqa: ANN401  (any request)
        return answer(request)

    return handler


def _parts(row: Callable[..., Any], part: Callable[[Any], Any]) -> Callable[[Iterable[Any]], list[Any]]:
    """Rows of topics, by their names, with a row for each of their partitions."""
    return lambda topics: [row(topic.name, [part(one) for one in topic.partitions]) for topic in topics]


def _committed(request: m.OffsetCommitRequest) -> Struct:
    response = m.OffsetCommitResponse
    return response(topics=[
        response.OffsetCommitResponseTopic(topic.name, topic.topic_id, [
            response.OffsetCommitResponsePartition(one.partition_index, _COORDINATOR) for one in topic.partitions
        ])
        for topic in request.topics
    ])  # fmt: skip


def _fetched(request: m.OffsetFetchRequest) -> Struct:
    group = m.OffsetFetchResponse.OffsetFetchResponseGroup
    if request.groups:
        return m.OffsetFetchResponse(groups=[group(one.group_id, (), _COORDINATOR) for one in request.groups])
    return m.OffsetFetchResponse(error_code=_COORDINATOR)


def _added(request: m.AddPartitionsToTxnRequest) -> Struct:
    response = m.AddPartitionsToTxnResponse
    part = response.AddPartitionsToTxnPartitionResult
    return response(results_by_topic_v3_and_below=[
        response.AddPartitionsToTxnTopicResult(topic.name, [part(one, _COORDINATOR) for one in topic.partitions])
        for topic in request.v3_and_below_topics
    ])  # fmt: skip


_sent = _parts(
    m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
    lambda one: m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(one.partition_index, _COORDINATOR),
)

#: Handlers by keys.
HANDLERS = {
    key: _refused(cast("Answer", answer))
    for key, answer in {
        8: _committed,
        9: _fetched,
        11: lambda _: m.JoinGroupResponse(error_code=_COORDINATOR, generation_id=-1, protocol_name=""),
        12: lambda _: m.HeartbeatResponse(error_code=_COORDINATOR),
        13: lambda _: m.LeaveGroupResponse(error_code=_COORDINATOR),
        14: lambda _: m.SyncGroupResponse(error_code=_COORDINATOR),
        15: lambda request: m.DescribeGroupsResponse(
            groups=[m.DescribeGroupsResponse.DescribedGroup(_COORDINATOR, None, name) for name in request.groups]
        ),
        24: _added,
        25: lambda _: m.AddOffsetsToTxnResponse(error_code=_COORDINATOR),
        26: lambda _: m.EndTxnResponse(error_code=_COORDINATOR),
        28: lambda request: m.TxnOffsetCommitResponse(topics=_sent(request.topics)),
        42: lambda request: m.DeleteGroupsResponse(
            results=[m.DeleteGroupsResponse.DeletableGroupResult(name, _COORDINATOR) for name in request.groups_names]
        ),
        47: lambda _: m.OffsetDeleteResponse(error_code=_COORDINATOR),
        65: lambda request: m.DescribeTransactionsResponse(
            transaction_states=[
                m.DescribeTransactionsResponse.TransactionState(_COORDINATOR, name)
                for name in request.transactional_ids
            ]
        ),
        68: lambda _: m.ConsumerGroupHeartbeatResponse(error_code=_COORDINATOR),
        69: lambda request: m.ConsumerGroupDescribeResponse(
            groups=[
                m.ConsumerGroupDescribeResponse.DescribedGroup(_COORDINATOR, None, name) for name in request.group_ids
            ]
        ),
    }.items()
}
#: The keys of what is forwarded to the controllers, as they take it.
FORWARDED = (19, 20, 30, 31, 33, 37, 44, 45, 46, 49, 51)


async def forward(call: Call, request: Struct) -> Struct:
    """The answer of the controllers, asked in the name of this client. ClosedByServerError: there is none."""
    node = call.broker.node
    assert node is not None
    principal, host = call.client.principal, call.client.host
    try:
        return await node.asking.run(node.forward, request, call.version, call.client_id or "", principal, host)
    except (OSError, ClusterError) as error:
        raise ClosedByServerError(f"the controllers do not answer: {error}") from None
