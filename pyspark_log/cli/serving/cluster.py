"""`pylog cluster`: a cluster for trying, on one machine: Kafka's controllers and nodes of ours."""

from __future__ import annotations

import shlex
import signal
from types import FrameType

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import CommandGroup, print_table

_folder = click.argument("folder", metavar="FOLDER")


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Make and run a cluster on this machine: three controllers of Kafka, and nodes of pylog.

    It is for trying: it listens on 127.0.0.1 alone, and all its disks are one.
    """


@cluster.command()
@_folder
@click.option(
    "--kafka",
    "kafka_folder",
    metavar="DIR",
    envvar="KAFKA_HOME",
    required=True,
    help="A distribution of Kafka 4, or the folder of its jars (or set KAFKA_HOME). It is used where it is.",
)
@click.option("--nodes", type=click.IntRange(1, 99), default=3, show_default=True, help="How many nodes it has.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=9092,
    show_default=True,
    help="That of the first node; the other nodes, and then the controllers, have the ports after it.",
)
def init(folder: str, kafka_folder: str, nodes: int, port: int) -> None:
    """Make a cluster in FOLDER, which is missing or empty."""
    with interrupts.fatal():
        from pyspark_log.local_cluster import find_kafka, make_cluster  # noqa: PLC0415  (only this command needs it)
    made = make_cluster(folder, find_kafka(kafka_folder), nodes, port, lambda line: click.echo(line, err=True))
    rows = [(f"node {one.id}", one.address, made.store(one)) for one in made.nodes]
    rows += [(f"controller {one.id}", one.address, made.home(one)) for one in made.controllers]
    print_table(("PROCESS", "ADDRESS", "FOLDER"), rows)
    click.echo(f"\nStart it with:     {shlex.join(['pylog', 'cluster', 'start', made.folder])}")
    click.echo(f"Clients then have: bootstrap.servers={made.bootstrap}")
    click.echo(f'Spark reads:       spark.read.format("pylog").option("subscribe", TOPIC).load("{rows[0][2]}")')


@cluster.command()
@_folder
def start(folder: str) -> None:
    """Run the cluster in FOLDER, until Ctrl-C or SIGTERM.

    A line says when all nodes are unfenced. A process that ends is reported, with the last lines of its log, and with
    the command that starts it again; the others continue.
    """
    with interrupts.fatal():
        from pyspark_log.local_cluster import LocalCluster, find_kafka, read_layout  # noqa: PLC0415
    layout = read_layout(folder)
    running = LocalCluster(layout, find_kafka(layout.jars), click.echo)
    signals = list[int]()

    def stop(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        running.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        running.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in signals:
        click.get_current_context().exit(interrupts.INTERRUPTED)


@cluster.command()
@_folder
def units(folder: str) -> None:
    """Print a unit of systemd for each process of the cluster in FOLDER."""
    with interrupts.fatal():
        from pyspark_log.local_cluster import find_kafka, read_layout, systemd_units  # noqa: PLC0415
    layout = read_layout(folder)
    for name, text in systemd_units(layout, find_kafka(layout.jars)):
        click.echo(f"# /etc/systemd/system/{name}\n{text}")
