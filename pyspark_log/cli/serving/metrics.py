"""`pylog metrics`: the metrics of a store without a server."""

from __future__ import annotations

import os

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import Address, check_prometheus_client
from pyspark_log.cli.target import Target
from pyspark_log.storage.fs import files


@click.command()
@click.option(
    "--listen",
    type=Address(9308),
    metavar="HOST:PORT",
    help="Serve them by HTTP on that address (/metrics), until Ctrl-C; port 0 takes any that is free.",
)
@click.option(
    "--textfile",
    type=click.Path(dir_okay=False),
    metavar="PATH",
    help="Replace a file with them, for the node exporter's textfile collector, which reads it whole or not at all.",
)
@click.pass_obj
def metrics(target: Target, listen: tuple[str, int] | None, textfile: str | None) -> None:
    """Print sizes, offsets, lag and publishers for Prometheus, or serve them.

    A server has these metrics, too, beside those of its clients: `pylog serve --metrics-listen`.
    """
    check_prometheus_client()
    if listen is not None and textfile is not None:
        raise click.UsageError("--listen and --textfile cannot be combined.")
    store = target.open()
    with interrupts.fatal():
        from pyspark_log.metrics import TEXT, StoreMetrics, as_text, store_metrics  # noqa: PLC0415
        from pyspark_log.monitoring import HttpServer, Page, Snapshots, paths, take_snapshot  # noqa: PLC0415

    if listen is None:
        text = as_text(store_metrics(take_snapshot(store)))
        if textfile is None:
            click.echo(text, nl=False)
        else:
            files.replace_whole(os.path.abspath(textfile), text, sync=False)
        return
    current = StoreMetrics(Snapshots(store))
    server = HttpServer(*listen, paths({"/metrics": lambda: Page(current.text(), content_type=TEXT)}))
    host, port = server.address
    click.echo(f"Metrics of {store.path} on http://{host}:{port}/metrics", err=True)
    server.start()
    interrupts.wait()
