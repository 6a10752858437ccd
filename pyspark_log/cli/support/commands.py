"""Groups of commands: each takes --store at any place, shows its help uncut, and knows what a wrong name may mean."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import click

from pyspark_log.near_names import did_you_mean

_F = TypeVar("_F", bound=Callable[..., Any])

# What users of other tools type.
_MEANT = {
    "pylog": {
        "cat": "consume", "read": "consume", "console-consumer": "consume", "write": "produce", "send": "produce",
        "console-producer": "produce", "consumer-groups": "groups", "lag": "groups describe", "config": "configs",
        "get-offsets": "offsets", "dump-log": "dump", "ls": "topics list", "list": "topics list",
        "create": "topics create", "alter": "topics alter", "describe": "topics describe", "delete": "topics delete",
        "delete-records": "topics delete-records", "reset-offsets": "groups reset-offsets", "check": "verify",
        "fsck": "verify", "job": "jobs list", "size": "du",
        "import-kafka": "mirror FOLDER --topics PATTERN --until-now",
    },
    "": {
        "ls": "list", "show": "describe", "rm": "delete", "remove": "delete", "add": "create", "new": "create",
        "reset": "reset-offsets", "lag": "describe",
    },
}  # fmt: skip


class CommandGroup(click.Group):
    """A command with subcommands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; click.UsageError names the nearest command if there is none of that name."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            meant = _MEANT["pylog" if ctx.parent is None else ""].get(name)
            if meant is not None and self.get_command(ctx, meant.split()[0]) is not None:
                ctx.fail(f"No such command {name!r}; did you mean '{ctx.command_path} {meant}'?")
            known = self.list_commands(ctx)
            ctx.fail(f"No such command {name!r}" + (did_you_mean(name, known) or f"; there are: {', '.join(known)}"))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the subcommands with the first sentence of each one's help."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help(command)) for name, command in found.items() if command is not None])


def short_help(command: click.Command) -> str:
    """The first sentence of a command's help, uncut."""
    return command.get_short_help_str(10_000)


def with_store_option(
    command: click.Command, keep: Callable[[click.Context, click.Parameter, str | None], None]
) -> None:
    """Gives a command, and those below it, the option --store.

    Args:
        command: the command. It stays as it is if it has the option.
        keep: the option's callback.
    """
    if all(parameter.name != "store" for parameter in command.params):
        command.params.append(
            click.Option(
                ["--store"],
                metavar="PATH",
                expose_value=False,
                callback=keep,
                help="The folder or URL of the store (or set PYLOG_STORE).",
            )
        )
    for one in command.commands.values() if isinstance(command, click.Group) else ():
        with_store_option(one, keep)


#: Gives a command --partition, which it gets as `partitions`.
partitions_option = click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this partition; repeatable.",
)


def with_options(options: Sequence[Callable[..., Any]]) -> Callable[[_F], _F]:
    """A decorator that gives a command options, which its help has in this order."""

    def add_options(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


def options_as(name: str, record: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[[_F], _F]:
    """As `with_options`, for options that the command gets as one argument.

    Args:
        name: of the argument.
        record: the dataclass that the argument is of; its fields have the names of the options.
        options: they.
    """
    names = list(inspect.signature(record).parameters)

    def add_options(command: _F) -> _F:
        @functools.wraps(command)
        def collected(*args: object, **values: object) -> object:
            fields = {field: values.pop(field) for field in names}
            return command(*args, **values, **{name: record(**fields)})

        return cast(_F, with_options(options)(collected))

    return add_options
