"""`pylog configs`: the configs that topics and stores can have."""

from __future__ import annotations

from collections.abc import Iterable

import click

from pyspark_log.cli.support import json_option, print_json, print_table
from pyspark_log.config import STORE_CONFIGS, TOPIC_CONFIGS, ConfigKey

_OF_TOPICS = """\
# Settings of a topic, with Kafka's names and defaults. Give one when the topic is made:
#     pylog topics create NAME --config retention.ms=7d
# What a topic does not set, its store may (store.properties); else the default below counts.
"""
_OF_STORES = """\
# Settings of a store, under Kafka's broker names and with Kafka's defaults. Give them when the store is made:
#     pyspark_log.Store.create(PATH, settings={"num.partitions": "6"})
# They are kept in STORE/store.json and count for every topic that does not say otherwise (topic.properties).

# --- of the store itself
"""
_DEFAULTS = """
# --- defaults for its topics
"""


@click.command()
@click.argument("kind", type=click.Choice(["topic", "store"]), default="topic")
@click.option("--document", is_flag=True, help="Print a file of them, with comments: what conf/ has.")
@json_option
def configs(kind: str, document: bool, as_json: bool) -> None:
    """Print the configs that a topic or a store can have, with their defaults, units and meaning."""
    of_store = kind == "store"
    if document:
        if of_store:
            text = _OF_STORES + _lines(STORE_CONFIGS.values()) + _DEFAULTS + _lines(TOPIC_CONFIGS.values())
        else:
            text = _OF_TOPICS + _lines(TOPIC_CONFIGS.values(), topic=True)
        click.echo(text, nl=False)
        return
    keys = [*STORE_CONFIGS.values(), *TOPIC_CONFIGS.values()] if of_store else list(TOPIC_CONFIGS.values())
    rows = [(key.store_name if of_store else key.name, key.default, key.unit, key.meaning) for key in keys]
    headings = ("name", "default", "unit", "meaning")
    if as_json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
    else:
        print_table([heading.upper() for heading in headings], rows)


def _lines(keys: Iterable[ConfigKey], *, topic: bool = False) -> str:
    """Each config below a comment with its meaning and unit."""
    return "".join(
        f"\n# {key.meaning[0].upper()}{key.meaning[1:]}{f' [{key.unit}]' if key.unit else ''}\n"
        f"{key.name if topic else key.store_name}={key.default}\n"
        for key in keys
    )
