"""First steps, without Spark: a store, a topic, records in and out, and a group that remembers how far it has read.

python examples/first_steps.py
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta

from pyspark_log import Store, TopicPartition

ORDERS = [
    {"key": "anna", "value": "3 apples"},
    {"key": "carla", "value": "1 pear"},
    {"key": "anna", "value": "2 plums"},
]


def main(folder: str) -> None:
    # A store is a folder. Another process may open it at the same time, to read and to write.
    store = Store.create(f"{folder}/store")
    store.create_topic("orders", partitions=2)
    orders = store.topic("orders")

    # Records go to partitions by their keys, as Kafka's clients do it: all of anna's are in one, in order.
    for result in orders.append(ORDERS):
        print(f"appended to partition {result.partition}: offsets {result.base_offset} to {result.next_offset - 1}")

    # Everything as an Arrow table or a pandas DataFrame; to_reader() streams it to DuckDB, Polars or a Parquet writer.
    print(orders.read().to_pandas()[["partition", "offset", "key", "value"]].to_string(index=False))

    # Of one partition from an offset on, or of all from a time on.
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    print("of the last hour:", orders.read(hour_ago).to_table().num_rows)

    # A group's committed offsets say where its reader resumes after a restart.
    billing = store.groups["billing"]
    billing.commit({TopicPartition("orders", number): end for number, end in orders.latest_offsets().items()})
    orders.append([{"key": "carla", "value": "5 cherries"}])
    start = {at.partition: kept.offset for at, kept in billing.committed().items()}
    print("new for billing:", orders.read(start).to_table()["value"].to_pylist())

    # `follow` waits for more, as a consumer of Kafka's does; here for a tenth of a second.
    for batch in orders.follow(start, timeout=0.1):
        print("followed:", batch["value"].to_pylist())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
