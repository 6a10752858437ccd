"""The command line of a job: arguments, also from a file of properties, and exit codes."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pyspark_log.cli.interrupts import INTERRUPTED
from pyspark_log.cli.support import one_line, print_json
from pyspark_log.errors import PylogError
from pyspark_log.jobs.support.spark_tasks import reason
from pyspark_log.jobs.support.summary import only_json
from pyspark_log.units import truth


class Job(click.Command):
    """A job. Each argument can be given in `--config FILE` as well, by the same name; the call counts first.

    Its function gets the arguments as one object, and returns whether it succeeded. A line on standard error says why
    it failed; with --json it is the JSON's `error` instead.
    """

    def __init__(self, name: str | None, *, params: list[click.Parameter], help: str | None, **more: Any) -> None:  # noqa: A002, ANN401
        """As click has it; `help` is the docstring of the entry point, whose indented lines stay as they are."""
        more["context_settings"] = {
            "help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True,
        }  # fmt: skip
        config = click.Option(
            ["--config"],
            metavar="FILE",
            expose_value=False,
            help="Properties with more arguments: a line name=value each.",
        )
        show = click.Option(
            ["--show-config"], is_flag=True, is_eager=True, expose_value=False, callback=_show_config,
            help="Print such a file with all arguments, and exit.",
        )  # fmt: skip
        super().__init__(
            name, params=[config, show, *params], help=(help or "").replace("\n\n    ", "\n\n\b\n    "), **more
        )

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """Runs the job with these arguments, or with those of the call.

        Returns:
            Its exit code: 0 done; 1 failed; 2 called wrongly; 130 stopped by Ctrl-C.
        """
        try:
            self.main(arguments)
        except SystemExit as end:
            return int(end.code or 0)
        raise AssertionError("click ends a command by SystemExit")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, with the arguments of the file."""
        config = self.make_parser(ctx).parse_args(list(args))[0].get("config")
        return super().parse_args(ctx, [*self._of_file(ctx, config), *args] if config else args)

    def invoke(self, ctx: click.Context) -> None:
        """Runs the job, and ends with its exit code."""
        as_json = ctx.params.get("as_json", False)
        assert self.callback is not None
        try:
            with only_json() if as_json else contextlib.nullcontext():
                done = ctx.invoke(self.callback, SimpleNamespace(**ctx.params))
            ctx.exit(0 if done else 1)
        except click.UsageError as error:
            raise click.UsageError(" ".join(error.message.split()), ctx) from None
        except (PylogError, OSError) as error:
            problem = one_line(error)
        except (PySparkException, Py4JError) as error:
            problem = one_line(reason(error))
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        if not as_json:
            raise click.ClickException(problem)
        print_json({"error": problem})
        ctx.exit(1)

    def config_file(self) -> str:
        """A file for --config with all arguments, each after a # with its meaning; what must be given has no value."""
        summary = next(line for line in (self.help or "").splitlines() if line)
        lines = [f"# {summary.rstrip(':.')}. For --config: the lines without # count."]
        for name, parameter in self._in_files().items():
            about = parameter.to_info_dict()
            default = "" if about["default"] is None else about["default"]
            meaning = about["help"]
            if isinstance(parameter.type, click.Choice):
                meaning += f" One of {'; '.join(parameter.type.choices)}."
            comment = textwrap.wrap(meaning, 118, initial_indent="# ", subsequent_indent="# ")
            lines += ["", *comment, f"#{name}={str(default).lower() if default is False else default}"]
        return "\n".join(lines) + "\n"

    def _in_files(self) -> dict[str, click.Parameter]:
        """The arguments that a file can have, by their names there."""
        return {one.opts[-1].removeprefix("--"): one for one in self.params if one.expose_value}

    def _of_file(self, ctx: click.Context, path: str) -> list[str]:
        """The options in a file, as a call gives them; what is positional becomes a default."""
        known, options, positional = self._in_files(), list[str](), dict[str, list[str]]()
        for line, name, value in _properties(ctx, path):
            parameter = known.get(name) or known.get(name.replace("_", "-"))
            if parameter is None:
                ctx.fail(f"{path}, line {line}: there is no argument {name!r}")
            option = parameter.opts[-1]
            if isinstance(parameter, Positional):
                positional.setdefault(option, []).append(value)
            elif not (isinstance(parameter, click.Option) and parameter.is_flag):
                options.append(f"{option}={value}")
            else:
                try:
                    options += [option] * truth(value)
                except ValueError as error:
                    ctx.fail(f"{path}, line {line}: {name} {error}, not {value!r}")
        ctx.default_map = {name: values if known[name].nargs < 0 else values[-1] for name, values in positional.items()}
        return options


class Positional(click.Argument):
    """An argument without a name. If a file has it, the call cannot give it: its own are the others."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # noqa: ANN401  (click keeps its type to itself)
        """As click does, but for what a file has."""
        if self.name not in (ctx.default_map or {}):
            super().add_to_parser(parser, ctx)


#: Gives the function of a job options.
Decorator = Callable[[Callable[..., bool]], Callable[..., bool]]
#: Gives it an argument without a name.
argument = partial(click.argument, cls=Positional)


def _properties(ctx: click.Context, path: str) -> Iterator[tuple[int, str, str]]:
    """The number of each line of a file, the name and the value in it."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        ctx.fail(f"--config: {path} cannot be read: {error}")
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            name, equals, value = line.partition("=")
            if not equals:
                ctx.fail(f"{path}, line {number}: expected name=value, got {line.strip()!r}")
            yield number, name.strip(), value.strip()


def _show_config(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """The callback of --show-config: nothing else need be given then."""
    if wanted:
        assert isinstance(ctx.command, Job)
        click.echo(ctx.command.config_file(), nl=False)
        ctx.exit()
