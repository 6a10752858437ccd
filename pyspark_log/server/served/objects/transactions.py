"""The transactions of a store in an object store: what is known of them is in its publish log; see `logs`.

No server coordinates them: each change is decided on what is known at that moment, by any server. What a transaction
writes is staged, and becomes visible with the decision that commits it, all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NoReturn

from pyspark_log.errors import ReadOnlyError
from pyspark_log.server.network import Wait, Workers
from pyspark_log.server.served.logs import Changed, Rule, SharedTransactions
from pyspark_log.server.served.objects.collector import Collector, Failure, Request
from pyspark_log.server.served.objects.follower import Follower
from pyspark_log.storage.publish_log.entries.changes import TransactionStep
from pyspark_log.storage.publish_log.proposals import Proposal
from pyspark_log.storage.publish_log.state import State, TransactionalId
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.transactions import TransactionMetadata
from pyspark_log.storage.transactions.records import decode_value, encode_value
from pyspark_log.types import TopicPartition


class ObjectTransactions(SharedTransactions):
    """See SharedTransactions. As a TransactionsLog, it has nothing that a coordinator would load or write."""

    writable = True

    def __init__(self, follower: Follower, collector: Collector, workers: Workers) -> None:
        """`collector`: makes the decisions."""
        self._follower, self._collector, self._workers = follower, collector, workers

    def known(self) -> dict[str, TransactionMetadata]:
        return {name: _metadata(record) for name, record in self._follower.state.transactional.items()}

    def of(self, transactional_id: str) -> TransactionMetadata | None:
        record = self._follower.state.transactional.get(transactional_id)
        return None if record is None else _metadata(record)

    def open(self) -> dict[str, TransactionMetadata]:
        state = self._follower.state
        names = [transaction.transactional_id for transaction in state.open.values()]
        return {name: _metadata(state.transactional[name]) for name in names if name in state.transactional}

    def partitions(self, producer_id: int) -> frozenset[TopicPartition]:
        state = self._follower.state
        transaction = state.open.get(producer_id)
        if transaction is None:
            return frozenset()
        names, places = (
            {topic.topic_id: topic.name for topic in state.topics.values()},
            {at for at, _ in transaction.pieces},
        )
        return frozenset(TopicPartition(names[topic_id], number) for topic_id, number in places if topic_id in names)

    def change(self, transactional_id: str, rule: Rule) -> Wait[Any]:
        wait: Wait[Any] = Wait()

        def decide(state: State) -> tuple[Proposal | None, list[Any]]:
            record = state.transactional.get(transactional_id)
            changed = rule(None if record is None else _metadata(record))
            if not isinstance(changed, Changed):
                return None, [changed]
            value = None if changed.metadata is None else encode_value(changed.metadata)
            last_epoch = -1 if changed.metadata is None else changed.metadata.last_epoch
            step = TransactionStep(transactional_id, value, last_epoch, *changed.producer, changed.step)
            return Proposal(steps=(step,)), [changed.answer]

        def report(outcomes: list[Any]) -> None:
            [outcome] = outcomes
            failure = outcome.error if isinstance(outcome, Failure) else None
            self._workers.deliver([(wait, outcome, failure)])

        self._collector.add(Request(report, change=decide))
        return wait

    # ---- what a coordinator would ask for

    def load(self, partitions: Iterable[int] | None = None) -> dict[str, TransactionMetadata]:
        return {}

    def write(self, transactional_id: str, metadata: TransactionMetadata | None, *, sync: bool) -> None:
        _refuse()

    def coordinator_epoch(self, transactional_id: str) -> int:
        return 0

    def end(
        self, at: TopicPartition, producer_id: int, producer_epoch: int, marker: EndTxnMarker, *, sync: bool
    ) -> None:
        _refuse()


@lru_cache(10_000)
def _metadata(record: TransactionalId) -> TransactionMetadata:
    return replace(decode_value(record.value), last_epoch=record.last_epoch)


def _refuse() -> NoReturn:
    raise ReadOnlyError("an object store has no markers: a transaction becomes visible as a whole, by one decision")
