"""The arguments of mirror, and what they mean."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from pyspark_log.jobs.mirroring.sources import ClusterSource, Reading, Source, StoreSource
from pyspark_log.jobs.mirroring.syncs import SYNCS_TOPIC
from pyspark_log.jobs.support import CallError, JobParser, named_values, names_in, positive
from pyspark_log.storage.catalog import INTERNAL_TOPICS
from pyspark_log.storage.store import Store


@dataclass(frozen=True)
class MirrorPlan:
    """What is to be mirrored.

    Attributes:
        name: the mirror's name: its output is published, and its syncs are kept, under it.
        source: where it reads.
        target: the store that it writes to.
        prefix: what the names of topics get in the target.
        checkpoint: the folder of the query.
        available_now: whether it ends once all available records are mirrored.
        trigger: how often a micro-batch begins.
        groups: whose offsets are copied too; None: of no group.
        groups_interval: how often their offsets are read, in seconds.
    """

    name: str
    source: Source
    target: Store
    prefix: str
    checkpoint: str
    available_now: bool
    trigger: str
    groups: re.Pattern[str] | None
    groups_interval: int


def add_arguments(parser: JobParser) -> None:
    """Adds the arguments of the job."""
    parser.add_argument("store", help="the folder or URL of the store to write; created if it is missing")
    sources = parser.add_mutually_exclusive_group(required=True)
    sources.add_argument("--from-store", metavar="PATH", help="read a store, or the log dir of a Kafka broker")
    sources.add_argument("--from-kafka", metavar="HOST:PORT", help="read a Kafka cluster, with Spark's Kafka connector")
    parser.add_argument(
        "--kafka-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of Kafka's clients, such as security.protocol=SSL; repeatable",
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--topics", metavar="A,B", help="the topics; give --topics or --pattern")
    chosen.add_argument(
        "--pattern", metavar="REGEX", help="all topics whose names contain a match, including later ones"
    )
    parser.add_argument("--rename", default="", metavar="PREFIX", help="a prefix for the names of topics in the store")
    parser.add_argument(
        "--name", default="mirror", help="the mirror's name; one for each source of the same store (%(default)s)"
    )
    parser.add_argument(
        "--groups", metavar="REGEX", help="also copy the committed offsets of groups whose names contain a match"
    )
    parser.add_argument(
        "--groups-interval", type=positive, default=10, metavar="SECONDS", help="how often to copy them (%(default)s)"
    )
    _add_query_arguments(parser)
    parser.add_argument(
        "--skip-lost", action="store_true", help="continue even if records were deleted before they were mirrored"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def _add_query_arguments(parser: JobParser) -> None:
    """Adds the arguments about the query itself: where it starts, how it reads on, and when it ends."""
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="FOLDER",
        help="the folder of Spark's checkpoint; a job started with it again continues where it stopped",
    )
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="process all that is available and end; otherwise run until stopped",
    )
    parser.add_argument(
        "--trigger",
        metavar="TIME",
        default="0 seconds",
        help="the interval between micro-batches, such as '10 seconds'; by default none",
    )
    parser.add_argument(
        "--start", choices=("earliest", "latest"), default="earliest", help="where a new job starts (%(default)s)"
    )
    parser.add_argument("--max-offsets", type=positive, metavar="N", help="the most records per micro-batch")


def plan_of(arguments: argparse.Namespace) -> MirrorPlan:
    """What the arguments ask for.

    Raises:
        CallError: they contradict each other, or one has no meaning.
        StoreError: there is no store, or it cannot be written.
    """
    if not arguments.name:
        raise CallError("--name: a mirror needs a name")
    kafka_options = named_values("--kafka-option", arguments.kafka_option)
    reading = Reading(
        _topics(arguments),
        _pattern("--pattern", arguments.pattern),
        arguments.start,
        arguments.max_offsets,
        arguments.skip_lost,
        arguments.name,
        {name.removeprefix("kafka."): value for name, value in kafka_options.items()},
    )
    groups = None if arguments.groups is None else re.compile(_pattern("--groups", arguments.groups) or "")
    if arguments.from_kafka is None and reading.kafka_options:
        raise CallError("--kafka-option is for --from-kafka")
    source = None if arguments.from_store is None else Store.open(arguments.from_store)
    target = Store.open_or_create(arguments.store)
    target.publishes.check_writable()
    if source is not None and source.cluster_id == target.cluster_id:
        raise CallError(f"{target.path} is also the source: name another store")
    return MirrorPlan(
        arguments.name,
        StoreSource(source, reading) if source else ClusterSource(arguments.from_kafka, reading),
        target,
        arguments.rename,
        arguments.checkpoint,
        arguments.available_now,
        arguments.trigger,
        groups,
        arguments.groups_interval,
    )


def _topics(arguments: argparse.Namespace) -> str | None:
    if arguments.topics is None:
        if not arguments.pattern:
            raise CallError("which topics? Give --topics or --pattern")
        return None
    names = names_in(arguments.topics)
    if not names:
        raise CallError("which topics? Give --topics or --pattern")
    if taken := sorted({*INTERNAL_TOPICS, SYNCS_TOPIC} & set(names)):
        raise CallError(f"--topics: {taken[0]} is not mirrored")
    return ",".join(names)


def _pattern(option: str, pattern: str | None) -> str | None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise CallError(f"{option}: {pattern!r} is not a regular expression: {error}") from None
    return pattern
