"""`pylog metrics`: the metrics of a store without a server."""

from __future__ import annotations

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import Address, check_prometheus_client
from pyspark_log.cli.target import Target


@click.command()
@click.option(
    "--listen",
    type=Address(9308),
    metavar="HOST:PORT",
    help="Serve them by HTTP on that address (/metrics), until Ctrl-C; port 0 takes any that is free.",
)
@click.pass_obj
def metrics(target: Target, listen: tuple[str, int] | None) -> None:
    """Print sizes, offsets, lag and publishers for Prometheus, or serve them.

    The text is that of the node exporter's textfile collector. A server has these metrics, too (`pylog serve
    --metrics-listen`), with those of its clients.
    """
    check_prometheus_client()
    store = target.open()
    with interrupts.fatal():
        from pyspark_log.metrics import TEXT, HttpServer, Page, StoreMetrics, as_text, store_metrics  # noqa: PLC0415

    if listen is None:
        click.echo(as_text(store_metrics(store)), nl=False)
        return
    current = StoreMetrics(store)
    server = HttpServer(*listen, {"/metrics": lambda: Page(current.text(), content_type=TEXT)})
    host, port = server.address
    click.echo(f"Metrics of {store.path} on http://{host}:{port}/metrics", err=True)
    server.run()
