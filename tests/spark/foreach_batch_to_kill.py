"""A query with foreachBatch in a driver of its own, to be killed: `foreach_batch_to_kill.py STORE CHECKPOINT WHERE`.

WHERE is "between 1" (in micro-batch 1 it stops between two writes), "after 2" (after the block) or "nowhere". It prints
WHERE when it is there, and "finished" when all input is processed.
"""

import sys
import time

from pyspark_log import Publish
from tests.campaigns.queries.program import session


def main(store, checkpoint, where):
    spark = session("local[2]")
    spark.sparkContext.setLogLevel("OFF")

    def stop_at(place):
        if place == where:
            print(place, flush=True)
            time.sleep(600)

    def split(batch, batch_id):
        with Publish(store, "split", batch_id) as out:
            out.write(batch.selectExpr("key", "value"), topic="all")
            stop_at(f"between {batch_id}")
            out.write(batch.groupBy("key").count().selectExpr("key", "string(count) value"), topic="counts")
        stop_at(f"after {batch_id}")

    rows = (
        spark.readStream.format("pylog")
        .options(subscribe="events", startingOffsets="earliest", maxOffsetsPerTrigger="60")
        .load(store)
    )
    writer = rows.writeStream.foreachBatch(split).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
