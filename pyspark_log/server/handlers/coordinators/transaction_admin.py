"""DescribeTransactions, ListTransactions, DescribeProducers, WriteTxnMarkers: to look at transactions, and end them."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.groups.topics import matching
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.coordinators.group_offsets import unknown
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.transactions import TransactionMetadata, TransactionState
from pyspark_log.types import TopicPartition

_Described = DescribeTransactionsResponse.TransactionState
_Producer = DescribeProducersResponse.ProducerState


async def describe_transactions(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Describes transactional ids."""
    by_id = call.broker.transactions.metadata
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe_transaction(call, name, by_id.get(name))
            if call.allows(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name)
            else _Described(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, name)
            for name in request.transactional_ids
        ]
    )


def _describe_transaction(
    call: Call, name: str, metadata: TransactionMetadata | None
) -> DescribeTransactionsResponse.TransactionState:
    if not name:
        return _Described(ErrorCode.INVALID_REQUEST, name)
    if metadata is None:
        return _Described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
    topics: dict[str, list[int]] = {}
    for at in sorted(at for at in metadata.partitions if call.allows(Operation.DESCRIBE, Resource.TOPIC, at.topic)):
        topics.setdefault(at.topic, []).append(at.partition)
    return _Described(
        ErrorCode.NONE, name, metadata.state.kafkas_name, metadata.timeout, metadata.started, metadata.producer_id,
        metadata.epoch, [DescribeTransactionsResponse.TopicData(topic, numbers) for topic, numbers in topics.items()],
    )  # fmt: skip


async def list_transactions(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Lists transactional ids, by state, producer id, age, and a pattern of their names."""
    by_id = call.broker.transactions.metadata
    states = {state.kafkas_name: state for state in TransactionState}
    asked_for = {states[name] for name in request.state_filters if name in states}
    strange = [name for name in request.state_filters if name not in states]
    # Not those that the client may not see: the time that a pattern takes would reveal something of their names.
    seen = [name for name in by_id if call.allows(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name)]
    if request.transactional_id_pattern:
        try:
            seen = matching(seen, request.transactional_id_pattern)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now, ids = call.broker.logs.clock(), set(request.producer_id_filters)
    return ListTransactionsResponse(
        unknown_state_filters=strange,
        transaction_states=[
            ListTransactionsResponse.TransactionState(name, transaction.producer_id, transaction.state.kafkas_name)
            for name, transaction in ((name, by_id[name]) for name in seen)
            if (not request.state_filters or transaction.state in asked_for)
            and (not ids or transaction.producer_id in ids)
            and (request.duration_filter < 0 or now - transaction.started > request.duration_filter)
        ],
    )


async def describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describes the producers of partitions, and where their open transactions begin."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                topic.name,
                [
                    await call.broker.workers.run(_producers, call, topic.name, number)
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _producers(call: Call, topic: str, partition: int) -> DescribeProducersResponse.PartitionResponse:
    if not call.allows(Operation.READ, Resource.TOPIC, topic):
        return DescribeProducersResponse.PartitionResponse(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    try:
        entries = call.broker.logs.producers(TopicPartition(topic, partition))
    except (PylogError, OSError) as error:
        return DescribeProducersResponse.PartitionResponse(partition, code_of(error), str(error))
    return DescribeProducersResponse.PartitionResponse(
        partition, ErrorCode.NONE, None,
        [
            _Producer(
                entry.producer_id, entry.epoch, entry.last_sequence, entry.last_timestamp, entry.coordinator_epoch,
                -1 if entry.txn_first_offset is None else entry.txn_first_offset,
            )
            for entry in entries
        ],
    )  # fmt: skip


async def write_txn_markers(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Writes markers as they are asked for: `kafka-transactions abort` ends with them what no coordinator knows."""
    return await call.broker.workers.run(_write_markers, call, request)


def _write_markers(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return marked(request, lambda number, at: _write_marker(call, request.markers[number], at))


def marked(
    request: WriteTxnMarkersRequest, error_of: Callable[[int, TopicPartition], ErrorCode]
) -> WriteTxnMarkersResponse:
    """The response; `error_of`: what became of a marker, by its place in the request, in a partition."""
    response = WriteTxnMarkersResponse
    row, part = response.WritableTxnMarkerTopicResult, response.WritableTxnMarkerPartitionResult
    return response(markers=[
        response.WritableTxnMarkerResult(marker.producer_id, [
            row(topic.name, [
                part(index, error_of(number, TopicPartition(topic.name, index))) for index in topic.partition_indexes
            ])
            for topic in marker.topics
        ])
        for number, marker in enumerate(request.markers)
    ])  # fmt: skip


def _write_marker(call: Call, asked: WriteTxnMarkersRequest.WritableTxnMarker, at: TopicPartition) -> ErrorCode:
    cluster = Resource.CLUSTER, CLUSTER_NAME
    may = call.allows(Operation.CLUSTER_ACTION, *cluster) or call.allows(Operation.ALTER, *cluster)
    if not call.broker.logs.transactions.writable or not may:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if error := unknown(call, at.topic, at.partition):
        return error
    marker = EndTxnMarker(asked.transaction_result, asked.coordinator_epoch)
    try:
        call.broker.logs.transactions.end(
            at, asked.producer_id, asked.producer_epoch, marker, sync=call.broker.sync_acks_all
        )
    except (PylogError, OSError) as failure:
        return code_of(failure)
    return ErrorCode.NONE
