"""The arguments of mirror, and what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace

import click

from pyspark_log.cli.support import Pattern, json_option, named_values, with_options
from pyspark_log.jobs.mirroring.sources import ClusterSource, Reading, Source, StoreSource
from pyspark_log.jobs.mirroring.syncs import SYNCS_TOPIC
from pyspark_log.jobs.support import argument, chosen_topics, topic_options
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


#: Gives the job its arguments.
mirror_options = with_options([
    argument("store", help="The folder or URL of the store to write; created if it is missing."),
    click.option("--from-store", metavar="PATH", help="Read a store, or the log dir of a Kafka broker."),
    click.option("--from-kafka", metavar="HOST:PORT", help="Read a Kafka cluster, with Spark's Kafka connector."),
    click.option(
        "--kafka-option", multiple=True, metavar="NAME=VALUE", callback=named_values,
        help="An option of Kafka's clients, such as security.protocol=SSL; repeatable.",
    ),
    topic_options,
    click.option("--rename", default="", metavar="PREFIX", help="A prefix for the names of topics in the store."),
    click.option("--name", default="mirror", help="The mirror's name; one for each source of the same store."),
    click.option(
        "--groups", type=Pattern(), metavar="REGEX",
        help="Also copy the committed offsets of groups whose names contain a match.",
    ),
    click.option(
        "--groups-interval", type=click.IntRange(min=1), default=10, metavar="SECONDS",
        help="How often to copy them.",
    ),
    click.option(
        "--checkpoint", required=True, metavar="FOLDER",
        help="The folder of Spark's checkpoint; a job started with it again continues where it stopped.",
    ),
    click.option(
        "--available-now", is_flag=True, help="Process all that is available and end; otherwise run until stopped."
    ),
    click.option(
        "--trigger", metavar="TIME", default="0 seconds",
        help="The interval between micro-batches, such as '10 seconds'.",
    ),
    click.option(
        "--start", type=click.Choice(["earliest", "latest"]), default="earliest",
        help="Where a new job starts.",
    ),
    click.option("--max-offsets", type=click.IntRange(min=1), metavar="N", help="The most records per micro-batch."),
    click.option("--skip-lost", is_flag=True, help="Continue even if records were deleted before they were mirrored."),
    json_option,
])  # fmt: skip


def plan_of(arguments: SimpleNamespace) -> MirrorPlan:
    """What the arguments ask for.

    Raises:
        click.UsageError: they contradict each other, or one has no meaning.
        StoreError: there is no store, or it cannot be written.
    """
    if not arguments.name:
        raise click.UsageError("--name: a mirror needs a name")
    if (arguments.from_store is None) == (arguments.from_kafka is None):
        raise click.UsageError("which source? Give --from-store or --from-kafka")
    topics = chosen_topics(arguments)
    if isinstance(topics, list) and (taken := sorted({*INTERNAL_TOPICS, SYNCS_TOPIC} & set(topics))):
        raise click.UsageError(f"--topics: {taken[0]} is not mirrored")
    reading = Reading(
        topics,
        arguments.start,
        arguments.max_offsets,
        arguments.skip_lost,
        arguments.name,
        {name.removeprefix("kafka."): value for name, value in arguments.kafka_option.items()},
    )
    if arguments.from_kafka is None and reading.kafka_options:
        raise click.UsageError("--kafka-option is for --from-kafka")
    source = None if arguments.from_store is None else Store.open(arguments.from_store)
    target = Store.open_or_create(arguments.store)
    target.publishes.check_writable()
    if source is not None and source.cluster_id == target.cluster_id:
        raise click.UsageError(f"{target.path} is also the source: name another store")
    return MirrorPlan(
        arguments.name,
        StoreSource(source, reading) if source else ClusterSource(arguments.from_kafka, reading),
        target,
        arguments.rename,
        arguments.checkpoint,
        arguments.available_now,
        arguments.trigger,
        arguments.groups,
        arguments.groups_interval,
    )
