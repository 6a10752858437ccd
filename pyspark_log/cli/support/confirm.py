"""Asks before something is deleted for good."""

from __future__ import annotations

import sys

import click

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def confirm(question: str, yes: bool) -> None:
    """Returns if the user agrees, or has given --yes.

    Raises:
        click.UsageError: there is no terminal to ask at.
        click.exceptions.Exit: the user does not agree; the code is 1.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask at: give --yes. Nothing was changed.")
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from None
    if not agreed:
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)
