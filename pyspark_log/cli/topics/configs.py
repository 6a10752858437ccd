"""`pylog configs`: the configs that topics and stores can have, and the options of Spark's connector."""

from __future__ import annotations

from collections.abc import Iterable

import click

from pyspark_log.cli.support import json_option, print_json, print_table
from pyspark_log.config import STORE_CONFIGS, TOPIC_CONFIGS, ConfigKey
from pyspark_log.connector_options import READ_OPTIONS, WRITE_OPTIONS

#: Name, default, unit and meaning.
_Row = tuple[str, str, str, str]


def _rows(keys: Iterable[ConfigKey], *, of_store: bool) -> list[_Row]:
    return [(key.store_name if of_store else key.name, key.default, key.unit, key.meaning) for key in keys]


# Of each kind the parts of its file: what is above a part, and what is in it.
_KINDS: dict[str, list[tuple[str, list[_Row]]]] = {
    "topic": [("""\
# Settings of a topic, with Kafka's names and defaults. Give one when you create the topic:
#     pylog topics create NAME --config retention.ms=7d
# A topic without a config takes the store's (store.properties), or else the default below.
""", _rows(TOPIC_CONFIGS.values(), of_store=False))],
    "store": [("""\
# Settings of a store, under Kafka's broker names and with Kafka's defaults. Give them when you create the store:
#     pyspark_log.Store.create(PATH, settings={"num.partitions": "6"})
# They are kept in STORE/store.json and apply to every topic without a config of its own (topic.properties).

# --- of the store itself
""", _rows(STORE_CONFIGS.values(), of_store=True)), ("""
# --- defaults for its topics
""", _rows(TOPIC_CONFIGS.values(), of_store=True))],
    "connector": [("""\
# Options of format("pylog") in Spark, with the names and defaults of Spark's Kafka connector; an empty one has no
# default. Set one in the code: .option("maxOffsetsPerTrigger", "100000"). docs/reference/spark.md has each in full.

# --- of reads
""", [*READ_OPTIONS.values()]), ("""
# --- of writes
""", [*WRITE_OPTIONS.values()])],
}  # fmt: skip


@click.command()
@click.argument("kind", type=click.Choice([*_KINDS]), default="topic", metavar="[KIND]")
@click.option("--document", is_flag=True, help="Print a commented properties file, as in conf/.")
@json_option
def configs(kind: str, document: bool, as_json: bool) -> None:
    """List the configs of topics and stores, and the options of Spark's connector.

    KIND is topic (the default), store or connector. Each is listed with its default, unit and meaning.
    """
    parts = _KINDS[kind]
    rows = [row for _, part in parts for row in part]
    headings = ("name", "default", "unit", "meaning")
    if document:
        click.echo("".join(above + "".join(map(_commented, part)) for above, part in parts), nl=False)
    elif as_json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
    else:
        print_table([heading.upper() for heading in headings], rows)


def _commented(row: _Row) -> str:
    """A setting below a comment with its meaning and unit."""
    name, default, unit, meaning = row
    return f"\n# {meaning[0].upper()}{meaning[1:]}{f' [{unit}]' if unit else ''}\n{name}={default}\n"
