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
from pyspark_log.server.handlers.coordinators.transaction_admin import marked
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.server.node.coordinators import Coordinators
    from pyspark_log.server.node.gate import Gate
    from pyspark_log.server.node.view import NodeView

# From this version on brokers ask, for many transactions at once.
_OF_BROKERS = 4


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
                transaction.transactional_id, await _add_partitions(view.coordinators, transaction)
            )
            for transaction in request.transactions
        ]
    )


async def _add_partitions(
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
    return plain.added(transaction.topics, errors.__getitem__)


async def write_txn_markers(view: NodeView, call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Appends markers to partitions that are led here, and answers when all replicas in sync have them."""
    gate, loop = view.coordinators.gate, call.broker.loop
    waits = [
        {at: loop.start(_mark(call, gate, marker, at)) for at in _partitions(marker)} for marker in request.markers
    ]
    errors = [{at: await wait for at, wait in marker.items()} for marker in waits]
    return marked(request, lambda number, at: errors[number][at])


def _partitions(marker: WriteTxnMarkersRequest.WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]


async def _mark(
    call: Call, gate: Gate, asked: WriteTxnMarkersRequest.WritableTxnMarker, at: TopicPartition
) -> ErrorCode:
    if not _may(call):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    marker = EndTxnMarker(asked.transaction_result, asked.coordinator_epoch)
    return await gate.mark(at, asked.producer_id, asked.producer_epoch, marker, is_client=True)
