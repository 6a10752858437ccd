"""Streaming jobs: the arguments that they share, and the run of a query from topics to a topic."""

from __future__ import annotations

import argparse
import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_log.errors import PublisherFencedError
from pyspark_log.jobs.support.command_line import JobParser, positive
from pyspark_log.jobs.support.spark_tasks import JobError, reason
from pyspark_log.jobs.support.summary import show_summary
from pyspark_log.spark import publish_each


def stream_parser(description: str | None, group: str) -> JobParser:
    """The arguments of a streaming job.

    Args:
        description: the docstring of the entry point.
        group: the group under which it commits what it has read, if none is named.
    """
    parser = JobParser(description)
    parser.add_argument("store", help="the folder of the store")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="the topic to write; created if it is missing")
    add_query_arguments(parser)
    parser.add_argument(
        "--group", default=group,
        help=f"the group that commits what was read; each job, with its checkpoint, needs its own (default: {group})",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser


def add_query_arguments(parser: JobParser) -> None:
    """Adds the arguments about the query itself: where it begins, how it goes on, and when it ends."""
    parser.add_argument(
        "--checkpoint", required=True, metavar="FOLDER",
        help="the folder of Spark's checkpoint; a job started with it again continues where it stopped",
    )  # fmt: skip
    parser.add_argument(
        "--available-now", action="store_true",
        help="process all that is available and end; otherwise run until stopped",
    )  # fmt: skip
    parser.add_argument(
        "--trigger", metavar="TIME", default="0 seconds",
        help="the interval between micro-batches, such as '10 seconds'; by default none",
    )  # fmt: skip
    parser.add_argument(
        "--start", choices=("earliest", "latest"), default="earliest", help="where a new job starts (%(default)s)"
    )
    parser.add_argument("--max-offsets", type=positive, metavar="N", help="the most records per micro-batch")


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
    writer = rows.writeStream.outputMode(output_mode).option("checkpointLocation", arguments.checkpoint)
    if output_mode == "update":
        # Spark has no update mode for a sink in Python.
        each = publish_each(arguments.store, arguments.group, lambda batch, out: out.write(batch, topic=arguments.to))
        writer = writer.foreachBatch(each)
    else:
        writer = writer.format("pylog").options(path=arguments.store, topic=arguments.to)
    started = time.monotonic()
    query = start_query(writer, available_now=arguments.available_now, trigger=arguments.trigger)
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        found = reason(error)
        if found.condition == PublisherFencedError.condition:
            raise JobError(
                f"another job has the group {arguments.group!r}: give this one a group of its own with --group; or, if "
                f"it is the same job, start it with the checkpoint that it had ({found.message})",
                found.condition,
            ) from error
        raise
    except KeyboardInterrupt:
        # The micro-batch that is under way is done again by the next run, and written once.
        query.stop()
    _show(query, time.monotonic() - started, as_json=arguments.json)
    return True


def start_query(writer: DataStreamWriter, *, available_now: bool, trigger: str) -> StreamingQuery:
    """Starts a query that ends when it has taken what there is, or begins a micro-batch every so often."""
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def _show(query: StreamingQuery, seconds: float, *, as_json: bool) -> None:
    last = query.lastProgress
    show_summary({"last_batch": -1 if last is None else last.batchId, "seconds": seconds}, as_json=as_json)
