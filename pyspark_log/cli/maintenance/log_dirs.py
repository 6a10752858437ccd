"""`pylog log-dirs`: the folders that a store keeps its logs in."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pyspark_log.cli.support import (
    NOTHING,
    CommandGroup,
    complete_topics,
    human_size,
    json_option,
    print_json,
    print_table,
)
from pyspark_log.cli.target import Target


@click.group("log-dirs", cls=CommandGroup)
def log_dirs() -> None:
    """List, describe, add and remove log dirs, and move partitions between them.

    Log dirs are Kafka's log.dirs: the folders, on one or more disks, that hold the partitions of a store.
    """


@log_dirs.command("list")
@json_option
@click.pass_obj
def list_folders(target: Target, as_json: bool) -> None:
    """Print each log dir: its partitions, their size, the free space, and what is wrong with it.

    If a log dir fails, only its own partitions are offline.
    """
    found = target.open_folder().describe_log_dirs()
    if as_json:
        print_json(
            [
                {
                    "path": one.path,
                    "online": not one.problem,
                    "problem": one.problem,
                    "size": one.size,
                    "free": one.free,
                    "total": one.total,
                    "partitions": [
                        {"topic": at.topic, "partition": at.partition, "size": size}
                        for at, size in one.partitions.items()
                    ],
                }
                for one in found
            ]
        )
        return
    print_table(
        ("FOLDER", "PARTITIONS", "SIZE", "FREE", "PROBLEM"),
        [
            (one.path, len(one.partitions), human_size(one.size), _format_size(one.free), one.problem or NOTHING)
            for one in found
        ],
    )


@log_dirs.command()
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@json_option
@click.pass_obj
def describe(target: Target, topic_names: Sequence[str], as_json: bool) -> None:
    """Print the partitions in each log dir with their sizes, the largest first."""
    store = target.open_folder()
    wanted = {store.describe_topic(name).name for name in topic_names}
    rows = [
        (one.path, at.topic, at.partition, size)
        for one in store.describe_log_dirs()
        for at, size in sorted(one.partitions.items(), key=lambda item: (-item[1], item[0]))
        if not wanted or at.topic in wanted
    ]
    if as_json:
        names = ("path", "topic", "partition", "size")
        print_json([dict(zip(names, (*row[:3], None if row[3] < 0 else row[3]), strict=True)) for row in rows])
    else:
        print_table(("FOLDER", "TOPIC", "PARTITION", "SIZE"), [(*row[:3], _format_size(row[3])) for row in rows])


def _format_size(size: int) -> str:
    return human_size(size) if size >= 0 else NOTHING


@log_dirs.command()
@click.argument("folder")
@click.pass_obj
def add(target: Target, folder: str) -> None:
    """Add the log dir FOLDER: an absolute path, or the name of a folder in the store.

    The folder must be missing or empty. New partitions are created in the log dir with the fewest partitions; existing
    ones stay where they are.
    """
    store = target.open_folder()
    store.add_log_dir(folder)
    click.echo(f"added {store.logs.log_dirs.at(store.logs.log_dirs.find(folder)).path}")


@log_dirs.command()
@click.argument("folder")
@click.pass_obj
def remove(target: Target, folder: str) -> None:
    """Remove the log dir FOLDER from the store's list. It must hold no partition.

    Move its partitions away with `move` first. A failed log dir without partitions is removed from the list untouched.
    """
    left = target.open_folder().remove_log_dir(folder)
    click.echo(f"removed {folder}" + (f"; it may still hold files of the store: {left}" if left else ""))


@log_dirs.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("folder")
@click.pass_obj
def move(target: Target, topic: str, partition: int, folder: str) -> None:
    """Move PARTITION of TOPIC to the log dir FOLDER while it is read and written.

    If the command is stopped, run it again. `pylog clean` deletes the old files after file.delete.delay.ms.
    """
    copied = target.open_folder().move_partition(topic, partition, folder)
    click.echo(f"{human_size(copied)} copied")
