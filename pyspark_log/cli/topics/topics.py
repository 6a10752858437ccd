"""`pylog topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from pyspark_log.cli.support import (
    NOTHING,
    CommandGroup,
    ProgressBar,
    complete_topics,
    confirm,
    json_option,
    named_values,
    plural,
    print_json,
    print_table,
    yes_option,
)
from pyspark_log.cli.target import Target
from pyspark_log.cli.topics.partitions import print_partitions
from pyspark_log.config import TOPIC_CONFIGS, ConfigKey, check_topic_configs
from pyspark_log.errors import InvalidConfigError, TopicExistsError, shortened
from pyspark_log.storage.catalog import check_name
from pyspark_log.types import LATEST
from pyspark_log.units import SIZES, TIMES_MINUTES, TIMES_MS, with_unit

#: What can follow the number of a config, by the unit of the config.
_UNITS = {"ms": TIMES_MS, "minutes": TIMES_MINUTES, "bytes": SIZES, "bytes/s": SIZES}
#: From so many on, the deletion of a topic takes seconds.
_MANY_PARTITIONS = 1000
# A deletion that takes longer shows how far it is, in seconds.
_PATIENCE = 3
_PLAIN = re.compile(r"-?[0-9]+")


@click.group(cls=CommandGroup)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


def _configs(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    found = named_values(ctx, param, given)
    known = {name: _in_own_unit(TOPIC_CONFIGS[name], value) for name, value in found.items() if name in TOPIC_CONFIGS}
    check_topic_configs(found | known)  # before a store is made
    return known


def _in_own_unit(key: ConfigKey, text: str) -> str:
    """The value of a config in the config's own unit: "604800000" for "7d"; any other text as it is."""
    if key.unit not in _UNITS or _PLAIN.fullmatch(text):
        return text
    try:
        return str(with_unit(text, _UNITS[key.unit]))
    except ValueError as error:
        raise InvalidConfigError(f"{key.name} = {shortened(text)!r}: {error}") from None


config_option = click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_configs,
    help="A config of the topic, under Kafka's name; repeatable. Times and sizes can be written as 7d or 1GiB.",
)


@topics.command()
@click.argument("topic")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of partitions. [default: the store's num.partitions]",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists already.")
@click.pass_obj
def create(target: Target, topic: str, partitions: int | None, configs: dict[str, str], if_not_exists: bool) -> None:
    """Create TOPIC, and the store if its folder is missing or empty."""
    check_name(topic)
    try:
        made = target.open_or_create().create_topic(topic, partitions, configs)
    except TopicExistsError:
        if not if_not_exists:
            raise
        click.echo(f"Topic {topic} exists already; nothing was changed.")
    else:
        click.echo(f"Created topic {topic} with {plural(made.partitions, 'partition')}.")


@topics.command("list")
@click.option("--internal", is_flag=True, help="Include the internal topics of the store or of a Kafka broker.")
@json_option
@click.pass_obj
def list_topics(target: Target, internal: bool, as_json: bool) -> None:
    """Print the names of all topics."""
    names = target.open().topics(internal=internal)
    if as_json:
        print_json(names)
    for name in [] if as_json else names:
        click.echo(name)


@topics.command()
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@click.option(
    "--partitions",
    "each",
    is_flag=True,
    help="Print a line per partition instead: leader epoch, log start and end, segments, size, folder, state.",
)
@json_option
@click.pass_obj
def describe(target: Target, topic_names: Sequence[str], each: bool, as_json: bool) -> None:
    """Print the partitions, id and configs of each TOPIC, or of all topics."""
    store = target.open()
    found = [store.describe_topic(name) for name in topic_names or store.topics()]
    if each:
        print_partitions(store, found, as_json)
        return
    if as_json:
        print_json(
            [
                {
                    "topic": topic.name,
                    "topic_id": topic.topic_id,
                    "partitions": topic.partitions,
                    "configs": dict(topic.configs),
                }
                for topic in found
            ]
        )
    else:
        print_table(
            ("TOPIC", "PARTITIONS", "ID", "SETTINGS"),
            [(topic.name, topic.partitions, topic.topic_id, _joined(dict(topic.configs))) for topic in found],
        )


def _joined(configs: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(configs.items())) or NOTHING


@topics.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="The new number of partitions, in all. It can only grow.",
)
@config_option
@click.option(
    "--delete-config",
    "deleted",
    multiple=True,
    metavar="NAME",
    help="Reset this config to the store's value; repeatable.",
)
@click.pass_obj
def alter(target: Target, topic: str, partitions: int | None, configs: dict[str, str], deleted: Sequence[str]) -> None:
    """Change the configs of TOPIC, or add partitions."""
    if not (partitions or configs or deleted):
        raise click.UsageError("Nothing to alter. Give --partitions, --config or --delete-config.")
    store = target.open()
    if configs or deleted:
        store.alter_configs(topic, configs, deleted)
        changed = [f"{name}={value}" for name, value in configs.items()]
        changed += [f"{name} reset to the store's value" for name in deleted]
        click.echo(f"Altered topic {topic}: {', '.join(changed)}.")
    if partitions:
        store.add_partitions(topic, partitions)
        click.echo(f"Altered topic {topic}: it now has {plural(partitions, 'partition')}.")


@topics.command()
@click.argument("topic_names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@yes_option
@click.pass_obj
def delete(target: Target, topic_names: Sequence[str], yes: bool) -> None:
    """Delete each TOPIC with all its records."""
    store = target.open()
    found = [store.describe_topic(name) for name in dict.fromkeys(topic_names)]
    listed = ", ".join(f"{one.name} ({plural(one.partitions, 'partition')})" for one in found)
    confirm(f"Delete {listed}, with all records?", yes)
    for one in found:
        if one.partitions >= _MANY_PARTITIONS:
            click.echo(f"Deleting the files of {plural(one.partitions, 'partition')} of {one.name}.", err=True)
        with ProgressBar(f"delete {one.name}", of="partitions", after=_PATIENCE) as progress:
            store.delete_topic(one.name, progress)
        click.echo(f"Deleted topic {one.name}.")


@topics.command("delete-records")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partition", type=click.IntRange(min=0), required=True, metavar="N", help="The partition.")
@click.option(
    "--before",
    type=click.IntRange(min=LATEST),
    required=True,
    metavar="OFFSET",
    help="The first offset to keep; -1 deletes all records.",
)
@yes_option
@click.pass_obj
def delete_records(target: Target, topic: str, partition: int, before: int, yes: bool) -> None:
    """Delete the oldest records of a partition of TOPIC, and print the first offset that is left."""
    store = target.open()
    start = store.earliest_offset(topic, partition)
    end = f"to {before - 1}" if before >= 0 else "on"
    confirm(f"Delete the records of {topic}-{partition} from offset {start} {end}?", yes)
    click.echo(f"{topic}-{partition} begins at offset {store.delete_records(topic, partition, before)}.")
