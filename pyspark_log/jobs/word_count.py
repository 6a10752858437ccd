"""Counts the words of a topic's values, exactly once, however often the job is killed and started again:

    spark-submit $(pylog jobs path word_count) STORE --from lines --to words --checkpoint FOLDER

Each micro-batch writes the words whose counts it has changed: key the word, value its count. The last record of a word
counts, so the topic that is written is best compacted (cleanup.policy=compact).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import functions as sf

from pyspark_log.jobs.support import run, session
from pyspark_log.jobs.support.streams import run_query, stream_parser, topic_stream


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""
    lines = topic_stream(session("pylog word count"), arguments, arguments.source)
    words = lines.select(sf.explode(sf.split(sf.lower(sf.expr("string(value)")), r"(?U)\W+")).alias("word"))
    counts = words.where("word <> ''").groupBy("word").count()
    return run_query(
        counts.selectExpr("word AS key", "string(count) AS value"), arguments, output_mode="update"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = stream_parser(__doc__, "word-count")
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic of the lines")
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
