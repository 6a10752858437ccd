"""What brokers of a cluster ask each other about transactions: what belongs to them, and markers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.coordinators import transactions as plain
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.server.node.coordinators import Coordinators
    from pyspark_log.server.node.gate import Gate
    from pyspark_log.server.node.view import NodeView

# From this version on brokers ask, for many transactions at once.
_OF_BROKERS = 4
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Partition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_Markers = WriteTxnMarkersResponse.WritableTxnMarkerResult
_MarkedTopic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_Marked = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


def _may(call: Call) -> bool:
    return call.allows(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)


async def add_partitions_to_txn(
    view: NodeView, call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Adds partitions to transactions, or says whether they are in them, for the leaders of these partitions."""
    if call.version < _OF_BROKERS:
        return await plain.add_partitions_to_txn(call, request)
    if not _may(call):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transaction.transactional_id, await _added(view.coordinators, transaction)
            )
            for transaction in request.transactions
        ]
    )


async def _added(
    coordinators: Coordinators, transaction: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    partitions = frozenset(
        TopicPartition(topic.name, number) for topic in transaction.topics for number in topic.partitions
    )
    errors: Mapping[TopicPartition, ErrorCode]
    if error := coordinators.of_transaction(transaction.transactional_id):
        errors = dict.fromkeys(partitions, error)
    else:
        errors = await coordinators.transactions.join(
            transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, partitions,
            adds=not transaction.verify_only,
        )  # fmt: skip
    return [
        _Topic(
            topic.name, [_Partition(number, errors[TopicPartition(topic.name, number)]) for number in topic.partitions]
        )
        for topic in transaction.topics
    ]


async def write_txn_markers(view: NodeView, call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Appends markers to partitions that are led here, and answers when all replicas in sync have them."""
    gate, loop = view.coordinators.gate, call.broker.loop
    begun = [
        (
            marker,
            {
                TopicPartition(topic.name, number): loop.start(
                    _mark(call, gate, marker, TopicPartition(topic.name, number))
                )
                for topic in marker.topics
                for number in topic.partition_indexes
            },
        )
        for marker in request.markers
    ]
    return WriteTxnMarkersResponse(
        markers=[
            _Markers(
                marker.producer_id,
                [
                    _MarkedTopic(
                        topic.name,
                        [
                            _Marked(number, await waits[TopicPartition(topic.name, number)])
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, waits in begun
        ]
    )


async def _mark(
    call: Call, gate: Gate, wanted: WriteTxnMarkersRequest.WritableTxnMarker, at: TopicPartition
) -> ErrorCode:
    if not _may(call):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    marker = EndTxnMarker(wanted.transaction_result, wanted.coordinator_epoch)
    return await gate.mark(at, wanted.producer_id, wanted.producer_epoch, marker, is_client=True)
