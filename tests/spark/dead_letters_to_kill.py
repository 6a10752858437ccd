"""A query in a driver of its own, to be killed: `dead_letters_to_kill.py STORE CHECKPOINT`.

It copies the numbers of the topic `events` into `copy`, and what is no JSON there goes to the topic `bad`. It ends when
all input is processed.
"""

import sys

from drivers import make_session


def main(store, checkpoint):
    spark = make_session("local[2]")
    rows = (
        spark.readStream.format("pylog")
        .options(subscribe="events", startingOffsets="earliest", maxOffsetsPerTrigger="100")
        .options(valueFormat="json", valueSchema='{"type": "object", "properties": {"n": {"type": "integer"}}}')
        .options(onBadRecord="topic", deadLetterTopic="bad")
        .load(store)
        .selectExpr("string(value.n) value", "partition")
    )
    writer = rows.writeStream.format("pylog").options(path=store, topic="copy", checkpointLocation=checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
