"""The command line of a job: arguments, also from a file of properties, and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pyspark_log.cli.support import one_line, print_json
from pyspark_log.errors import PylogError
from pyspark_log.jobs.support.spark_tasks import reason
from pyspark_log.jobs.support.summary import only_json
from pyspark_log.units import truth

_INTERRUPTED = 130
_NOT_IN_FILES = ("config", "help", "show-config", argparse.SUPPRESS)


class CallError(Exception):
    """The arguments are wrong in a way that only the job sees; its text is for the user."""


class JobParser(argparse.ArgumentParser):
    """The arguments of a job. Each can be given in `--config FILE` as well, by the same name; the call counts first."""

    def __init__(self, description: str | None) -> None:
        """`description`: the docstring of the entry point."""
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        self._taken = set[str]()
        self.add_argument("--config", metavar="FILE", help="properties with more arguments: a line `name=value` each")
        self.add_argument("--show-config", action=_ShowConfig, help="print such a file with all arguments, and exit")

    def config_file(self) -> str:
        """A file for --config with all arguments, each after a # with its meaning; what must be given has no value."""
        summary = next(line for line in (self.description or "").splitlines() if line)
        lines = [f"# {summary.rstrip(':.')}. For --config: the lines without # count."]
        for action in self._actions:
            if action.dest in _NOT_IN_FILES:
                continue
            name = _long_names(action)[-1] if action.option_strings else action.dest
            default = "" if action.default is None else action.default
            value = str(default).lower() if action.nargs == 0 else default or ""
            help_text = (action.help or "") % {**vars(action), "prog": self.prog}
            if action.choices and action.option_strings:
                help_text += f"; one of {'; '.join(map(str, action.choices))}"
            meaning = textwrap.wrap(help_text, 118, initial_indent="# ", subsequent_indent="# ")
            lines += ["", *meaning, f"#{name}={value}"]
        return "\n".join(lines) + "\n"

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """The arguments of the call, or those given, with those of the file. SystemExit: they are wrong."""
        given = list(sys.argv[1:] if arguments is None else arguments)
        first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        first.add_argument("--config")
        config = first.parse_known_args(given)[0].config
        return self.parse_args([*self._of_file(config), *given] if config else given)

    def _of_file(self, path: str) -> list[str]:
        """The options in a file, as a call gives them; what is positional becomes a default."""
        found = []
        for number, name, value in self._properties(path):
            action = next((one for one in self._actions if name in (one.dest, *_long_names(one))), None)
            if action is None or name in _NOT_IN_FILES:
                self.error(f"{path}, line {number}: there is no argument {name!r}")
            elif not action.option_strings:
                self._of_positional(action, value)
            elif action.nargs != 0:
                found.append(f"{action.option_strings[-1]}={value}")
            else:
                try:
                    found += [action.option_strings[-1]] * truth(value)
                except ValueError as error:
                    self.error(f"{path}, line {number}: {name} {error}, not {value!r}")
        return found

    def _of_positional(self, action: argparse.Action, value: str) -> None:
        """Takes an argument without a name from a file. The call cannot give it then: its own are the others."""
        if action.nargs == "+":
            self.set_defaults(**{action.dest: [*(self.get_default(action.dest) or []), value]})
        else:
            self.set_defaults(**{action.dest: value})
        action.required = False
        self._taken.add(action.dest)

    def _get_positional_actions(self) -> list[argparse.Action]:
        return [one for one in super()._get_positional_actions() if one.dest not in self._taken]

    def _properties(self, path: str) -> Iterator[tuple[int, str, str]]:
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            self.error(f"--config: {path} cannot be read: {error}")
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith(("#", "!")):
                name, equals, value = line.partition("=")
                if not equals:
                    self.error(f"{path}, line {number}: expected name=value, got {line.strip()!r}")
                yield number, name.strip(), value.strip()


class _ShowConfig(argparse.Action):
    """Prints `JobParser.config_file`, and ends the program; nothing else need be given then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        assert isinstance(parser, JobParser)
        sys.stdout.write(parser.config_file())
        parser.exit()


def positive(text: str) -> int:
    """A number from 1 on, as the type of an argument."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


def names_in(text: str) -> list[str]:
    """The names in a text with commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def named_values(option: str, given: Sequence[str]) -> dict[str, str]:
    """The values of an option that is given as NAME=VALUE, several times. CallError: one is not."""
    found = dict[str, str]()
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise CallError(f"{option}: expected NAME=VALUE, got {one!r}")
        found[name.strip()] = value.strip()
    return found


def _long_names(action: argparse.Action) -> list[str]:
    return [name.removeprefix("--") for name in action.option_strings]


def run(parser: JobParser, work: Callable[[argparse.Namespace], bool], given: Sequence[str] | None = None) -> int:
    """Runs a job; returns its exit code: 0 done; 1 failed; 2 called wrongly.

    A line on standard error says why it failed; with --json it is the JSON's `error` instead.

    Args:
        parser: has the arguments.
        work: gets them; returns whether it succeeded. Its errors are shown.
        given: the arguments; None: those of the call.

    Raises:
        SystemExit: with 2, or with 0 after --help.
    """
    arguments = parser.parse(given)
    as_json = getattr(arguments, "json", False)
    try:
        with only_json() if as_json else contextlib.nullcontext():
            return 0 if work(arguments) else 1
    except CallError as error:
        parser.error(" ".join(str(error).split()))
    except (PylogError, OSError) as error:
        problem = one_line(error)
    except (PySparkException, Py4JError) as error:
        problem = one_line(reason(error))
    except KeyboardInterrupt:
        return _INTERRUPTED
    if as_json:
        print_json({"error": problem})
    else:
        print(f"Error: {problem}", file=sys.stderr)
    return 1
