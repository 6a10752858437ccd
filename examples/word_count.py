"""Counts the words of a topic's values, exactly once, however often the program is killed and started again.

    python examples/word_count.py STORE --from lines --to words --checkpoint FOLDER

It takes what is new since the last run, and ends. Each micro-batch writes the words whose counts it has changed: key
the word, value its count. The last record of a word counts, so the topic that is written is best compacted
(cleanup.policy=compact).
"""

from __future__ import annotations

import argparse

from pyspark.sql import functions as sf
from spark_session import start_spark

from pyspark_log.spark import read_stream, write_stream


def main(given: argparse.Namespace) -> None:
    spark = start_spark("word-count")
    lines = read_stream(
        spark, given.store, given.source, start="earliest", group="word-count", max_offsets=given.max_offsets
    )
    words = lines.select(sf.explode(sf.split(sf.lower(sf.expr("string(value)")), r"(?U)\W+")).alias("word"))
    counts = words.where("word <> ''").groupBy("word").count()
    rows = counts.selectExpr("word AS key", "string(count) AS value")
    write_stream(
        rows, given.store, given.to, checkpoint=given.checkpoint, mode="update", available_now=True
    ).awaitTermination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="the folder of the store")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic of the lines")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="the topic to write")
    parser.add_argument("--checkpoint", required=True, metavar="FOLDER", help="the folder of Spark's checkpoint")
    parser.add_argument("--max-offsets", type=int, metavar="N", help="the most records per micro-batch")
    main(parser.parse_args())
