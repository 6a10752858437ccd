"""FindCoordinator at a node: coordinators are the leaders of partitions of Kafka's own topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import FindCoordinatorRequest, FindCoordinatorResponse
from pyspark_log.server.handlers.call import NOT_ALLOWED, Call
from pyspark_log.server.handlers.coordinators.membership import KINDS
from pyspark_log.server.handlers.node.cluster import COORDINATES, NO_NODE, reachable
from pyspark_log.server.handlers.node.topics import create_own
from pyspark_log.server.security.acls import Operation
from pyspark_log.storage.groups.records import partition_for

if TYPE_CHECKING:
    from pyspark_log.server.node.view import NodeView

_Coordinator = FindCoordinatorResponse.Coordinator

_FIRST_OF_MANY = 4  # versions of FindCoordinator


async def find_coordinator(view: NodeView, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Names the brokers that coordinate groups or transactions: the leaders of partitions of Kafka's own topics.

    A topic that is missing is created, and until it is there no coordinator is available.
    """
    keys = request.coordinator_keys if call.version >= _FIRST_OF_MANY else [request.key]
    rows = [_coordinator(view, call, request.key_type, key) for key in keys]
    own = COORDINATES.get(request.key_type)
    is_asked_for = any(row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE for row in rows)
    if own is not None and is_asked_for and view.image.topic(own) is None:
        await create_own(view, call, own)
    if call.version >= _FIRST_OF_MANY:
        return FindCoordinatorResponse(coordinators=rows)
    [one] = rows
    return FindCoordinatorResponse(0, one.error_code, one.error_message or "NONE", one.node_id, one.host, one.port)


def _coordinator(view: NodeView, call: Call, kind: int, key: str) -> FindCoordinatorResponse.Coordinator:
    if kind not in COORDINATES:
        why = f"no kind of coordinator has the number {kind}"
        return _Coordinator(key, NO_NODE, "", -1, ErrorCode.INVALID_REQUEST, why)
    resource = KINDS[kind]
    if not call.allows(Operation.DESCRIBE, resource, key):
        return _Coordinator(key, NO_NODE, "", -1, NOT_ALLOWED[resource], "the client may not ask for that")
    alive, topic = reachable(view), view.image.topic(COORDINATES[kind])
    if topic is None:
        why = f"{COORDINATES[kind]} is being created"
        return _Coordinator(key, NO_NODE, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    leader = topic.partitions[partition_for(key, len(topic.partitions))].leader
    if leader in alive:
        host, port, _ = alive[leader]
        return _Coordinator(key, leader, host, port, ErrorCode.NONE, "")
    return _Coordinator(key, NO_NODE, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, "its partition has no leader")
