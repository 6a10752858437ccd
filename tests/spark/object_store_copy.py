"""A query in a driver of its own, to be killed: `object_store_copy.py STORE CHECKPOINT`.

It copies the topic `events` into `copy`, in the order of each partition, and commits what it has read with its output.
It ends when all input is processed.
"""

import sys

from drivers import copy_events, make_session


def main(store, checkpoint):
    spark = make_session("local[2]")
    query = copy_events(spark, store, checkpoint, "copy", publishOffsets="true")
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
