"""DescribeCluster, DeleteRecords, and the elections and reassignments of which there are none."""

from __future__ import annotations

from pyspark_log.errors import InvalidConfigError, PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pyspark_log.server.answers.errors import attempt, code_of
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.topics.metadata import address_of, check_replicas, cluster_operations
from pyspark_log.server.network import Wait
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.storage.catalog import INTERNAL_TOPICS
from pyspark_log.types import LATEST, TopicPartition

_Broker = DescribeClusterResponse.DescribeClusterBroker
_Deleted = DeleteRecordsResponse.DeleteRecordsPartitionResult

_BROKERS, _CONTROLLERS = 1, 2
_ALL_RECORDS = -1
# How often it is looked whether replicas have deleted, in seconds.
_LOOK = 0.02


async def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describes the cluster: the servers of the store."""
    broker = call.broker
    if request.endpoint_type != _BROKERS:
        is_known = request.endpoint_type == _CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message="clients find brokers here, and no controllers")
    return DescribeClusterResponse(
        cluster_id=broker.store.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            _Broker(server.node_id, *address_of(call, server), server.rack or None)
            for server in broker.logs.servers.alive()
        ],
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )


async def list_partition_reassignments(
    call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists no reassignments: servers of a store have no replicas."""
    if not call.allows(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ListPartitionReassignmentsResponse(error_message=None)


async def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Takes reassignments to this server, where all partitions are already; to others it refuses them."""
    may = call.allows(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    topics = []
    for topic in request.topics:
        rows = [
            AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                part.partition_index, *_reassign(call, topic.name, part)
            )
            for part in topic.partitions
        ]
        topics.append(AlterPartitionReassignmentsResponse.ReassignableTopicResponse(topic.name, rows))
    error = ErrorCode.NONE if may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=None, responses=topics)


def _reassign(
    call: Call, topic: str, part: AlterPartitionReassignmentsRequest.ReassignablePartition
) -> tuple[ErrorCode, str | None]:
    def reassign() -> None:
        call.require(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        call.broker.logs.topic(topic).check(part.partition_index)
        if part.replicas is None:
            raise RefusedError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "there is none that could be cancelled")
        check_replicas(call, part.replicas)

    return attempt(reassign)


async def elect_leaders(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elects no leader: this server leads each partition. Without a list of partitions there is none to answer for."""
    may = call.allows(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    topics = [
        ElectLeadersResponse.ReplicaElectionResult(
            topic.topic, [_elect_leader(call, topic.topic, number) for number in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    error = ErrorCode.NONE if may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ElectLeadersResponse(error_code=error, replica_election_results=topics)


def _elect_leader(call: Call, topic: str, partition: int) -> ElectLeadersResponse.PartitionResult:
    def elect() -> None:
        call.require(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        call.broker.logs.topic(topic).check(partition)
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED, "its leader is there")

    return ElectLeadersResponse.PartitionResult(partition, *attempt(elect))


async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Deletes the records before an offset of each partition; in a cluster, at all replicas that are alive."""
    deadline = call.broker.loop.time() + request.timeout_ms / 1000
    topics = await call.broker.workers.run(
        lambda: [
            (topic.name, [_delete_records(call, topic.name, part) for part in topic.partitions])
            for topic in request.topics
        ]
    )
    row = DeleteRecordsResponse.DeleteRecordsTopicResult
    return DeleteRecordsResponse(
        topics=[
            row(name, [await _wait_for_replicas(call, name, part, deadline) for part in parts])
            for name, parts in topics
        ]
    )


async def _wait_for_replicas(
    call: Call, topic: str, result: DeleteRecordsResponse.DeleteRecordsPartitionResult, deadline: float
) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    """Waits until all replicas have deleted; they say so when they fetch."""
    at = TopicPartition(topic, result.partition_index)
    try:
        while not result.error_code and not call.broker.cluster.has_deleted(at, result.low_watermark):
            if call.broker.loop.time() >= deadline:
                return _Deleted(result.partition_index, -1, ErrorCode.REQUEST_TIMED_OUT)
            pause: Wait[None] = Wait()
            call.broker.loop.call_later(_LOOK, pause.finish, None)
            await pause
    except (PylogError, OSError) as error:
        return _Deleted(result.partition_index, -1, code_of(error))
    return result


def _delete_records(
    call: Call, topic: str, asked: DeleteRecordsRequest.DeleteRecordsPartition
) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    log_start = [-1]

    def delete() -> None:
        call.require(Operation.DELETE, Resource.TOPIC, topic)
        if not call.leads(TopicPartition(topic, asked.partition_index)):
            raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads it")
        if topic in INTERNAL_TOPICS:
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        if asked.offset < _ALL_RECORDS:
            raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {asked.offset}")
        before = LATEST if asked.offset == _ALL_RECORDS else asked.offset
        try:
            log_start[0] = call.broker.store.delete_records(topic, asked.partition_index, before)
        except InvalidConfigError as error:
            # A compacted topic.
            raise RefusedError(ErrorCode.POLICY_VIOLATION, str(error)) from None

    code, _ = attempt(delete)
    return _Deleted(asked.partition_index, log_start[0], code)
