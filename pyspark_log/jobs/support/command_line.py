"""The command line of a job: arguments, also from a file of properties, and exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pyspark_log.cli.support import one_line
from pyspark_log.errors import PylogError
from pyspark_log.jobs.support.spark_tasks import reason

_INTERRUPTED = 130


class CallError(Exception):
    """The arguments are wrong in a way that only the job sees; its text is for the user."""


class JobParser(argparse.ArgumentParser):
    """The arguments of a job. Each can be given in `--config FILE` as well, by the same name; the call counts first."""

    def __init__(self, description: str | None) -> None:
        """`description`: the docstring of the entry point."""
        super().__init__(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        self.add_argument("--config", metavar="FILE", help="properties with more arguments: a line `name=value` each")

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
            if action is None or name in ("config", "help"):
                self.error(f"{path}, line {number}: there is no argument {name!r}")
            elif not action.option_strings:
                action.default, action.nargs, action.required = value, "?", False
            elif action.nargs != 0:
                found.append(f"{action.option_strings[-1]}={value}")
            elif value in ("true", "false"):
                found += [action.option_strings[-1]] * (value == "true")
            else:
                self.error(f"{path}, line {number}: {name} is true or false, not {value!r}")
        return found

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


def _long_names(action: argparse.Action) -> list[str]:
    return [name.removeprefix("--") for name in action.option_strings]


def run(
    parser: JobParser, work: Callable[[argparse.Namespace], bool], given: Sequence[str] | None = None
) -> int:
    """Runs a job; returns its exit code: 0 done; 1 it could not be done, and a line says why; 2 called wrongly.

    Args:
        parser: has the arguments.
        work: gets them; returns whether all went well. What it raises is shown.
        given: the arguments; None: those of the call.

    Raises:
        SystemExit: with 2, or with 0 after --help.
    """
    arguments = parser.parse(given)
    try:
        return 0 if work(arguments) else 1
    except CallError as error:
        parser.error(" ".join(str(error).split()))
    except (PylogError, OSError) as error:
        print(f"Error: {one_line(error)}", file=sys.stderr)
        return 1
    except (PySparkException, Py4JError) as error:
        print(f"Error: {one_line(reason(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
