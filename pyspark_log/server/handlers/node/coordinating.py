"""What a node coordinates is answered as by a server that coordinates all; the rest names another coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.node.elsewhere import ANSWERS

if TYPE_CHECKING:
    from pyspark_log.server.node.view import NodeView

#: The handler of a node. It awaits only `Wait`s; returns the response, None if the client expects none.
NodeHandler = Callable[["NodeView", Call, Any], Coroutine[Any, Any, Any]]
Names = Callable[[Any], Collection[str]]


def _groups_of_fetch(request: m.OffsetFetchRequest) -> Collection[str]:
    return [group.group_id for group in request.groups] if request.groups else [request.group_id]


def _one_group(request: Any) -> Collection[str]:  # noqa: ANN401  (several requests have the field)
    return [request.group_id]


def _one_id(request: Any) -> Collection[str]:  # noqa: ANN401  (several requests have the field)
    return [] if request.transactional_id is None else [request.transactional_id]


#: The groups that a request is about, by its kind.
GROUPS: Mapping[type[Struct], Names] = {
    m.OffsetCommitRequest: _one_group,
    m.OffsetFetchRequest: _groups_of_fetch,
    m.JoinGroupRequest: _one_group,
    m.HeartbeatRequest: _one_group,
    m.LeaveGroupRequest: _one_group,
    m.SyncGroupRequest: _one_group,
    m.DescribeGroupsRequest: lambda request: request.groups,
    m.TxnOffsetCommitRequest: _one_group,
    m.DeleteGroupsRequest: lambda request: request.groups_names,
    m.OffsetDeleteRequest: _one_group,
    m.ConsumerGroupHeartbeatRequest: _one_group,
    m.ConsumerGroupDescribeRequest: lambda request: request.group_ids,
}
#: The transactional ids, likewise.
IDS: Mapping[type[Struct], Names] = {
    m.InitProducerIdRequest: _one_id,
    # Brokers ask for several, and get an answer for each.
    m.AddPartitionsToTxnRequest: lambda txn: [] if txn.transactions else [txn.v3_and_below_transactional_id],
    m.AddOffsetsToTxnRequest: _one_id,
    m.EndTxnRequest: _one_id,
    m.DescribeTransactionsRequest: lambda request: request.transactional_ids,
}


def coordinated(kind: type[Struct], here: NodeHandler) -> NodeHandler:
    """A handler for a kind of requests that asks `here` if this node coordinates all that a request names.

    A client looks for the coordinator after other answers; it finds this one again while it loads what it coordinates.
    """
    names, elsewhere = GROUPS.get(kind) or IDS[kind], ANSWERS[kind]

    async def handler(view: NodeView, call: Call, request: Any) -> Any:  # noqa: ANN401  (any request)
        coordinators = view.coordinators
        error_of = coordinators.of_group if kind in GROUPS else coordinators.of_transaction
        errors = [error_of(name) for name in names(request)]
        return await here(view, call, request) if not any(errors) else elsewhere(request)

    return handler
