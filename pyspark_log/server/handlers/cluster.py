"""DescribeCluster, DescribeLogDirs, DeleteRecords and ListPartitionReassignments."""

from __future__ import annotations

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.errors import RefusedError, attempt
from pyspark_log.server.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED, advertised
from pyspark_log.storage.catalog import INTERNAL_TOPICS
from pyspark_log.types import LATEST, TopicPartition

_Broker = DescribeClusterResponse.DescribeClusterBroker
_Dir = DescribeLogDirsResponse.DescribeLogDirsResult
_DirTopic = DescribeLogDirsResponse.DescribeLogDirsTopic
_DirPartition = DescribeLogDirsResponse.DescribeLogDirsPartition
_Deleted = DeleteRecordsResponse.DeleteRecordsPartitionResult

_BROKERS, _CONTROLLERS = 1, 2
_ALL_RECORDS = -1


async def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describes the cluster: this server."""
    broker, (host, port) = call.broker, advertised(call)
    if request.endpoint_type != _BROKERS:
        is_known = request.endpoint_type == _CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(error_code=code, error_message="clients find brokers here, and no controllers")
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.store.cluster_id,
        controller_id=broker.node_id,
        brokers=[_Broker(broker.node_id, host, port, None)],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


async def list_partition_reassignments(
    _call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists no reassignments: there is one server."""
    return ListPartitionReassignmentsResponse()


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describes the log dirs, with the sizes of all partitions or of those that are named."""
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    return await call.broker.workers.run(_log_dirs, call, wanted)


def _log_dirs(call: Call, wanted: set[TopicPartition] | None) -> DescribeLogDirsResponse:
    results = []
    for one in call.broker.store.describe_log_dirs():
        if one.problem:
            results.append(_Dir(ErrorCode.KAFKA_STORAGE_ERROR, one.path))
            continue
        topics = dict[str, list[DescribeLogDirsResponse.DescribeLogDirsPartition]]()
        for at, size in sorted(one.partitions.items()):
            if wanted is None or at in wanted:
                topics.setdefault(at.topic, []).append(_DirPartition(at.partition, size, 0, False))
        rows = [_DirTopic(name, partitions) for name, partitions in topics.items()]
        results.append(_Dir(ErrorCode.NONE, one.path, rows, one.total, one.free))
    return DescribeLogDirsResponse(results=results)


async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Deletes the records before an offset of each partition."""
    topics = await call.broker.workers.run(
        lambda: [
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                topic.name, [_deleted(call, topic.name, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )
    return DeleteRecordsResponse(topics=topics)


def _deleted(
    call: Call, topic: str, wanted: DeleteRecordsRequest.DeleteRecordsPartition
) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    log_start = [-1]

    def delete() -> None:
        if topic in INTERNAL_TOPICS:
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        if wanted.offset < _ALL_RECORDS:
            raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {wanted.offset}")
        before = LATEST if wanted.offset == _ALL_RECORDS else wanted.offset
        try:
            log_start[0] = call.broker.store.delete_records(topic, wanted.partition_index, before)
        except InvalidConfigError as error:
            # A compacted topic.
            raise RefusedError(ErrorCode.POLICY_VIOLATION, str(error)) from None

    code, _ = attempt(delete)
    return _Deleted(wanted.partition_index, log_start[0], code)
