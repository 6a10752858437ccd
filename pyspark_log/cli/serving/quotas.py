"""`pylog quotas`: how much the clients of `pylog serve` may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from pyspark_log.cli.support import (
    CommandGroup,
    confirm,
    json_option,
    print_json,
    print_table,
    with_options,
    yes_option,
)
from pyspark_log.cli.target import Target
from pyspark_log.server.quotas import (
    DEFAULT,
    KINDS,
    OF_ADDRESSES,
    OF_CLIENTS,
    ClientQuotas,
    Entity,
    check_entity,
    check_quota,
)

_DEFAULTS = "<default>"
# Kafka's tool for configs has the same names.
_OPTIONS = (
    click.option("--user", metavar="NAME", help="A user, such as anna; without authentication it is ANONYMOUS."),
    click.option("--user-defaults", is_flag=True, help="Each user without such a quota of its own."),
    click.option("--client", metavar="ID", help="The name that a client gives itself (client.id)."),
    click.option("--client-defaults", is_flag=True, help="Each client.id without such a quota of its own."),
    click.option("--ip", metavar="ADDRESS", help="An address."),
    click.option("--ip-defaults", is_flag=True, help="Each address without such a quota of its own."),
)


#: Gives a command the options that say for which clients a quota is.
_of_clients = with_options(_OPTIONS)


@click.group(cls=CommandGroup)
def quotas() -> None:
    """Set, list and remove how much clients of `pylog serve` may use.

    A server counts each change within a tenth of a second, over an object store within a second. A client that uses
    more has to wait.
    """


@quotas.command("set")
@click.argument("values", metavar="NAME=VALUE...", nargs=-1, required=True)
@_of_clients
@click.pass_obj
def set_quotas(target: Target, /, values: Sequence[str], **parts: Any) -> None:  # noqa: ANN401  (those of `_of_clients`)
    """Set quotas of a user, a client id, both together, or an address.

    \b
    producer_byte_rate=N        bytes a second that it may produce
    consumer_byte_rate=N        bytes a second that it may fetch
    request_percentage=N        percent of a thread's time
    controller_mutation_rate=N  partitions a second that it may create and delete
    connection_creation_rate=N  connections a second, for an address
    """
    entity = _entity(**parts)
    wanted = {}
    for one in values:
        name, _, value = one.partition("=")
        try:
            wanted[name] = float(value)
        except ValueError:
            raise click.UsageError(f"{one!r} is not of the form NAME=VALUE, with a number.") from None
        check_quota(entity, name, wanted[name])
    quotas = ClientQuotas(target.documents(create=True, is_clusters="quotas"))
    quotas.change(lambda known: {**known, entity: {**known.get(entity, {}), **wanted}})
    click.echo(f"Set {', '.join(wanted)} of {_described(entity)}.")


@quotas.command("list")
@json_option
@click.pass_obj
def list_quotas(target: Target, as_json: bool) -> None:
    """Print all quotas."""
    found = _quotas(target).table().quotas
    if as_json:
        print_json([
            {"entity": {kind: name or None for kind, name in entity.parts()}, "values": values}
            for entity, values in found.items()
        ])  # fmt: skip
        return
    rows = [
        (*("" if part is None else _shown(part) for part in entity), name, f"{value:.15g}")
        for entity, values in found.items()
        for name, value in values.items()
    ]
    print_table((*(kind.upper() for kind in KINDS), "QUOTA", "VALUE"), rows)


@quotas.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice([*OF_CLIENTS, *OF_ADDRESSES]))
@_of_clients
@yes_option
@click.pass_obj
def remove(target: Target, /, names: Sequence[str], yes: bool, **parts: Any) -> None:  # noqa: ANN401
    """Remove quotas of a user, a client id, both together, or an address: those that are named, or all."""
    entity, kept = _entity(**parts), _quotas(target)
    known = kept.table().quotas.get(entity, {})
    gone = [name for name in known if not names or name in names]
    if not gone:
        raise click.ClickException("there is no such quota; `pylog quotas list` prints all")
    confirm(f"Remove {', '.join(gone)} of {_described(entity)}?", yes)
    kept.change(
        lambda quotas: {
            **quotas, entity: {name: value for name, value in quotas.get(entity, {}).items() if name not in gone}
        }
    )  # fmt: skip
    click.echo(f"Removed {', '.join(gone)} of {_described(entity)}.")


def _entity(
    *,
    user: str | None,
    user_defaults: bool,
    client: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> Entity:
    names = []
    for name, is_default in ((user, user_defaults), (client, client_defaults), (ip, ip_defaults)):
        if name is not None and (is_default or not name):
            raise click.UsageError("A name is not empty, and has no option for defaults beside it.")
        names.append(DEFAULT if is_default else name)
    entity = Entity(*names)
    check_entity(entity)
    return entity


def _shown(name: str) -> str:
    return name or _DEFAULTS


def _described(entity: Entity) -> str:
    return " ".join(f"{kind} {_shown(name)}" for kind, name in entity.parts())


def _quotas(target: Target) -> ClientQuotas:
    return ClientQuotas(target.documents())
