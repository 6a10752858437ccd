"""`pylog explain`: what the name of an error means, and what to do about it."""

from __future__ import annotations

import click

from pyspark_log.cli.support import json_option, print_json
from pyspark_log.errors.explained import EXPLAINED
from pyspark_log.near_names import did_you_mean

_ABOVE = """\
# Errors

Each error has a name that stays the same. In Spark and in the jobs it is in brackets in front of the message; in Python
it is the error's `condition`, and `pyspark_log.errors` has the classes. `pylog explain NAME` prints a row of these.
"""


_ALL = {name: explained for errors in EXPLAINED.values() for name, explained in errors.items()}


def _full_name(name: str) -> str:
    """The name of an error, given as a log has it: in brackets, with what is after a dot, or without its prefix."""
    full_name = name.strip("[]: ").partition(".")[0].upper()
    full_name = full_name if full_name.startswith("PYLOG_") else f"PYLOG_{full_name}"
    if full_name not in _ALL:
        raise click.BadParameter(f"no error {name!r}{did_you_mean(full_name, _ALL)}", param_hint="NAME")
    return full_name


@click.command()
@click.argument("name", required=False)
@click.option("--document", is_flag=True, help="Print all of them as Markdown, as docs/reference/errors.md has them.")
@json_option
def explain(name: str | None, document: bool, as_json: bool) -> None:
    """Say what the NAME of an error means, and what to do about it.

    NAME is as the message has it: PYLOG_DATA_LOSS, [PYLOG_DATA_LOSS.TOPIC_DELETED], or data_loss. Without it all names
    are listed.
    """
    if document:
        click.echo(_ABOVE, nl=False)
        for group, errors in EXPLAINED.items():
            click.echo(f"\n## {group}\n\n| name | what has happened | what to do |\n| --- | --- | --- |")
            for error, (cause, cure) in errors.items():
                click.echo(f"| `{error}` | {cause} | {cure} |")
        return
    asked = [_full_name(name)] if name else list(_ALL)
    if as_json:
        print_json([{"name": error, "cause": _ALL[error].cause, "cure": _ALL[error].cure} for error in asked])
    elif name is None:
        click.echo("\n".join(asked))
    else:
        cause, cure = _ALL[asked[0]]
        click.echo(f"{asked[0]}\n  {cause}\n  {cure}")
