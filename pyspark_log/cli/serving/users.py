"""`pylog users`: the users of `pylog serve` that have passwords."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.serving.security_options import read_secret
from pyspark_log.cli.support import CommandGroup, confirm, json_option, print_json, print_table, yes_option
from pyspark_log.cli.target import Target
from pyspark_log.server.security.users import (
    HASHES,
    ITERATIONS,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    Users,
    check_name,
    make_credential,
)


@click.group(cls=CommandGroup)
def users() -> None:
    """Add, list and remove the users that log in to `pylog serve` by a password.

    A server counts each change at once, over an object store within a second. Connections that are open stay as they
    are.
    """


@users.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="PATH",
    help="A file with the password; - is standard input. Without it the password is asked for.",
)
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(HASHES)),
    multiple=True,
    default=list(HASHES),
    show_default=True,
    help="Can be given several times. PLAIN uses one of them, too.",
)
@click.option(
    "--iterations",
    type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=ITERATIONS,
    show_default=True,
    help="How long it takes to check, or to guess, the password.",
)
@click.pass_obj
def add(target: Target, name: str, password_file: str | None, mechanisms: Sequence[str], iterations: int) -> None:
    """Add the user NAME, or give it another password. A store that is missing is created."""
    check_name(name)
    password = _password(name, password_file)
    known = _users(target, create=True)
    is_new = name not in known.all()
    # Those that are not named get none, as they would keep the old password.
    credentials = {
        mechanism: make_credential(mechanism, password, iterations) if mechanism in mechanisms else None
        for mechanism in HASHES
    }
    known.change({name: credentials})
    click.echo(f"Added user {name}." if is_new else f"Changed the password of user {name}.")


@users.command("list")
@json_option
@click.pass_obj
def list_users(target: Target, as_json: bool) -> None:
    """Print the names of users, with their mechanisms."""
    found = _users(target).all()
    if as_json:
        print_json([
            {
                "name": name,
                "credentials": [
                    {"mechanism": mechanism, "iterations": one.iterations} for mechanism, one in credentials.items()
                ],
            }
            for name, credentials in found.items()
        ])  # fmt: skip
        return
    rows = [(name, mechanism, one.iterations) for name, own in found.items() for mechanism, one in own.items()]
    print_table(("USER", "MECHANISM", "ITERATIONS"), rows)


@users.command()
@click.argument("name", metavar="NAME")
@yes_option
@click.pass_obj
def remove(target: Target, name: str, yes: bool) -> None:
    """Remove the user NAME.

    It cannot authenticate itself any more. A connection of its that is open ends when it has to do so again
    (--sasl-max-session), or with the server.
    """
    known = _users(target)
    if name not in known.all():
        raise click.ClickException(f"there is no user {name!r}")
    confirm(f"Remove user {name}?", yes)
    known.change({name: dict.fromkeys(HASHES)})
    click.echo(f"Removed user {name}.")


def _users(target: Target, *, create: bool = False) -> Users:
    return Users(target.documents(create=create))


def _password(name: str, path: str | None) -> str:
    if path == "-":
        password = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    elif path is not None:
        password = read_secret(path)
    elif sys.stdin.isatty():
        with interrupts.fatal():
            password = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise click.UsageError("There is no terminal to ask for the password at: give --password-file.")
    if not password:
        raise click.ClickException("the password is empty")
    return password
