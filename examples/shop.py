"""A shop's topics, for a look at `pylog ui`: orders, payments, a table of customers, groups with lag, and publishers.

    python examples/shop.py /tmp/pylog-shop      # makes the store, and writes to it until Ctrl-C
    pylog ui --store /tmp/pylog-shop             # in another terminal; then open the address that it prints

Or with a server, whose clients pay back in transactions (this takes confluent-kafka):

    pylog serve --store /tmp/pylog-shop --ui-listen 127.0.0.1:9309
    python examples/shop.py --refunds 127.0.0.1:9092

What is written follows from its number alone, so two stores have the same records but for their times.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import pyarrow as pa

from pyspark_log import Store, TopicPartition

CUSTOMERS = ("anna", "ben", "carla", "dmitri", "elif", "farid", "grace", "hugo", "ines", "jonas", "keiko", "lena")
GOODS = (("espresso cups", 1890), ("tea pot", 3450), ("filter papers", 495), ("hand mill", 8900), ("scales", 5990))
PARTITIONS = 6
PAST_S = 1800  # as many seconds of records are made at the start


def rows(number: int, count: int, time_ms: int) -> dict[str, list[dict[str, object]]]:
    """Some orders with their payments and clicks, from a number on."""
    orders, payments, clicks = list[dict[str, object]](), list[dict[str, object]](), list[dict[str, object]]()
    for order in range(number, number + count):
        chance = random.Random(order)
        customer = chance.choice(CUSTOMERS)
        name, cents = chance.choice(GOODS)
        pieces = chance.randint(1, 4)
        headers = [("source", chance.choice([b"web", b"web", b"app"])), ("trace", b"%016x" % chance.getrandbits(64))]
        value = {"order": order, "customer": customer, "item": name, "pieces": pieces, "total": cents * pieces / 100}
        row = {"key": customer, "headers": headers, "timestamp": time_ms}
        orders.append({**row, "value": json.dumps(value)})
        if chance.random() < 0.9:
            paid = {"order": order, "by": chance.choice(["card", "invoice", "transfer"]), "amount": value["total"]}
            payments.append({**row, "key": str(order), "value": json.dumps(paid)})
        for page in range(chance.randint(2, 6)):
            clicks.append({**row, "value": f"GET /goods/{page} {customer}"})
    return {"orders": orders, "payments": payments, "clicks": clicks}


def make(path: str) -> Store:
    """A new store with the topics, and some of what was sold lately."""
    store = Store.create(path)
    for topic in ("orders", "payments", "clicks", "invoices"):
        store.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
    store.create_topic("customers", 2, {"cleanup.policy": "compact"})
    store.append(
        "customers", [{"key": name, "value": json.dumps({"name": name.title(), "since": 2020})} for name in CUSTOMERS]
    )
    store.append("customers", [{"key": "hugo", "value": None}])  # a tombstone: this customer has left
    begin, number = int(time.time() * 1000) - PAST_S * 1000, 0
    for second in range(0, PAST_S, 30):
        for topic, found in rows(number, 60, begin + second * 1000).items():
            store.append(topic, found)
        number += 60
    for group, share in (("billing", 1.0), ("fraud-check", 0.97), ("warehouse", 0.8), ("dashboards", 0.9)):
        for topic in ("orders", "payments") if group == "billing" else ("orders",):
            ends = {TopicPartition(topic, one): store.latest_offset(topic, one) for one in range(PARTITIONS)}
            store.groups[group].commit({at: int(end * share) for at, end in ends.items()})
    return store


def publish(store: Store, publisher: str, batch: int, topic: str) -> None:
    """What a streaming query does with each micro-batch."""
    writer = store.publishes.writer(store.publishes.plan([topic]))
    values = [json.dumps({"invoice": batch * 3 + one, "state": "sent"}) for one in range(3)]
    writer.append(topic, pa.record_batch({"value": [value.encode() for value in values]}))
    store.publishes.publish(publisher, batch, writer.finish(), location=f"/checkpoints/{publisher}")


def work(store: Store, seconds: float) -> None:
    """Sells, bills and reads, for that long."""
    number, begin, batch = 100_000, time.monotonic(), 0
    committed = {group: dict(store.groups[group].committed()) for group in store.groups}
    positions = {group: {at: kept.offset for at, kept in found.items()} for group, found in committed.items()}
    while (now := time.monotonic() - begin) < seconds:
        count = int(30 + 18 * math.sin(now / 40) + 8 * math.sin(now / 11))
        for topic, found in rows(number, count, int(time.time() * 1000)).items():
            store.append(topic, found)
        number += count
        # One keeps up, one now and then, one falls back, and one has stopped.
        fraud_check = 0.02 if now % 240 < 150 else 0.9
        for group, speed in (("billing", 9.0), ("fraud-check", fraud_check), ("warehouse", 0.12), ("dashboards", 0.0)):
            for at, offset in positions[group].items():
                end = store.latest_offset(at.topic, at.partition)
                positions[group][at] = min(end, offset + round(count * speed))
            store.groups[group].commit(positions[group])
        for publisher, topic in (("spark-billing", "invoices"), ("spark-totals", "invoices")):
            publish(store, publisher, batch, topic)
        batch += 1
        time.sleep(max(0.0, 1 - (time.monotonic() - begin - now)))


def refund(server: str, seconds: float) -> None:
    """Pays back, in transactions of a client of Kafka, of which each fourth one is aborted; for that long."""
    from confluent_kafka import Producer  # noqa: PLC0415  (only this needs it)

    producer = Producer({"bootstrap.servers": server, "transactional.id": "refunds", "partitioner": "murmur2_random"})
    producer.init_transactions()
    begin, number = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        producer.begin_transaction()
        for part in ("goods", "shipping"):
            value = {"order": number, "refund": part, "amount": -(number % 7 + 1) * 4.5}
            producer.produce("payments", key="refunds", value=json.dumps(value), headers=[("source", b"desk")])
        producer.flush()
        if number % 4 == 3:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        number += 1
        time.sleep(2)


def main() -> None:
    """Makes the store and works, or pays back."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", help="the store, which is created")
    parser.add_argument("--refunds", metavar="HOST:PORT", help="the server, to pay back")
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long to write; for ever by default")
    given = parser.parse_args()
    try:
        if given.refunds:
            refund(given.refunds, given.seconds)
        elif given.path is None or Path(given.path).exists():
            parser.error("name a store that does not exist yet, or --refunds")
        else:
            with make(given.path) as store:
                work(store, given.seconds)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
