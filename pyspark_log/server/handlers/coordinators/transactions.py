"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn: producers and their transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.coordinator import of_storing
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.coordinators.group_offsets import refusal, unknown
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.storage.catalog import TRANSACTIONS_TOPIC
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.types import TopicPartition

# From these versions on an error says that a producer is fenced; before, that its epoch is invalid.
_INIT_SAYS_FENCED, _SAYS_FENCED = 4, 2
# Clients of the second version of the protocol of transactions (KIP-890) send these versions.
_END_OF_EACH, _COMMIT_OF_EACH = 5, 5
_COMMIT_SAYS_ABORT = 4
_EPOCH_EACH = 2
_NOT_ALLOWED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_READ = Operation.READ, Resource.GROUP


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Gives a producer an id and an epoch; with a transactional id, earlier producers of it are fenced."""
    broker, name = call.broker, request.transactional_id
    if error := _init_refusal(call, request):
        return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    if name is None:
        return InitProducerIdResponse(producer_id=broker.producer_ids.next(), producer_epoch=0)
    producer = request.producer_id, request.producer_epoch
    outcome = await broker.transactions.init_producer(name, request.transaction_timeout_ms, producer)
    error = outcome.error if call.version >= _INIT_SAYS_FENCED else _before_fencing(outcome.error)
    return InitProducerIdResponse(error_code=error, producer_id=outcome.producer_id, producer_epoch=outcome.epoch)


def _init_refusal(call: Call, request: InitProducerIdRequest) -> ErrorCode:
    name = request.transactional_id
    if name is None:
        may = call.allows(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME) or call.may_write_any()
        return ErrorCode.NONE if call.broker.logs.writable and may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if not _may_write(call, name):
        return _NOT_ALLOWED
    if not name or (request.producer_id < 0) != (request.producer_epoch < 0):
        return ErrorCode.INVALID_REQUEST
    in_time = 0 < request.transaction_timeout_ms <= call.broker.transactions.max_timeout
    return ErrorCode.NONE if in_time else ErrorCode.INVALID_TRANSACTION_TIMEOUT


def _may_write(call: Call, transactional_id: str) -> bool:
    may = call.allows(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id)
    return may and call.broker.logs.transactions.writable


def _before_fencing(error: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED else error


async def add_partitions_to_txn(call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Adds partitions to the producer's transaction, all or none of them."""
    name = request.v3_and_below_transactional_id
    errors = {
        TopicPartition(topic.name, number): _partition_error(call, topic.name, number)
        for topic in request.v3_and_below_topics
        for number in topic.partitions
    }
    if not _may_write(call, name):
        errors = dict.fromkeys(errors, _NOT_ALLOWED)
    elif any(errors.values()):
        errors = {at: error or ErrorCode.OPERATION_NOT_ATTEMPTED for at, error in errors.items()}
    else:
        error = await _add(
            call, name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, frozenset(errors)
        )
        errors = dict.fromkeys(errors, error)
    rows = added(request.v3_and_below_topics, errors.__getitem__)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


def added(
    topics: Iterable[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic], error_of: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    """The rows of topics, with what became of each partition."""
    row = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    part = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    return [
        row(topic.name, [part(number, error_of(TopicPartition(topic.name, number))) for number in topic.partitions])
        for topic in topics
    ]


def _partition_error(call: Call, topic: str, partition: int) -> ErrorCode:
    if topic == TRANSACTIONS_TOPIC or not call.allows(Operation.WRITE, Resource.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return unknown(call, topic, partition)


async def _add(
    call: Call, transactional_id: str, producer_id: int, epoch: int, partitions: frozenset[TopicPartition]
) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    error = await call.broker.transactions.add(transactional_id, producer_id, epoch, partitions, 0)
    return error if call.version >= _SAYS_FENCED else _before_fencing(error)


async def add_offsets_to_txn(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Adds the offsets of a group to the producer's transaction."""
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not _may_write(call, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=_NOT_ALLOWED)
    if not call.allows(*_READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        at = await call.broker.cluster.place_of(request.group_id)
    except (PylogError, OSError) as failure:
        return AddOffsetsToTxnResponse(error_code=code_of(failure))
    error = await _add(call, request.transactional_id, request.producer_id, request.producer_epoch, frozenset({at}))
    return AddOffsetsToTxnResponse(error_code=error)


async def end_txn(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """Commits or aborts the producer's transaction."""
    if not _may_write(call, request.transactional_id):
        return EndTxnResponse(error_code=_NOT_ALLOWED)
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    each = call.version >= _END_OF_EACH
    outcome = await call.broker.transactions.end(
        request.transactional_id, request.producer_id, request.producer_epoch,
        commit=request.committed, version=_EPOCH_EACH if each else 0,
    )  # fmt: skip
    error = outcome.error if call.version >= _SAYS_FENCED else _before_fencing(outcome.error)
    return EndTxnResponse(error_code=error, producer_id=outcome.producer_id, producer_epoch=outcome.epoch)


# ---- offsets


async def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Commits offsets of a group as a part of the producer's transaction."""
    now = call.broker.groups.now()
    refused = ErrorCode.NONE
    if not _may_write(call, request.transactional_id):
        refused = _NOT_ALLOWED
    elif not call.allows(*_READ, request.group_id):
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    errors, offsets = dict[TopicPartition, ErrorCode](), dict[TopicPartition, OffsetAndMetadata]()
    for topic in request.topics:
        for part in topic.partitions:
            at = TopicPartition(topic.name, part.partition_index)
            error = refused or refusal(call, request.group_id, topic.name, part)
            errors[at] = error
            if not error:
                offsets[at] = OffsetAndMetadata(
                    part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "", now
                )
    if offsets:
        error = await call.broker.loop.start(_commit(call, request, offsets, now))
        errors = {at: code or error for at, code in errors.items()}
    return offsets_committed(request, errors.__getitem__)


def offsets_committed(
    request: TxnOffsetCommitRequest, error_of: Callable[[TopicPartition], ErrorCode]
) -> TxnOffsetCommitResponse:
    """The response, with what became of each partition."""
    response, row = TxnOffsetCommitResponse, TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
    return response(topics=[
        response.TxnOffsetCommitResponseTopic(topic.name, [
            row(part.partition_index, error_of(TopicPartition(topic.name, part.partition_index)))
            for part in topic.partitions
        ])
        for topic in request.topics
    ])  # fmt: skip


async def _commit(
    call: Call, request: TxnOffsetCommitRequest, offsets: Mapping[TopicPartition, OffsetAndMetadata], now: int
) -> ErrorCode:
    groups, log, gate = call.broker.groups, call.broker.logs.groups, call.broker.gate
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    try:
        at = await call.broker.cluster.place_of(request.group_id)
        admitted = await gate.admit(*producer, frozenset({at}), adds=call.version >= _COMMIT_OF_EACH)
        try:
            if error := admitted[at]:
                abort = error == ErrorCode.INVALID_TXN_STATE and call.version >= _COMMIT_SAYS_ABORT
                return ErrorCode.TRANSACTION_ABORTABLE if abort else _before_fencing(error)
            # Nothing may come between the check and the place in the queue of the log.
            error = groups.coordinator.check_commit(
                request.group_id, request.generation_id, request.member_id, request.group_instance_id, call.version,
                now, transactional=True, partitions=[(at.topic, at.partition) for at in offsets],
            )  # fmt: skip
            if error:
                return error
            commit = log.commit_in_transaction
            await groups.log.read(
                lambda: commit(request.group_id, offsets, request.producer_id, request.producer_epoch)
            )
            if failure := await groups.log.confirm({request.group_id}):
                return of_storing(code_of(failure))
        finally:
            gate.release(request.transactional_id, request.producer_id)
    except (RefusedError, PylogError, OSError, ValueError) as failure:
        return of_storing(code_of(failure))
    return ErrorCode.NONE
