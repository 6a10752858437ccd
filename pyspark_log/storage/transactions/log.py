"""The transactions of Kafka's clients on disk: what `__transaction_state` has of each id, and markers in logs."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark_log.errors import CorruptRecordError, InvalidProducerEpochError, UnknownTopicError
from pyspark_log.storage.catalog import TRANSACTIONS_TOPIC
from pyspark_log.storage.compaction import compact_if_due
from pyspark_log.storage.groups.log.records import partition_for
from pyspark_log.storage.ingest import encode_pairs
from pyspark_log.storage.log_manager import LogManager, TopicAdmin
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker, encode_end_txn_marker
from pyspark_log.storage.transactions import records
from pyspark_log.storage.transactions.records import TransactionMetadata
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    # Kafka has 100 MiB. A server that starts reads all of it, and only inactive segments are compacted.
    "segment.bytes": str(256 << 10),
}


class TransactionLog:
    """The log of a store's transaction coordinator, which is the only one that writes to it. Thread-safe."""

    def __init__(self, logs: LogManager) -> None:
        """Reads nothing yet."""
        self._logs = logs

    @property
    def writable(self) -> bool:
        """Whether this process may write to the store."""
        return self._logs.writable

    def load(self, partitions: Iterable[int] | None = None) -> dict[str, TransactionMetadata]:
        """What the log has of each transactional id; of those in some of its partitions, if they are named.

        Raises:
            CorruptRecordError: a record is damaged, or not in Kafka's format.
        """
        logs, found = self._logs, dict[str, TransactionMetadata]()
        try:
            partitions = logs.written_partitions(TRANSACTIONS_TOPIC) if partitions is None else partitions
        except UnknownTopicError:
            return found
        for partition in partitions:
            reader = logs.recovered(TRANSACTIONS_TOPIC, partition)
            state = reader.state()
            newest = dict[bytes | None, tuple[int, bytes | None]]()
            for batch in reader.read_pairs(state.log_start, state.high_watermark, state=state):
                newest |= {key: (offset, value) for key, value, offset in batch.pairs}
            for key, (offset, value) in newest.items():
                try:
                    transactional_id = records.decode_key(key or b"")
                    if transactional_id is not None and value is not None:
                        found[transactional_id] = records.decode_value(value)
                except ValueError as error:
                    raise CorruptRecordError(
                        f"the record at offset {offset} is not a transaction's in Kafka's format: {error}",
                        base_offset=offset,
                        topic=TRANSACTIONS_TOPIC,
                        partition=partition,
                    ) from error
        return found

    def write(self, transactional_id: str, metadata: TransactionMetadata | None, *, sync: bool) -> None:
        """Writes what is known of an id from now on; None: nothing any more.

        Creates a missing topic (`transaction.state.log.num.partitions` partitions, Kafka's 50).

        Args:
            transactional_id: the id.
            metadata: what is known of it.
            sync: whether it survives a power loss.

        Raises:
            PylogError, OSError, ValueError: nothing was written.
            OutcomeUnknownError: it may have been.
        """
        logs, partition = self._logs, self._partition_of(transactional_id)
        key, value = records.encode_key(transactional_id), None if metadata is None else records.encode_value(metadata)
        batches = encode_pairs(TRANSACTIONS_TOPIC, logs.topic_config(TRANSACTIONS_TOPIC), [key], [value], logs.clock())
        with logs.writer(TRANSACTIONS_TOPIC, partition).hold() as writer:
            active = writer.state.active_base
            writer.append(bytearray().join(batches), sync=sync)
            rolled = writer.state.active_base != active
        if rolled:
            compact_if_due(logs, TopicPartition(TRANSACTIONS_TOPIC, partition))

    def _partition_of(self, transactional_id: str) -> int:
        count = "transaction.state.log.num.partitions"
        topic = TopicAdmin(self._logs).internal(TRANSACTIONS_TOPIC, count, _TOPIC_CONFIGS)
        return partition_for(transactional_id, topic.partitions)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch that markers of an id's transactions have: that of the leader of its partition here."""
        return self._logs.topic(TRANSACTIONS_TOPIC).leader_epoch(self._partition_of(transactional_id))

    def end(
        self, at: TopicPartition, producer_id: int, producer_epoch: int, marker: EndTxnMarker, *, sync: bool
    ) -> None:
        """Writes the marker that ends a producer's transaction in a partition; a second one changes nothing.

        A topic that was deleted needs none, nor does a partition in which a later epoch of the producer has written.

        Raises:
            TransactionCoordinatorFencedError: a later coordinator has written one.
            PylogError, OSError: it was not written, or, for OutcomeUnknownError, it may have been.
        """
        logs = self._logs
        batch = encode_end_txn_marker(marker, producer_id, producer_epoch, logs.clock())
        try:
            with logs.writer(at.topic, at.partition).hold() as writer:
                writer.append(bytearray(batch), sync=sync)
        except UnknownTopicError:
            log.info("%s is gone, with the transaction of producer %d there", at, producer_id)
        except InvalidProducerEpochError as error:
            log.warning("%s: its transaction has ended: %s", at, error)
