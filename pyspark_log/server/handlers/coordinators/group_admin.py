"""DescribeGroups, ConsumerGroupDescribe, ListGroups and DeleteGroups: groups as administrators see them."""

from __future__ import annotations

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.coordinator import Topics
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.topics.metadata import NOT_ASKED
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource

_Modern = ConsumerGroupDescribeResponse.DescribedGroup
_DESCRIBE = Operation.DESCRIBE, Resource.GROUP


async def describe_groups(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describes groups, also those that have committed offsets alone."""
    groups = call.broker.groups
    await groups.refresh()
    described = [
        groups.coordinator.describe(name, call.version)
        if call.allows(*_DESCRIBE, name)
        else DescribeGroupsResponse.DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=name)
        for name in request.groups
    ]
    return DescribeGroupsResponse(groups=[_with_operations(call, group, request) for group in described])


async def consumer_group_describe(call: Call, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    """Describes groups of KIP-848."""
    groups = call.broker.groups
    await groups.refresh()
    topics = await groups.topics(at_once=True)
    described = [_modern(call, name, topics) for name in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=[_with_operations(call, group, request) for group in described])


def _modern(call: Call, name: str, topics: Topics) -> ConsumerGroupDescribeResponse.DescribedGroup:
    if not call.allows(*_DESCRIBE, name):
        return _Modern(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, name)
    described = call.broker.groups.coordinator.describe_modern(name, topics)
    assigned = {
        part.topic_name
        for member in described.members
        for assignment in (member.assignment, member.target_assignment)
        for part in assignment.topic_partitions
    }
    if all(call.allows(Operation.DESCRIBE, Resource.TOPIC, topic) for topic in assigned):
        return described
    return _Modern(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the group has topics that the client may not see", name)


def _with_operations(
    call: Call, described: Struct, request: DescribeGroupsRequest | ConsumerGroupDescribeRequest
) -> Struct:
    """A group with what may be done with it, if that was asked for; with one that is not there, nothing may."""
    asked = request.include_authorized_operations and described.error_code == ErrorCode.NONE
    operations = call.operations(Resource.GROUP, described.group_id) if asked else NOT_ASKED
    return described._replace(authorized_operations=operations)


async def list_groups(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """Lists groups by state and type."""
    groups = call.broker.groups
    await groups.refresh()
    listed = groups.coordinator.list_groups(request)
    if not call.allows(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        listed = [group for group in listed if call.allows(*_DESCRIBE, group.group_id)]
    return ListGroupsResponse(groups=listed)


async def delete_groups(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Deletes groups without members, and their committed offsets."""
    groups = call.broker.groups
    if not call.broker.logs.groups.writable:
        errors = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * len(request.groups_names)
    else:
        await groups.refresh()
        errors = [await _delete_group(call, name) for name in request.groups_names]
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(name, error)
            for name, error in zip(request.groups_names, errors, strict=True)
        ]
    )


async def _delete_group(call: Call, name: str) -> ErrorCode:
    if not call.allows(Operation.DELETE, Resource.GROUP, name):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    coordinator = call.broker.groups.coordinator
    error: ErrorCode = await call.broker.groups.ask(lambda token: coordinator.delete(token, name))
    return error
