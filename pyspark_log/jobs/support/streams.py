"""Streaming jobs: the arguments that they share, and the run of a query from topics to a topic."""

from __future__ import annotations

import argparse
import time

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_log.jobs.support.command_line import JobParser
from pyspark_log.jobs.support.spark_tasks import reason
from pyspark_log.jobs.support.summary import show_summary


def stream_parser(description: str | None, group: str) -> JobParser:
    """The arguments of a streaming job.

    Args:
        description: the docstring of the entry point.
        group: the group under which it commits what it has read, if none is named.
    """
    parser = JobParser(description)
    parser.add_argument("store", help="the folder of the store")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="the topic that is written; made if it is missing")
    parser.add_argument(
        "--checkpoint", required=True, metavar="FOLDER",
        help="where Spark keeps how far the job has come; a job that is started again with it goes on there",
    )
    parser.add_argument(
        "--available-now", action="store_true",
        help="take what there is and end; else the job goes on until it is stopped",
    )
    parser.add_argument(
        "--trigger", metavar="TIME", default="0 seconds",
        help="how often a micro-batch begins, such as '10 seconds'; at once if not given",
    )
    parser.add_argument(
        "--start", choices=("earliest", "latest"), default="earliest", help="where a new job begins (default: earliest)"
    )
    parser.add_argument("--max-offsets", type=int, metavar="N", help="the most records of a micro-batch")
    parser.add_argument("--group", default=group, help=f"the group that commits what was read (default: {group})")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def topic_stream(spark: SparkSession, arguments: argparse.Namespace, topic: str) -> DataFrame:
    """The rows of a topic, as the arguments of `stream_parser` say."""
    options = {"subscribe": topic, "startingOffsets": arguments.start, "kafka.group.id": arguments.group}
    if arguments.max_offsets is not None:
        options["maxOffsetsPerTrigger"] = str(arguments.max_offsets)
    return spark.readStream.format("pylog").options(**options).load(arguments.store)


def run_query(rows: DataFrame, arguments: argparse.Namespace, *, output_mode: str) -> bool:
    """Writes rows to the topic, exactly once, until the job ends or is stopped; shows a summary.

    Args:
        rows: the columns `key` and `value`.
        arguments: those of `stream_parser`.
        output_mode: Spark's.
    """
    writer = rows.writeStream.format("pylog").outputMode(output_mode).option("topic", arguments.to)
    writer = writer.option("checkpointLocation", arguments.checkpoint)
    started = time.monotonic()
    try:
        if arguments.available_now:
            query = writer.trigger(availableNow=True).start(arguments.store)
        else:
            query = writer.trigger(processingTime=arguments.trigger).start(arguments.store)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            # The micro-batch that is under way is done again by the next run, and written once.
            query.stop()
    except (PySparkException, Py4JError) as error:
        raise reason(error) from error
    _show(query, time.monotonic() - started, as_json=arguments.json)
    return True


def _show(query: StreamingQuery, seconds: float, *, as_json: bool) -> None:
    last = query.lastProgress
    show_summary({"last_batch": -1 if last is None else last.batchId, "seconds": seconds}, as_json=as_json)
