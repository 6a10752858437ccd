"""`pylog export-kafka`: a topic as a folder that a Kafka broker takes over."""

from __future__ import annotations

import dataclasses

import click

from pyspark_log.cli.support import ProgressBar, complete_topics, human_size, json_option, print_json, print_table
from pyspark_log.cli.target import Target
from pyspark_log.storage.maintenance.transfer import export_kafka as export_topic

_INSTEAD = "Copy it into a folder with `pylog backup --into FOLDER`, and export from there."


@click.command("export-kafka")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("folder", type=click.Path())
@click.option(
    "--topic-id",
    required=True,
    metavar="ID",
    help="The topic's id in the Kafka cluster; kafka-topics.sh --describe prints it.",
)
@json_option
@click.pass_obj
def export_kafka(target: Target, topic: str, folder: str, topic_id: str, as_json: bool) -> None:
    """Copy TOPIC into a new FOLDER that a Kafka broker can take over.

    Offsets, times, keys and headers do not change. Every record is checked; if one is damaged, nothing is exported.
    Other processes may write to the topic meanwhile. docs/guides/kafka.md says what to do with the folder.
    """
    with ProgressBar(f"export {topic}") as progress:
        found = export_topic(target.open_folder(_INSTEAD), topic, folder, topic_id, progress=progress)
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    print_table(
        ("PARTITION", "START", "END", "SEGMENTS", "SIZE"),
        [(one.partition, one.log_start, one.log_end, one.segments, human_size(one.bytes)) for one in found],
    )
    click.echo(f"exported {len(found)} partitions, {human_size(sum(one.bytes for one in found))}, into {folder}")
