"""`pylog topics`: make topics and look at them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pyspark_log.cli.output import NOTHING, json_option, print_json, print_table
from pyspark_log.cli.target import Target
from pyspark_log.storage.errors import TopicExistsError


@click.group()
def topics() -> None:
    """Create, list and describe topics."""


def _settings(_ctx: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


@topics.command()
@click.argument("topic")
@click.option(
    "--partitions", type=click.IntRange(min=1), metavar="N",
    help="How many partitions; the store's num.partitions if not given.",
)
@click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", callback=_settings,
    help="A setting of the topic, by Kafka's name; may be given several times.",
)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic alone that is there already.")
@click.pass_obj
def create(
    target: Target, topic: str, partitions: int | None, configs: dict[str, str], if_not_exists: bool
) -> None:
    """Make TOPIC; a store too, where the folder is missing or empty."""
    try:
        target.open_or_create().create_topic(topic, partitions, configs)
    except TopicExistsError:
        if not if_not_exists:
            raise


@topics.command("list")
@click.option("--internal", is_flag=True, help="Also topics that the store keeps for itself.")
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
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1)
@json_option
@click.pass_obj
def describe(target: Target, topic_names: Sequence[str], as_json: bool) -> None:
    """Print partitions, id and settings of each TOPIC; of all if none is named."""
    store = target.open()
    found = [store.describe_topic(name) for name in topic_names or store.topics()]
    if as_json:
        print_json([
            {
                "topic": topic.name, "topic_id": topic.topic_id, "partitions": topic.partitions,
                "configs": dict(topic.configs),
            }
            for topic in found
        ])
    else:
        print_table(("TOPIC", "PARTITIONS", "ID", "SETTINGS"), [
            (topic.name, topic.partitions, topic.topic_id, _joined(dict(topic.configs))) for topic in found
        ])


def _joined(configs: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(configs.items())) or NOTHING
