"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark_log.config import int_config
from pyspark_log.errors import PylogError, TopicExistsError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from pyspark_log.server.answers.configs import checked, of_topic
from pyspark_log.server.answers.errors import attempt
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.topics.metadata import check_replicas, require_create
from pyspark_log.server.security.acls import Operation, Resource
from pyspark_log.server.state.topic_ids import NO_ID
from pyspark_log.storage.catalog import check_name, check_not_internal
from pyspark_log.storage.catalog.topics import MAX_PARTITIONS, id_bytes
from pyspark_log.types import TopicDescription

_Created = CreateTopicsResponse.CreatableTopicResult
_Config = CreateTopicsResponse.CreatableTopicConfigs
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult

_DEFAULT = -1
# From these versions on a request is refused whose client has used up its quota (KIP-599).
_CREATE_IS_STRICT, _GROW_IS_STRICT, _DELETE_IS_STRICT = 6, 3, 5
# Topics are deleted by name or id from this version on.
_FIRST_BY_ID = 6


# ---- creating


async def create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Creates topics, each for itself."""
    names = Counter(topic.name for topic in request.topics)
    topics = await call.broker.workers.run(
        lambda: [_create(call, topic, request.validate_only, names[topic.name] > 1) for topic in request.topics]
    )
    return CreateTopicsResponse(topics=topics)


def _create(
    call: Call, topic: CreateTopicsRequest.CreatableTopic, validate_only: bool, is_twice: bool
) -> CreateTopicsResponse.CreatableTopicResult:
    store, logs, descriptions = call.broker.store, call.broker.logs, list[TopicDescription]()

    def create() -> None:
        if is_twice:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "the topic is in the request twice")
        require_create(call, topic.name)
        check_name(topic.name)
        check_not_internal(topic.name)
        logs.check_writable()
        partitions, configs = _partitions(call, topic), _configs(call, topic)
        if logs.has_topic(topic.name):
            raise TopicExistsError(f"topic {topic.name!r} exists already")
        partitions = partitions or int_config(call.broker.logs.configs, "num.partitions")
        call.require_mutation(partitions, _CREATE_IS_STRICT)
        if validate_only:
            descriptions.append(TopicDescription(topic.name, "", partitions, configs))
        else:
            descriptions.append(store.create_topic(topic.name, partitions, configs))

    code, why = attempt(create)
    if code:
        return _Created(topic.name, NO_ID, code, why, num_partitions=-1, replication_factor=-1)
    [description] = descriptions
    topic_id = call.broker.topics.note(topic.name) if not validate_only else None
    created = _Created(topic.name, topic_id or NO_ID, code, None)
    if not call.allows(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name):
        return created._replace(topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    rows = _describe_configs(call, description.configs)
    return created._replace(num_partitions=description.partitions, replication_factor=1, configs=rows)


def _partitions(call: Call, topic: CreateTopicsRequest.CreatableTopic) -> int | None:
    """How many partitions are wanted; None: the store decides."""
    if topic.assignments:
        if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "both a number of partitions and an assignment are given")
        if sorted(assignment.partition_index for assignment in topic.assignments) != list(
            range(len(topic.assignments))
        ):
            raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the partitions are not numbered from 0 on")
        for assignment in topic.assignments:
            check_replicas(call, assignment.broker_ids)
        return len(topic.assignments)
    servers = len(call.broker.logs.servers.alive())
    # Programs ask for as many as there are servers, up to three. The store keeps the records for all of them.
    if topic.replication_factor != _DEFAULT and not 1 <= topic.replication_factor <= servers:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}: servers here: {servers}. The store keeps the records, so "
            "1 is enough",
        )
    if topic.num_partitions == _DEFAULT:
        return None
    _check_count(topic.num_partitions)
    return topic.num_partitions


def _check_count(partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: 1 to {MAX_PARTITIONS} are possible")


def _configs(call: Call, topic: CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
    configs = {config.name: config.value for config in topic.configs}
    for name, value in configs.items():
        if value is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"{name} has no value")
    servers = len(call.broker.logs.servers.alive())
    return checked({name: value for name, value in configs.items() if value is not None}, servers)


def _describe_configs(call: Call, configs: Mapping[str, str]) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    return [
        _Config(config.name, config.value, config.read_only, config.source)
        for config in of_topic(configs, call.broker.logs.configs)
    ]


# ---- more partitions


async def create_partitions(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Adds partitions to topics, each for itself."""
    names = Counter(topic.name for topic in request.topics)
    results = await call.broker.workers.run(
        lambda: [_grow(call, topic, request.validate_only, names[topic.name] > 1) for topic in request.topics]
    )
    return CreatePartitionsResponse(results=results)


def _grow(
    call: Call, topic: CreatePartitionsRequest.CreatePartitionsTopic, validate_only: bool, is_twice: bool
) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    def grow() -> None:
        if is_twice:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "the topic is in the request twice")
        call.require(Operation.ALTER, Resource.TOPIC, topic.name)
        check_not_internal(topic.name)
        now = call.broker.store.describe_topic(topic.name).partitions
        _check_count(topic.count)
        if topic.count <= now:
            raise RefusedError(
                ErrorCode.INVALID_PARTITIONS, f"the topic has {now} partitions, and {topic.count} are wanted"
            )
        if topic.assignments is not None:
            if len(topic.assignments) != topic.count - now:
                raise RefusedError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(topic.assignments)} assignments for {topic.count - now} new partitions",
                )
            for assignment in topic.assignments:
                check_replicas(call, assignment.broker_ids)
        call.broker.logs.check_writable()
        call.require_mutation(topic.count - now, _GROW_IS_STRICT)
        if not validate_only:
            call.broker.store.add_partitions(topic.name, topic.count)

    return _Grown(topic.name, *attempt(grow))


# ---- deleting


async def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Deletes topics by name or id, each for itself."""
    topics = [(name, NO_ID) for name in request.topic_names]
    if call.version >= _FIRST_BY_ID:
        topics = [(topic.name or "", topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(responses=[await _delete(call, *topic) for topic in topics])


async def _delete(call: Call, name: str, topic_id: bytes) -> DeleteTopicsResponse.DeletableTopicResult:
    if topic_id != NO_ID:
        name_of_id = None if name else await call.broker.cluster.name_of(topic_id)
        if name_of_id is None:
            code = ErrorCode.INVALID_REQUEST if name else ErrorCode.UNKNOWN_TOPIC_ID
            return _Deleted(name or None, topic_id, code, None)
        name = name_of_id
    if not call.allows(Operation.DESCRIBE, Resource.TOPIC, name):
        # The other one of name and id is not revealed, and so not that there is one.
        by_id = topic_id != NO_ID
        return _Deleted(None if by_id else name, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)

    def delete() -> None:
        call.require(Operation.DELETE, Resource.TOPIC, name)
        call.broker.logs.check_writable()
        call.require_mutation(call.broker.store.describe_topic(name).partitions, _DELETE_IS_STRICT)
        # By its id only the topic that has it, and not one that has got the name since.
        call.broker.store.delete_topic(name, topic_id=stored_id if topic_id != NO_ID else None)

    try:
        stored_id: str | None = call.broker.logs.topic(name).topic_id
    except PylogError:
        stored_id = None  # Deleting it says what is wrong.
    if topic_id != NO_ID and (stored_id is None or id_bytes(stored_id) != topic_id):
        return _Deleted(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, None)
    code, why = await call.broker.workers.run(attempt, delete)
    return _Deleted(name, NO_ID if stored_id is None else id_bytes(stored_id), code, why)
