"""What a request makes of a transactional id: the next metadata, or an error. Nothing is written here.

The rules are those of Kafka's TransactionCoordinator and TransactionMetadata, for both versions of the protocol: in the
second one (KIP-890) each transaction has an epoch of its own, and is begun by its first records.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.storage.transactions import NO_EPOCH, NO_PRODUCER, TransactionMetadata, TransactionState
from pyspark_log.types import TopicPartition

#: The version of the protocol in which each transaction has an epoch of its own.
EPOCH_EACH = 2
# Java's largest short. The last epoch is kept for the marker that ends the last transaction.
_MAX_EPOCH = 0x7FFF
_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def is_exhausted(epoch: int) -> bool:
    """Whether a producer id has no epoch left for another transaction."""
    return epoch >= _MAX_EPOCH - 1


def initialized(
    metadata: TransactionMetadata, timeout: int, producer: tuple[int, int], new_id: int, now: int
) -> TransactionMetadata | ErrorCode:
    """A producer begins, or begins again: earlier ones of its id are fenced. No transaction is open.

    Args:
        metadata: of the id.
        timeout: for how long its transactions may last, in ms.
        producer: the producer id and epoch that the client believes to have; -1: it has none.
        new_id: a producer id for one that has no epochs left.
        now: the time in ms.
    """
    producer_id, epoch = producer
    is_known = producer_id in (NO_PRODUCER, metadata.producer_id) or (
        producer_id == metadata.previous_id and is_exhausted(epoch)
    )
    if metadata.epoch != NO_EPOCH and not is_known:
        return ErrorCode.PRODUCER_FENCED
    begun = replace(
        metadata,
        state=TransactionState.EMPTY,
        timeout=timeout,
        partitions=frozenset(),
        started=-1,
        updated=now,
        # A client without an epoch is a new one: those before it are fenced.
        last_epoch=NO_EPOCH if epoch == NO_EPOCH else metadata.epoch,
    )
    if is_exhausted(metadata.epoch) and epoch in (NO_EPOCH, metadata.epoch):
        return replace(begun, producer_id=new_id, epoch=0, previous_id=metadata.producer_id, next_id=NO_PRODUCER)
    if NO_EPOCH in (epoch, metadata.epoch) or epoch == metadata.epoch:
        return replace(begun, epoch=metadata.epoch + 1)
    # The client's last answer was lost.
    repeated = replace(begun, last_epoch=metadata.last_epoch)
    return repeated if epoch == metadata.last_epoch else ErrorCode.PRODUCER_FENCED


def check_producer(metadata: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """Whether a request comes from the producer that the id has now."""
    if producer_id != metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if epoch == metadata.epoch else ErrorCode.PRODUCER_FENCED


def extended(
    metadata: TransactionMetadata, partitions: AbstractSet[TopicPartition], version: int, now: int
) -> TransactionMetadata | ErrorCode:
    """Partitions join the transaction, which they begin if none is open; as `metadata` if it has them.

    `version`: of the protocol of transactions that the client uses.
    """
    if metadata.state in _PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if metadata.state is not TransactionState.ONGOING:
        return replace(
            metadata, state=TransactionState.ONGOING, partitions=frozenset(partitions), started=now, updated=now,
            client_version=version,
        )  # fmt: skip
    if partitions <= metadata.partitions:
        return metadata
    return replace(metadata, partitions=metadata.partitions | partitions, updated=now, client_version=version)


def ended(
    metadata: TransactionMetadata, producer_id: int, epoch: int, *, commit: bool, version: int, new_id: int, now: int
) -> TransactionMetadata | ErrorCode:
    """The client ends its transaction.

    Args:
        metadata: of the id.
        producer_id, epoch: of the client.
        commit: commit or abort.
        version: of the protocol of transactions that the client uses.
        new_id: a producer id for one that has no epochs left.
        now: the time in ms.

    Returns:
        The decision, of which the markers follow; as `metadata` if they were written already, and the answer was lost.
    """
    state, each = metadata.state, version >= EPOCH_EACH
    # The answer to a request that had its effect was lost; in the first version the state says that.
    is_repeated = each and epoch == metadata.epoch - 1
    is_of_last_id = each and producer_id == metadata.previous_id and epoch == _MAX_EPOCH - 1 and metadata.epoch == 0
    if producer_id != metadata.producer_id and not is_of_last_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not _is_epoch_right(metadata, epoch, is_repeated=is_repeated or is_of_last_id, each=each):
        return ErrorCode.PRODUCER_FENCED
    prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    if state is TransactionState.ONGOING:
        return _decide(metadata, prepared, version, new_id, now)
    if state is prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if state is complete and (not each or is_repeated or is_of_last_id):
        return metadata
    may_be_empty = each and not commit and not is_repeated and (state is TransactionState.EMPTY or state in _COMPLETE)
    return _decide(metadata, prepared, version, new_id, now) if may_be_empty else ErrorCode.INVALID_TXN_STATE


def _is_epoch_right(metadata: TransactionMetadata, epoch: int, *, is_repeated: bool, each: bool) -> bool:
    if not each or metadata.state in (TransactionState.ONGOING, TransactionState.EMPTY):
        return epoch == metadata.epoch
    return is_repeated or (metadata.state in _COMPLETE and epoch == metadata.epoch)


def _decide(
    metadata: TransactionMetadata, state: TransactionState, version: int, new_id: int, now: int
) -> TransactionMetadata:
    decided = replace(
        metadata,
        state=state,
        updated=now,
        started=metadata.started if metadata.started >= 0 else now,
        client_version=version,
    )
    if version < EPOCH_EACH:
        return decided
    next_id = new_id if is_exhausted(metadata.epoch) else NO_PRODUCER
    return replace(decided, epoch=metadata.epoch + 1, next_id=next_id, last_epoch=metadata.epoch)


def fenced(metadata: TransactionMetadata, now: int) -> TransactionMetadata:
    """An open transaction is aborted without its client, whose epoch ends: it took too long, or another begins."""
    epoch = min(metadata.epoch + 1, _MAX_EPOCH)
    return replace(metadata, state=TransactionState.PREPARE_ABORT, epoch=epoch, updated=now, last_epoch=metadata.epoch)


def completed(metadata: TransactionMetadata, now: int) -> TransactionMetadata:
    """All markers of a decision are written."""
    is_commit = metadata.state is TransactionState.PREPARE_COMMIT
    complete = replace(
        metadata,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated=now,
    )
    if metadata.next_id == NO_PRODUCER:
        return complete
    return replace(
        complete, producer_id=metadata.next_id, epoch=0, previous_id=metadata.producer_id, next_id=NO_PRODUCER
    )
