"""`pylog acls`: what the clients of `pylog serve` may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
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
from pyspark_log.server.security.acls import (
    ANY,
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    Acls,
    Operation,
    Pattern,
    Permission,
    Resource,
    host_of,
)


def _text(one: Operation | Resource | Permission | Pattern) -> str:
    return one.name.lower().replace("_", "-")


_OPERATIONS = {_text(one): one for one in Operation}
_OPTIONS = (
    click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic; '*' is each one."),
    click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; '*' is each one."),
    click.option("--transactional-id", "ids", multiple=True, metavar="ID", help="A transactional id; '*' is each one."),
    click.option("--cluster", is_flag=True, help="The server as a whole."),
    click.option("--prefixed", is_flag=True, help="Names are what names begin with."),
    click.option(
        "--principal", "principals", multiple=True, metavar="PRINCIPAL", help="Such as User:anna; User:* is each one."
    ),
    click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="A client's address; by default each one."),
    click.option(
        "--operation", "operations", multiple=True, type=click.Choice(list(_OPERATIONS)), help="By default all."
    ),
    click.option("--deny", is_flag=True, help="What may not be done; that counts before all that may."),
)


#: Gives a command the options that describe entries; each can be given several times.
_described = with_options(_OPTIONS)


@click.group(cls=CommandGroup)
def acls() -> None:
    """Add, list and remove what clients of `pylog serve --acls` may do.

    A server counts each change at once, over an object store within a second. Nothing is allowed that no entry
    allows, but for super users.
    """


@acls.command()
@_described
@click.pass_obj
def add(target: Target, /, **described: Any) -> None:  # noqa: ANN401  (those of `_described`)
    """Add entries: of each principal, for each resource and operation."""
    wanted = _entries(**described)
    known = Acls(target.documents(create=True, is_clusters="ACLs"), ())
    new = wanted - known.rules().acls
    known.change(lambda acls: acls | wanted)
    click.echo(f"Added {len(new)} entries.")


@acls.command("list")
@json_option
@click.pass_obj
def list_acls(target: Target, as_json: bool) -> None:
    """Print all entries."""
    found = sorted(_acls(target).rules().acls)
    rows = [_row(one) for one in found]
    names = ("principal", "host", "permission", "operation", "resource", "name", "pattern")
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table([name.upper() for name in names], rows)


@acls.command()
@_described
@yes_option
@click.pass_obj
def remove(target: Target, /, yes: bool, **described: Any) -> None:  # noqa: ANN401  (those of `_described`)
    """Remove entries: those that `add` with the same options adds."""
    wanted = _entries(**described)
    known = _acls(target)
    gone = wanted & known.rules().acls
    if not gone:
        raise click.ClickException("there is no such entry; `pylog acls list` prints all")
    confirm(f"Remove {len(gone)} entries?", yes)
    known.change(lambda acls: acls - wanted)
    click.echo(f"Removed {len(gone)} entries.")


def _entries(
    *,
    topics: Sequence[str],
    groups: Sequence[str],
    ids: Sequence[str],
    cluster: bool,
    prefixed: bool,
    principals: Sequence[str],
    hosts: Sequence[str],
    operations: Sequence[str],
    deny: bool,
) -> frozenset[Acl]:
    for principal in principals:
        if not all(principal.partition(":")):
            raise click.UsageError(f"{principal!r} is no principal, such as User:anna.")
    if not principals:
        raise click.UsageError("--principal is missing.")
    resources = list(_resources(topics, groups, ids, prefixed=prefixed))
    if cluster:
        resources.append((Resource.CLUSTER, CLUSTER_NAME, Pattern.LITERAL))
    if not resources:
        raise click.UsageError("About what? Give --topic, --group, --transactional-id or --cluster.")
    permission = Permission.DENY if deny else Permission.ALLOW
    chosen = [_OPERATIONS[one] for one in operations] or [Operation.ALL]
    for (kind, *_), operation in product(resources, chosen):
        if operation not in (Operation.ALL, *OPERATIONS[kind]):
            known = ", ".join(_text(one) for one in OPERATIONS[kind])
            raise click.UsageError(f"A {_text(kind)} has no operation {_text(operation)}, but {known}.")
    return frozenset(
        Acl(*resource, principal, host_of(host), operation, permission)
        for resource, principal, host, operation in product(resources, principals, hosts or (ANY,), chosen)
    )


def _resources(
    topics: Sequence[str], groups: Sequence[str], ids: Sequence[str], *, prefixed: bool
) -> Iterator[tuple[Resource, str, Pattern]]:
    kinds = ((Resource.TOPIC, topics), (Resource.GROUP, groups), (Resource.TRANSACTIONAL_ID, ids))
    for kind, names in kinds:
        for name in names:
            if not name or (prefixed and name == ANY):
                raise click.UsageError(f"{name!r} is not the beginning of a name; '*' without --prefixed is each one.")
            yield kind, name, Pattern.PREFIXED if prefixed else Pattern.LITERAL


def _row(one: Acl) -> tuple[str, ...]:
    return (
        one.principal, one.host, _text(one.permission), _text(one.operation), _text(one.resource), one.name,
        _text(one.pattern),
    )  # fmt: skip


def _acls(target: Target) -> Acls:
    return Acls(target.documents(), ())
