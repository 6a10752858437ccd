"""Requests to a node for coordinators and controllers, which may be elsewhere.

Clients look for coordinators again after its errors. What is for the controllers is forwarded (KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.coordinators.transactions import added, offsets_committed
from pyspark_log.server.network import ClosedByServerError

if TYPE_CHECKING:
    from pyspark_log.server.node.view import NodeView

_COORDINATOR = ErrorCode.NOT_COORDINATOR

#: The handler of a node. It awaits only `Wait`s; returns the response, None if the client expects none.
NodeHandler = Callable[["NodeView", Call, Any], Coroutine[Any, Any, Any]]
_Answer = Callable[[Any], Struct]
_Names = Callable[[Any], Collection[str]]
_Errors = Callable[["Coordinating", Any], Iterable[ErrorCode]]


class Coordinating(Protocol):
    """What a server coordinates."""

    def of_group(self, group: str) -> ErrorCode:
        """Whether a group is coordinated here; else what its clients are answered."""

    def of_transaction(self, transactional_id: str) -> ErrorCode:
        """The same for a transactional id."""


def _of_groups(names: _Names) -> _Errors:
    return lambda coordinators, request: [coordinators.of_group(name) for name in names(request)]


def _of_ids(names: _Names) -> _Errors:
    return lambda coordinators, request: [coordinators.of_transaction(name) for name in names(request)]


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
    rows = added(request.v3_and_below_topics, lambda _: _COORDINATOR)
    return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


def _described_groups(request: m.DescribeGroupsRequest) -> Struct:
    row = m.DescribeGroupsResponse.DescribedGroup
    return m.DescribeGroupsResponse(groups=[row(_COORDINATOR, None, name) for name in request.groups])


def _described_modern_groups(request: m.ConsumerGroupDescribeRequest) -> Struct:
    row = m.ConsumerGroupDescribeResponse.DescribedGroup
    return m.ConsumerGroupDescribeResponse(groups=[row(_COORDINATOR, None, name) for name in request.group_ids])


def _deleted_groups(request: m.DeleteGroupsRequest) -> Struct:
    row = m.DeleteGroupsResponse.DeletableGroupResult
    return m.DeleteGroupsResponse(results=[row(name, _COORDINATOR) for name in request.groups_names])


def _described_transactions(request: m.DescribeTransactionsRequest) -> Struct:
    row = m.DescribeTransactionsResponse.TransactionState
    names = request.transactional_ids
    return m.DescribeTransactionsResponse(transaction_states=[row(_COORDINATOR, name) for name in names])


def _no_group(response: Callable[..., Struct], **fields: object) -> tuple[_Errors, _Answer]:
    return _GROUP, lambda _: response(error_code=_COORDINATOR, **fields)


def _no_id(response: Callable[..., Struct], **fields: object) -> tuple[_Errors, _Answer]:
    return _ID, lambda _: response(error_code=_COORDINATOR, **fields)


_GROUP = _of_groups(lambda request: [request.group_id])
_GROUPS_OF_FETCH = _of_groups(
    lambda request: [group.group_id for group in request.groups] if request.groups else [request.group_id]
)
_ID = _of_ids(lambda request: [] if request.transactional_id is None else [request.transactional_id])
# Brokers ask for several, and get an answer for each.
_ID_OF_CLIENT = _of_ids(lambda request: [] if request.transactions else [request.v3_and_below_transactional_id])
# Requests for coordinators: why the node does not coordinate what one names, and the answer if it does not.
_COORDINATED: Mapping[type[Struct], tuple[_Errors, _Answer]] = {
    m.OffsetCommitRequest: (_GROUP, _committed),
    m.OffsetFetchRequest: (_GROUPS_OF_FETCH, _fetched),
    m.JoinGroupRequest: _no_group(m.JoinGroupResponse, generation_id=-1, protocol_name=""),
    m.HeartbeatRequest: _no_group(m.HeartbeatResponse),
    m.LeaveGroupRequest: _no_group(m.LeaveGroupResponse),
    m.SyncGroupRequest: _no_group(m.SyncGroupResponse),
    m.DescribeGroupsRequest: (_of_groups(lambda request: request.groups), _described_groups),
    m.InitProducerIdRequest: _no_id(m.InitProducerIdResponse, producer_id=-1, producer_epoch=-1),
    m.AddPartitionsToTxnRequest: (_ID_OF_CLIENT, _added),
    m.AddOffsetsToTxnRequest: _no_id(m.AddOffsetsToTxnResponse),
    m.EndTxnRequest: _no_id(m.EndTxnResponse),
    m.TxnOffsetCommitRequest: (_GROUP, lambda request: offsets_committed(request, lambda _: _COORDINATOR)),
    m.DeleteGroupsRequest: (_of_groups(lambda request: request.groups_names), _deleted_groups),
    m.OffsetDeleteRequest: _no_group(m.OffsetDeleteResponse),
    m.DescribeTransactionsRequest: (_of_ids(lambda request: request.transactional_ids), _described_transactions),
    m.ConsumerGroupHeartbeatRequest: _no_group(m.ConsumerGroupHeartbeatResponse),
    m.ConsumerGroupDescribeRequest: (_of_groups(lambda request: request.group_ids), _described_modern_groups),
}


async def forward(view: NodeView, call: Call, request: Struct) -> Struct:
    """The answer of the controllers, asked in the name of this client. ClosedByServerError: there is none."""
    node, principal, host = view.node, call.client.principal, call.client.host
    try:
        return await node.asking.run(node.forward, request, call.version, call.client_id or "", principal, host)
    except (OSError, ClusterError) as error:
        raise ClosedByServerError(f"the controllers do not answer: {error}") from None


def coordinated(kind: type[Struct], here: NodeHandler) -> NodeHandler:
    """A handler for a kind of requests that asks `here` if this node coordinates all that a request names.

    A client looks for the coordinator after other answers; it finds this one again while it loads what it coordinates.
    """

    async def handler(view: NodeView, call: Call, request: Any) -> Any:  # noqa: ANN401  (any request)
        answer = elsewhere(kind, view.coordinators, request)
        return await here(view, call, request) if answer is None else answer

    return handler


def elsewhere(kind: type[Struct], coordinators: Coordinating, request: Struct) -> Struct | None:
    """The answer to a request of a kind that names what is not coordinated here; None: all of it is."""
    if kind not in _COORDINATED:
        return None
    errors, answer = _COORDINATED[kind]
    return answer(request) if any(errors(coordinators, request)) else None
