"""`pylog serve`: the store for Kafka's clients."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.serving import serve_processes
from pyspark_log.cli.serving.cluster_options import ClusterOptions, cluster_options
from pyspark_log.cli.serving.security_options import security_configs, security_options
from pyspark_log.cli.support import Address, check_jinja, check_prometheus_client, check_schemas
from pyspark_log.cli.target import Target
from pyspark_log.repeated_lines import standard_error
from pyspark_log.storage.fs import files

if TYPE_CHECKING:
    from pyspark_log.server import ServerConfig
    from pyspark_log.server.node.config import ClusterConfig
    from pyspark_log.storage.store import Store


@click.command()
@click.option(
    "--listen",
    type=Address(9092),
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen on; port 0 takes any that is free. Another one than this machine's own wants "
    "authentication, or --allow-anonymous.",
)
@click.option(
    "--advertise",
    type=Address(9092),
    metavar="HOST:PORT",
    help="The address that clients get for the server, if it is not the one at which they reach it first.",
)
@click.option(
    "--node-id",
    type=click.IntRange(0, 2**31 - 1),
    help="Kafka's broker.id: 1 unless it is set; over an object store, and with --shared, any that no other has.",
)
@click.option(
    "--sync-acks-all",
    is_flag=True,
    help="Sync records before a producer with acks=all is answered, so that they survive a power loss. Like Kafka, the "
    "server otherwise leaves that to the topic's flush.messages and flush.ms.",
)
@click.option(
    "--linger",
    type=click.IntRange(min=0),
    metavar="MS",
    help="Over an object store: how long records wait for others, as what comes in that time is one request. 50 unless "
    "it is set.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="As many servers, each of which can use a core, on as many ports from that of --listen on, with node ids from "
    "--node-id (or 1) on. One that dies is started again.",
)
@click.option(
    "--shared",
    is_flag=True,
    help="Over a folder: serve it beside other servers of this machine that are started with --shared, as --processes "
    "does. An object store is always shared.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False),
    metavar="PATH",
    help="A file to write the address to once clients can connect. It is deleted at the start, and at the end.",
)
@click.option(
    "--max-connections-per-ip",
    type=click.IntRange(min=1),
    help="Kafka's max.connections.per.ip: how many connections one address may have.",
)
@click.option(
    "--metrics-listen",
    type=Address(9308),
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus by HTTP on that address (/metrics, /health, /ready), such as 127.0.0.1:9308.",
)
@click.option(
    "--ui-listen",
    type=Address(9309),
    metavar="HOST:PORT",
    help="Show the store in a browser on that address, such as 127.0.0.1:9309, as `pylog ui` does, with the server's "
    "clients and transactions. Where clients log in, its readers have to, too.",
)
@click.option(
    "--ui-schemas",
    callback=check_schemas,
    metavar="PLACE",
    help="The schemas by which that shows values in Avro, as `pylog ui --schemas`.",
)
@cluster_options
@security_options
@click.option("--verbose", is_flag=True, help="Log each connection, with the client's library.")
@click.pass_obj
def serve(
    target: Target,
    /,
    listen: tuple[str, int],
    advertise: tuple[str, int] | None,
    node_id: int | None,
    sync_acks_all: bool,
    linger: int | None,
    processes: int,
    shared: bool,
    ready_file: str | None,
    max_connections_per_ip: int | None,
    metrics_listen: tuple[str, int] | None,
    ui_listen: tuple[str, int] | None,
    ui_schemas: str | None,
    node: ClusterOptions,
    verbose: bool,
    **security: Any,  # noqa: ANN401  (those of `security_options`)
) -> None:
    """Serve the store to Kafka's clients, until Ctrl-C or SIGTERM.

    Any Kafka client writes to and reads from the topics of the store then, while Spark and pylog use its files. A
    store that is missing is created. One in an object store is served by any number of servers beside each other.
    """
    if ready_file is not None:
        # A server that was killed has left its own.
        _delete_ready_file(ready_file)
    _log(verbose=verbose)
    configs = security_configs(**security)
    cluster = node.config()
    if cluster is not None and (shared or processes > 1):
        raise click.UsageError("a node of a cluster is one server alone: without --shared and --processes")
    with interrupts.fatal():
        from pyspark_log.server import Limits, ServerConfig, check_reach  # noqa: PLC0415  (only this command needs it)

    limits = Limits() if max_connections_per_ip is None else Limits(max_connections_per_ip=max_connections_per_ip)
    config = ServerConfig(
        *listen, advertise, node_id, sync_acks_all, limits, metrics=metrics_listen, ui=ui_listen, ui_schemas=ui_schemas,
        cluster=cluster, rack="" if cluster else node.rack or "", shared=shared,
        linger=None if linger is None else linger / 1000, **configs,
    )  # fmt: skip
    if config.metrics is not None:
        check_prometheus_client()
    if config.ui is not None:
        check_jinja()
    check_reach(config)
    store = target.open_served() if cluster is None else target.open_node_folder(_cluster_id(cluster))
    try:
        stopped_by = _run(store, config, processes, ready_file)
    finally:
        if ready_file is not None:
            _delete_ready_file(ready_file)
    if stopped_by == signal.SIGINT:
        click.get_current_context().exit(interrupts.INTERRUPTED)


def _run(store: Store, config: ServerConfig, processes: int, ready_file: str | None) -> int:
    """Serves until a signal; returns its number."""
    from pyspark_log.server import check_several, notify_manager, serve  # noqa: PLC0415  (likewise)

    def on_ready(addresses: Sequence[str]) -> None:
        if ready_file is not None:
            lines = "".join(f"{address}\n" for address in addresses)
            files.replace_whole(os.path.abspath(ready_file), lines.encode(), sync=False)
        notify_manager("READY=1")

    if processes == 1:
        return serve(store, config, lambda address: on_ready([f"{address[0]}:{address[1]}"]))
    check_several(store)
    store.close()
    return serve_processes.run(processes, partial(_options, config), on_ready)


def _log(*, verbose: bool) -> None:
    """Has what the server logs on standard error."""
    logging.basicConfig(
        handlers=[standard_error(each_line=verbose)],
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )


def _options(config: ServerConfig, number: int) -> list[str]:
    """The options of one of several servers, beside those of the command line."""

    def placed(address: tuple[str, int] | None) -> str | None:
        return None if address is None else f"{address[0]}:{address[1] + number if address[1] else 0}"

    options = {
        "--processes": "1", "--listen": placed((config.host, config.port)), "--advertise": placed(config.advertised),
        "--metrics-listen": placed(config.metrics), "--ui-listen": placed(config.ui),
        "--node-id": str((1 if config.node_id is None else config.node_id) + number),
    }  # fmt: skip
    return ["--shared", *(word for name, value in options.items() if value is not None for word in (name, value))]


def _cluster_id(cluster: ClusterConfig) -> str:
    from pyspark_log.server.node.controllers import find_cluster_id  # noqa: PLC0415

    return find_cluster_id(cluster)


def _delete_ready_file(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not files.may(folder, os.W_OK):
        raise click.UsageError(f"--ready-file {path}: the folder {folder} is missing, or may not be written to")
    if files.exists(path):
        files.unlink(path)
