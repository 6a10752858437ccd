"""`pylog ui`: the page of a store."""

from __future__ import annotations

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import Address, check_jinja, check_schemas, named_values
from pyspark_log.cli.target import Target
from pyspark_log.monitoring import HttpServer, Snapshots, is_loopback


@click.command()
@click.option(
    "--listen",
    type=Address(9309),
    default="127.0.0.1:9309",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to listen on; port 0 takes any that is free. Another one than this machine's own wants "
    "--allow-anonymous.",
)
@click.option(
    "--allow-anonymous", is_flag=True, help="Show all that can reach the address everything in the store: no login is."
)
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers may reach the page; addresses and localhost are known. Repeatable.",
)
@click.option(
    "--schemas",
    callback=check_schemas,
    metavar="PLACE",
    help="The schemas of values in Avro, Protobuf or JSON: the URL of a registry, or a folder with TOPIC-value.avsc, "
    "TOPIC-key.avsc, or NUMBER.avsc for Confluent's prefix. A topic that names its registry needs none.",
)
@click.option(
    "--schema-option",
    "schema_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=named_values,
    help="A further option of typed topics, as schemaRegistry.user=anna; several times.",
)
@click.pass_obj
def ui(
    target: Target,
    listen: tuple[str, int],
    allow_anonymous: bool,
    host_names: tuple[str, ...],
    schemas: str | None,
    schema_options: dict[str, str],
) -> None:
    """Show topics, records, groups and publishes in a browser, until Ctrl-C.

    The page only reads. A server has it, too, with its clients and its login: `pylog serve --ui-listen`.
    """
    check_jinja()
    store = target.open()
    with interrupts.fatal():
        from pyspark_log.ui import Guard, Schemas, Ui  # noqa: PLC0415

    own = Schemas(schemas, {name.lower(): value for name, value in schema_options.items()})
    app = Ui(Snapshots(store, fresh_s=2.0), Guard([listen[0], *host_names]), schemas=own)
    server = HttpServer(*listen, app.answer)
    host, port = server.address
    if not is_loopback(host) and not allow_anonymous:
        server.close()
        raise click.UsageError(
            f"on {host}:{port} others than this machine could read the store without authentication: use "
            "`pylog serve --ui-listen`, which has a login, or allow that by --allow-anonymous"
        )
    click.echo(f"{store.path} on http://{f'[{host}]' if ':' in host else host}:{port}/", err=True)
    app.start()
    server.start()
    interrupts.wait()
