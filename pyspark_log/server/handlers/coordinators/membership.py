"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat: membership of groups."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pyspark_log.server.coordinator import Client
from pyspark_log.server.coordinator.modern import JOIN
from pyspark_log.server.handlers.call import NOT_ALLOWED, Call
from pyspark_log.server.handlers.topics.metadata import address_of
from pyspark_log.server.security.acls import Operation, Resource

_log = logging.getLogger(__name__)

_Coordinator = FindCoordinatorResponse.Coordinator
# The kinds of keys.
KINDS = {0: Resource.GROUP, 1: Resource.TRANSACTIONAL_ID}
_READ = Operation.READ, Resource.GROUP
_NOT_ALLOWED = NOT_ALLOWED[Resource.GROUP]
_NO_NODE = -1
# Many keys in a request from this version on.
_FIRST_OF_MANY = 4


async def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Names the server that coordinates groups, or transactions."""
    keys = request.coordinator_keys if call.version >= _FIRST_OF_MANY else [request.key]
    coordinators = [_coordinator(call, request.key_type, key) for key in keys]
    if call.version >= _FIRST_OF_MANY:
        return FindCoordinatorResponse(coordinators=coordinators)
    [coordinator] = coordinators
    return FindCoordinatorResponse(
        0,
        coordinator.error_code,
        coordinator.error_message or "NONE",
        coordinator.node_id,
        coordinator.host,
        coordinator.port,
    )


def _coordinator(call: Call, kind: int, key: str) -> FindCoordinatorResponse.Coordinator:
    if kind not in KINDS:
        error, why = ErrorCode.INVALID_REQUEST, f"no kind of coordinator has the number {kind}"
        return _Coordinator(key, _NO_NODE, "", -1, error, why)
    resource = KINDS[kind]
    refused = NOT_ALLOWED[resource]
    logs = call.broker.logs
    if not (logs.groups if resource == Resource.GROUP else logs.transactions).writable:
        why = "the store is served for reading only" if not logs.writable else "this server does not coordinate them"
        return _Coordinator(key, _NO_NODE, "", -1, refused, why)
    if not call.allows(Operation.DESCRIBE, resource, key):
        return _Coordinator(key, _NO_NODE, "", -1, refused, "the client may not ask for that")
    server = logs.servers.coordinator() if resource == Resource.GROUP else logs.servers.of_transactions(key)
    if server is None:
        why = "it is being looked for, as the last one has died"
        return _Coordinator(key, _NO_NODE, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    # Kafka's text for no error is an empty one, and its name in versions before 4.
    return _Coordinator(key, server.node_id, *address_of(call, server), ErrorCode.NONE, "")


async def join_group(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    """Joins a group; waits for its other members."""
    if not call.allows(*_READ, request.group_id):
        return JoinGroupResponse(
            error_code=_NOT_ALLOWED, generation_id=-1, protocol_name="" if call.version < 7 else None
        )
    groups = call.broker.groups
    response: JoinGroupResponse = await groups.ask(
        lambda token: groups.coordinator.join(token, request, call.version, _client(call), groups.now())
    )
    if response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and request.group_id not in call.client.warned:
        # Client libraries have assignors of their own by default, and some then wait without a word.
        call.client.warned.add(request.group_id)
        _log.warning(
            "group %s: %s (%s) cannot join: the members have no assignor in common with it; it has %s",
            request.group_id, call.client_id, call.client.peer,
            ", ".join(protocol.name for protocol in request.protocols),
        )  # fmt: skip
    return response


def _client(call: Call) -> Client:
    return Client(call.client_id or "", f"/{call.client.host}")


async def sync_group(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    """Gets the member's assignment; waits for the leader's."""
    if not call.allows(*_READ, request.group_id):
        return SyncGroupResponse(error_code=_NOT_ALLOWED)
    groups = call.broker.groups
    response: SyncGroupResponse = await groups.ask(lambda token: groups.coordinator.sync(token, request, call.version))
    return response


async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Prolongs the member's session."""
    if not call.allows(*_READ, request.group_id):
        return HeartbeatResponse(error_code=_NOT_ALLOWED)
    groups = call.broker.groups
    return groups.coordinator.heartbeat(request, groups.now())


async def leave_group(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Removes members from a group."""
    if not call.allows(*_READ, request.group_id):
        return LeaveGroupResponse(error_code=_NOT_ALLOWED)
    groups = call.broker.groups
    response: LeaveGroupResponse = await groups.ask(
        lambda token: groups.coordinator.leave(token, request, call.version, groups.now())
    )
    return response


async def consumer_group_heartbeat(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Joins a group of KIP-848, prolongs the member's session and brings its assignment, or leaves."""
    if not call.allows(*_READ, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=_NOT_ALLOWED)
    may_describe = partial(call.allows, Operation.DESCRIBE, Resource.TOPIC)
    if not all(map(may_describe, request.subscribed_topic_names or ())):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    groups = call.broker.groups
    # A member that joins may have just created its topic; the others hear of it with their next heartbeats.
    try:
        topics = await groups.topics(at_once=request.member_epoch == JOIN)
    except (PylogError, OSError):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not groups.has(request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)  # since then another server does
    # As in Kafka, an expression gives the topics that the client sees whose heartbeat has it matched.
    seen = topics
    if call.broker.acls is not None:
        seen = replace(topics, matching=lambda pattern: filter(may_describe, topics.matching(pattern)))
    response: ConsumerGroupHeartbeatResponse = await groups.ask(
        lambda token: groups.coordinator.modern_heartbeat(
            token, request, call.version, _client(call), seen, groups.now()
        )
    )
    return response
