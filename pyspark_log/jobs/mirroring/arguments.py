"""The arguments of mirror, and what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import click

from pyspark_log.cli.support import source_of, with_options
from pyspark_log.cli.transfer.mirror_options import mirror_options
from pyspark_log.jobs.mirroring.sources import ClusterSource, Reading, Source, StoreSource
from pyspark_log.jobs.support import argument
from pyspark_log.replication.login import read_client_properties
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
        until_now: whether it ends once all available records are mirrored.
        trigger: how often a micro-batch begins.
        groups: whose offsets are copied too; None: of no group.
        groups_interval: how often their offsets are read, in seconds.
    """

    name: str
    source: Source
    target: Store
    prefix: str
    checkpoint: str
    until_now: bool
    trigger: str
    groups: re.Pattern[str] | None
    groups_interval: int


#: Gives the job its arguments.
job_options = with_options([
    argument("store", help="The folder or URL of the store to write; created if it is missing."),
    argument(
        "source",
        help="kafka://HOST:PORT for a Kafka cluster; else the folder or URL of a store, or of a broker's log dirs.",
    ),
    mirror_options,
    click.option("--rename", default="", metavar="PREFIX", help="A prefix for the names of topics in the store."),
    click.option("--name", default="mirror", help="The mirror's name; one for each source of the same store."),
    click.option(
        "--groups-interval", type=click.IntRange(min=1), default=10, metavar="SECONDS",
        help="How often to copy offsets of groups.",
    ),
    click.option(
        "--checkpoint", required=True, metavar="FOLDER",
        help="The folder of Spark's checkpoint; a job started with it again continues where it stopped.",
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
])  # fmt: skip


def plan_of(arguments: SimpleNamespace) -> MirrorPlan:
    """What the arguments ask for.

    Raises:
        click.UsageError: one has no meaning.
        StoreError: there is no store, or it cannot be written.
    """
    if not arguments.name:
        raise click.UsageError("--name: a mirror needs a name")
    reading = Reading(arguments.topics, arguments.start, arguments.max_offsets, arguments.skip_lost, arguments.name)
    properties = {} if arguments.client_config is None else read_client_properties(arguments.client_config)
    source = source_of(
        arguments.source,
        cluster=partial(ClusterSource, reading=reading, properties=properties),
        store=partial(StoreSource, reading=reading),
    )
    target = Store.open_or_create(arguments.store)
    target.publishes.check_writable()
    if source.cluster_id == target.cluster_id:
        raise click.UsageError(f"{target.path} is also the source: name another store")
    return MirrorPlan(
        arguments.name,
        source,
        target,
        arguments.rename,
        arguments.checkpoint,
        arguments.until_now,
        arguments.trigger,
        arguments.groups,
        arguments.groups_interval,
    )
