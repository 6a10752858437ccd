"""Spark beside the server: a process with two streaming queries over one topic, until SIGTERM.

    python -m tests.campaigns.server.queries STORE BOOTSTRAP CHECKPOINTS [TOPIC]

`copied` reads the files and publishes to the topic of that name, exactly once. `through` has Spark's own Kafka
connector read from the server and write to it, at least once. A query that fails is started again.
"""

import sys

from pyspark.errors import StreamingQueryException

from tests.campaigns.clients import Ending
from tests.campaigns.queries.program import session
from tests.kafka.kafka_tools import SPARK_JARS

#: The queries, each named after the topic that it writes to.
COPIED, THROUGH = "copied", "through"


def start(spark, name, where, checkpoints, topic):
    """Starts a query by its name."""
    kind, options = where[name]
    limit = {"maxOffsetsPerTrigger": "20000"}
    rows = spark.readStream.format(kind).options(**options, **limit, subscribe=topic, startingOffsets="earliest").load()
    query = (
        rows.select("key", "value", "partition")
        .writeStream.format(kind)
        .options(**options, topic=name, checkpointLocation=f"{checkpoints}/{name}")
        .trigger(processingTime="0 seconds")
        .start()
    )
    print("started", name, flush=True)
    return query


def main(store, bootstrap, checkpoints, topic="t"):
    """Runs both until SIGTERM."""
    ended = Ending()
    spark = session("local[2,4]", "")
    for jar in SPARK_JARS.glob("*.jar"):
        spark.sql(f"ADD JAR '{jar}'")
    where = {COPIED: ("pylog", {"path": store}), THROUGH: ("kafka", {"kafka.bootstrap.servers": bootstrap})}
    running = {name: start(spark, name, where, checkpoints, topic) for name in where}
    while not ended:
        for name, query in list(running.items()):
            try:
                query.awaitTermination(0.2)
            except StreamingQueryException as error:
                print(f"failed {name}: {' '.join(str(error).split())}", flush=True)
                running[name] = start(spark, name, where, checkpoints, topic)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
