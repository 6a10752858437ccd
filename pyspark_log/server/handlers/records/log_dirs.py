"""DescribeLogDirs and AlterReplicaLogDirs: where partitions are on this server's disks."""

from __future__ import annotations

import logging

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from pyspark_log.server.answers.errors import attempt
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.storage.catalog import PUBLISH_TOPIC
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

_Dir = DescribeLogDirsResponse.DescribeLogDirsResult
_DirTopic = DescribeLogDirsResponse.DescribeLogDirsTopic
_DirPartition = DescribeLogDirsResponse.DescribeLogDirsPartition


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describes the log dirs, with the sizes of all partitions or of those that are named."""
    if not call.allows(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    partitions = None
    if request.topics is not None:
        partitions = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    return await call.broker.workers.run(_log_dirs, call, partitions)


def _log_dirs(call: Call, partitions: set[TopicPartition] | None) -> DescribeLogDirsResponse:
    results, described = [], call.broker.logs.log_dirs()
    served = _partitions(call)
    # A partition gets its log with its first record. Kafka's has one from the start: the first log dir lists it.
    without_log = served.difference(*(log_dir.partitions for log_dir in described))
    for log_dir in described:
        if log_dir.problem:
            results.append(_Dir(ErrorCode.KAFKA_STORAGE_ERROR, log_dir.path))
            continue
        sizes = {at: log_dir.partitions.get(at, 0) for at in served & log_dir.partitions.keys() | without_log}
        without_log = set()
        topics = dict[str, list[DescribeLogDirsResponse.DescribeLogDirsPartition]]()
        for at, size in sorted(sizes.items()):
            if partitions is None or at in partitions:
                topics.setdefault(at.topic, []).append(_DirPartition(at.partition, size, 0, False))
        rows = [_DirTopic(name, partitions) for name, partitions in topics.items()]
        results.append(_Dir(ErrorCode.NONE, log_dir.path, rows, log_dir.total, log_dir.free))
    return DescribeLogDirsResponse(results=results)


def _partitions(call: Call) -> set[TopicPartition]:
    """All partitions of the topics that are served."""
    store = call.broker.store
    return {
        TopicPartition(name, number)
        for name in store.topics(internal=True)
        if name != PUBLISH_TOPIC
        for number in range(store.describe_topic(name).partitions)
    }


async def alter_replica_log_dirs(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Begins to move partitions to other log dirs; DescribeLogDirs shows when one has arrived."""
    topics = dict[str, list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]]()
    for folder in request.dirs:
        for topic in folder.topics:
            for number in topic.partitions:
                code = _begin_move(call, TopicPartition(topic.name, number), folder.path)
                row = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(number, code)
                topics.setdefault(topic.name, []).append(row)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(name, rows) for name, rows in topics.items()]
    )


def _begin_move(call: Call, at: TopicPartition, path: str) -> ErrorCode:
    logs = call.broker.logs

    def begin() -> None:
        call.require(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        logs.check_writable()
        logs.topic(at.topic).check(at.partition)
        if not logs.has_log_dir(path):
            raise RefusedError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is no log dir of this store")
        call.broker.workers.run(move)

    def move() -> None:
        try:
            logs.move(at, path)
        except (PylogError, OSError) as error:
            _log.error("%s could not be moved to %s: %s", at, path, error)

    return attempt(begin)[0]
