"""The process that is killed: a driver with two streaming queries over one source topic.

    queries.py STORE CHECKPOINTS SUFFIX MASTER TRIGGER [JVM-OPTIONS]

The queries write to the topics `stateless` + SUFFIX and `chained` + SUFFIX. With TRIGGER "forever" a query that fails
is started again in the same process, but once a query learns that a newer run has its place, the process ends; with
"once" it ends when all that the source has now is done.

It prints, a line each: "application ID", "started QUERY", "failed QUERY: why", "replaced QUERY: why", and at last
"finished".
"""

import hashlib
import os
import sys
import time

import pandas as pd
import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.quick_java import QUICK_START

# It is in a package of its own since 4.1.
_CHECKPOINTS = "" if pyspark.__version__ < "4.1" else "checkpointing."
FILE_SYSTEM_CHECKPOINTS = f"org.apache.spark.sql.execution.streaming.{_CHECKPOINTS}FileSystemBasedCheckpointFileManager"
#: Small and quick to start: it lives for seconds.
JVM_OPTIONS = " ".join(QUICK_START)
#: Settings of each session.
OF_TESTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Queries of a few rows: to compile them takes longer than to run them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A Python process that Spark starts must call back within this time, on a machine that has much else to do.
    "spark.python.authenticate.socketTimeout": "120s",
}
#: What the error of a query says whose place another run has taken, by the sink or by Spark itself.
REPLACED = ("PYLOG_PUBLISHER_FENCED", "CONCURRENT_QUERY", "Multiple streaming jobs detected")

# Spark starts `python3` from the PATH otherwise, which need not have this package.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def stateless(rows):
    """Each record as it is, with one more character."""
    return rows.selectExpr("key", "concat(cast(value as string), '!') AS value")


def chained(rows):
    """Each record's number, how many its key has had, and a digest over all of them: what is lost, doubled or
    out of order once shows in all that follows."""
    rows = rows.selectExpr("cast(key as string) key", "offset", "cast(value as string) value")
    return rows.groupBy("key").applyInPandasWithState(
        chain, "key string, value string", "count long, digest string", "append", "NoTimeout"
    )


def chain(key, frames, state):
    """The records of a key in a micro-batch, which may come in any order."""
    count, digest = state.get if state.exists else (0, "")
    values = []
    for value in pd.concat(list(frames)).sort_values("offset")["value"]:
        count, digest = count + 1, hashlib.sha256((digest + value).encode()).hexdigest()[:16]
        values.append(f"{value.split(' ')[0]} {count} {digest}")
    state.update((count, digest))
    yield pd.DataFrame({"key": key[0], "value": values})


QUERIES = {"stateless": stateless, "chained": chained}


def start(spark, name, store, checkpoints, suffix, trigger):
    rows = (
        spark.readStream.format("pylog")
        .options(subscribe="events", startingOffsets="earliest", maxOffsetsPerTrigger="4000")
        .load(store)
    )
    query = (
        QUERIES[name](rows)
        .writeStream.format("pylog")
        .options(topic=name + suffix, checkpointLocation=f"{checkpoints}/{name}")
        .trigger(**({"availableNow": True} if trigger == "once" else {"processingTime": "0 seconds"}))
        .start(store)
    )
    print("started", name, flush=True)
    return query


def session(master, jvm_options="", **settings):
    """The session of a driver, which is small and quick to start."""
    settings = OF_TESTS | {
        "spark.driver.memory": "600m",
        "spark.driver.extraJavaOptions": f"{JVM_OPTIONS} {jvm_options}",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.cores.max": "2",
        "spark.sql.streaming.checkpointFileManagerClass": FILE_SYSTEM_CHECKPOINTS,
    } | settings  # fmt: skip
    return SparkSession.builder.master(master).config(map=settings).getOrCreate()


def main(store, checkpoints, suffix, master, trigger, jvm_options=""):
    spark = session(master, jvm_options)
    print("application", spark.sparkContext.applicationId, flush=True)
    running = {name: start(spark, name, store, checkpoints, suffix, trigger) for name in QUERIES}
    while running:
        for name, query in list(running.items()):
            try:
                if query.awaitTermination(0.05):
                    del running[name]
            except StreamingQueryException as error:
                text = " ".join(str(error).split())
                if any(sign in text for sign in REPLACED):
                    print(f"replaced {name}: {text}", flush=True)
                    sys.exit(3)
                print(f"failed {name}: {text}", flush=True)
                running[name] = start(spark, name, store, checkpoints, suffix, trigger)
        time.sleep(0.05)
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
