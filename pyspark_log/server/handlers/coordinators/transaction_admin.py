"""DescribeTransactions, ListTransactions, DescribeProducers, WriteTxnMarkers: to look at transactions, and end them."""

from __future__ import annotations

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
from pyspark_log.server.errors import code_of
from pyspark_log.server.group_topics import matching
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
    known = call.broker.transactions.known
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(call, name, known.get(name))
            if call.allows(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name)
            else _Described(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, name)
            for name in request.transactional_ids
        ]
    )


def _described(
    call: Call, name: str, known: TransactionMetadata | None
) -> DescribeTransactionsResponse.TransactionState:
    if not name:
        return _Described(ErrorCode.INVALID_REQUEST, name)
    if known is None:
        return _Described(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, name)
    topics: dict[str, list[int]] = {}
    for at in sorted(one for one in known.partitions if call.allows(Operation.DESCRIBE, Resource.TOPIC, one.topic)):
        topics.setdefault(at.topic, []).append(at.partition)
    return _Described(
        ErrorCode.NONE, name, known.state.kafkas_name, known.timeout, known.started, known.producer_id, known.epoch,
        [DescribeTransactionsResponse.TopicData(topic, numbers) for topic, numbers in topics.items()],
    )  # fmt: skip


async def list_transactions(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Lists transactional ids, by state, producer id, age, and a pattern of their names."""
    known = call.broker.transactions.known
    states = {state.kafkas_name: state for state in TransactionState}
    wanted = {states[name] for name in request.state_filters if name in states}
    strange = [name for name in request.state_filters if name not in states]
    # Not those that the client may not see: the time that a pattern takes would reveal something of their names.
    seen = [one for one in known if call.allows(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, one)]
    if request.transactional_id_pattern:
        try:
            seen = matching(seen, request.transactional_id_pattern)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now, ids = call.broker.store.logs.clock(), set(request.producer_id_filters)
    return ListTransactionsResponse(
        unknown_state_filters=strange,
        transaction_states=[
            ListTransactionsResponse.TransactionState(name, one.producer_id, one.state.kafkas_name)
            for name, one in ((name, known[name]) for name in seen)
            if (not request.state_filters or one.state in wanted)
            and (not ids or one.producer_id in ids)
            and (request.duration_filter < 0 or now - one.started > request.duration_filter)
        ],
    )


async def describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describes the producers of partitions, and where their open transactions begin."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                topic.name,
                [await call.broker.workers.run(_producers, call, topic.name, one) for one in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers(call: Call, topic: str, partition: int) -> DescribeProducersResponse.PartitionResponse:
    logs = call.broker.store.logs
    if not call.allows(Operation.READ, Resource.TOPIC, topic):
        return DescribeProducersResponse.PartitionResponse(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    try:
        logs.topic(topic).check(partition)
        entries = logs.producers(topic, partition)
    except (PylogError, OSError) as error:
        return DescribeProducersResponse.PartitionResponse(partition, code_of(error), str(error))
    return DescribeProducersResponse.PartitionResponse(
        partition, ErrorCode.NONE, None,
        [
            _Producer(
                one.producer_id, one.epoch, one.last_sequence, one.last_timestamp, one.coordinator_epoch,
                -1 if one.txn_first_offset is None else one.txn_first_offset,
            )
            for one in entries
        ],
    )  # fmt: skip


async def write_txn_markers(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Writes markers as they are asked for: `kafka-transactions abort` ends with them what no coordinator knows."""
    return await call.broker.workers.run(_write_markers, call, request)


def _write_markers(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                number, _write_marker(call, marker, TopicPartition(topic.name, number))
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _write_marker(call: Call, wanted: WriteTxnMarkersRequest.WritableTxnMarker, at: TopicPartition) -> ErrorCode:
    cluster = Resource.CLUSTER, CLUSTER_NAME
    may = call.allows(Operation.CLUSTER_ACTION, *cluster) or call.allows(Operation.ALTER, *cluster)
    if not call.broker.store.writable or not may:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if error := unknown(call, at.topic, at.partition):
        return error
    marker = EndTxnMarker(wanted.transaction_result, wanted.coordinator_epoch)
    try:
        call.broker.transactions.log.end(
            at, wanted.producer_id, wanted.producer_epoch, marker, sync=call.broker.sync_acks_all
        )
    except (PylogError, OSError) as failure:
        return code_of(failure)
    return ErrorCode.NONE
