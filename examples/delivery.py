"""Members of a group that make an invoice of each order, with one of three promises if they are killed.

    python examples/delivery.py /tmp/shop exactly-once

Start as many as you like, with one promise; kill them, and start them again. Each ends when no order has come for some
seconds.
"""

from __future__ import annotations

import argparse
import uuid

from pyspark_log import Consumer, Store, TopicPartition, Transactions
from pyspark_log.clients import ConsumerRecord
from pyspark_log.errors import FencedMemberError, OffsetConflictError


def invoices(found: dict[TopicPartition, list[ConsumerRecord]]) -> list[dict[str, bytes]]:
    """Makes an invoice of each order."""
    return [{"value": b"invoice for " + record.value} for records in found.values() for record in records]


def at_most_once(store: Store, consumer: Consumer, patience_ms: int) -> None:
    """Commits before it works: what it was at when it was killed is not done again."""
    while found := consumer.poll(patience_ms):
        try:
            consumer.commit()
        except FencedMemberError:
            continue  # The orders are others' now.
        store.append("invoices", invoices(found))


def at_least_once(store: Store, consumer: Consumer, patience_ms: int) -> None:
    """Commits after it has worked: what it was at when it was killed is done again."""
    while found := consumer.poll(patience_ms):
        store.append("invoices", invoices(found))
        try:
            consumer.commit()
        except FencedMemberError:
            continue  # Others do them again.


def exactly_once(store: Store, consumer: Consumer, patience_ms: int) -> None:
    """Commits and works at once: in one transaction, which is there as a whole, or not at all."""
    transactions = Transactions(store, f"invoices-{uuid.uuid4()}")
    while found := consumer.poll(patience_ms):
        try:
            with transactions.begin() as transaction:
                transaction.append("invoices", invoices(found))
                transaction.send_offsets("invoicing", consumer.progress())
        except OffsetConflictError:
            consumer.rewind()  # Others have done them: nothing of the transaction is there.


PROMISES = {"at-most-once": at_most_once, "at-least-once": at_least_once, "exactly-once": exactly_once}


def main() -> None:
    """Works until there are no more orders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("promise", choices=PROMISES)
    parser.add_argument("--patience-ms", type=int, default=5000, help="ends when no order has come for so long")
    given = parser.parse_args()
    store = Store.open_or_create(given.store)
    for topic in ("orders", "invoices"):
        store.ensure_topic(topic)
    consumer = Consumer(
        store, "orders", group_id="invoicing", auto_offset_reset="earliest", enable_auto_commit=False,
        isolation_level="read_committed", max_poll_records=50,
    )  # fmt: skip
    with consumer:
        PROMISES[given.promise](store, consumer, given.patience_ms)


if __name__ == "__main__":
    main()
