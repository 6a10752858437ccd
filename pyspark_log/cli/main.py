"""`pylog`: the command group, and the parts that all commands share.

Exit codes: 0 done; 1 failed (one line on standard error says why); 2 wrong usage;
130 stopped by Ctrl-C; 141 the reader of the output has closed it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from pyspark_log import __version__
from pyspark_log.cli import interrupts
from pyspark_log.cli.support import one_line
from pyspark_log.cli.target import Target
from pyspark_log.errors import PylogError

_BROKEN_PIPE = 141

#: The commands, each in the file of its name, with the first sentence of its help. A command is loaded when it is
#: asked for: most need pyarrow, which takes a second.
COMMANDS = {
    "backup": "Copy the store as it is at one moment into a new folder, while processes read it and write to it.",
    "clean": "Delete what exceeds TOPIC's retention; without TOPIC, clean all topics and the store itself.",
    "compact": "Compact TOPIC: keep the last record of each key.",
    "configs": "Print what can be set of a topic, a store or the connector, with defaults, units and meaning.",
    "consume": "Print the records of TOPIC.",
    "doctor": "Test whether the file system of the folder PATH does what a store needs.",
    "du": "Print how large each TOPIC is: bytes, segments and records; the largest first, all if none is named.",
    "dump": "Print the record batches of segment files (.log), a line each, in the words of Kafka's own dump.",
    "export-kafka": "Copy TOPIC into a new FOLDER in the layout of Kafka, for a broker to take over.",
    "groups": "List, describe, delete and reset consumer groups (a streaming query is one, too).",
    "import-kafka": (
        "Copy topics from FOLDER, in which a Kafka broker keeps its logs, into the store; offsets stay as they are."
    ),
    "jobs": "List the jobs for spark-submit, and print where they are.",
    "log-dirs": "List, describe, add and remove log dirs (Kafka's log.dirs), and move partitions between them.",
    "offsets": "Print earliest and latest offset and size of each partition of each TOPIC; of all if none is named.",
    "perf": "Measure how fast this store is written to and read.",
    "produce": "Append each line of standard input to TOPIC as a record.",
    "publishers": (
        "List, describe and delete publishers: streaming queries, transactional ids, batch writes with a publishId."
    ),
    "recover": "Apply decided publishes that are not visible everywhere yet.",
    "repair": "Create a repaired copy of the store in a new folder; the store itself is not changed.",
    "tail": "Print the last records of each partition of TOPIC, and then new ones as they come.",
    "top": "Show what is written to each TOPIC, and how far its groups are, as it changes; all if none is named.",
    "topics": "Create, list, describe, alter and delete topics.",
    "verify": (
        "Look for damage anywhere in the store: every byte of every segment, indexes, states, what was published."
    ),
}

# The packages of the commands, with their headings in the help; a command that is in none has its file in this folder.
_PACKAGES = {
    "topics": ("Topics", ("configs", "du", "offsets", "top", "topics")),
    "records": ("Records", ("consume", "dump", "perf", "produce", "tail")),
    "groups": ("Groups", ("groups",)),
    "maintenance": ("Maintenance", (
        "backup", "clean", "compact", "doctor", "export-kafka", "import-kafka", "jobs", "log-dirs", "publishers",
        "recover", "repair", "verify",
    )),
}  # fmt: skip


def _module(command: str) -> str:
    """The name of the module that a command is in."""
    packages = [f"{package}." for package, (_, names) in _PACKAGES.items() if command in names]
    return f"pyspark_log.cli.{''.join(packages)}{command.replace('-', '_')}"


class _Commands(click.Group):
    """Turns what a command raises into an exit code and one line."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any  # noqa: ANN401
    ) -> click.Context:
        """Reads what is given before the command."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt:
            raise SystemExit(interrupts.INTERRUPTED) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, which is loaded by this."""
        if cmd_name not in COMMANDS:
            return None
        with interrupts.fatal():
            command = getattr(importlib.import_module(_module(cmd_name)), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands, and loads none of them."""
        width = formatter.width - 6 - max(map(len, COMMANDS))
        sections = [*_PACKAGES.values()]
        grouped = {name for _, names in sections for name in names}
        for heading, names in [*sections, ("Others", tuple(COMMANDS.keys() - grouped))]:
            cut = [(name, click.Command(name, help=COMMANDS[name]).get_short_help_str(width)) for name in sorted(names)]
            if cut:
                with formatter.section(heading):
                    formatter.write_dl(cut)

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command that was asked for."""
        try:
            result = super().invoke(ctx)
            # Here and not at exit, where a full disk or a closed pipe would end in a traceback.
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes standard output once more when it ends; that must go somewhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # noqa: TID251  (no file of a store)
            ctx.exit(_BROKEN_PIPE)
        except KeyboardInterrupt:
            ctx.exit(interrupts.INTERRUPTED)
        except (PylogError, OSError) as error:
            raise click.ClickException(one_line(error)) from error
        return result


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store", metavar="PATH", envvar="PYLOG_STORE",
    help="The folder of the store (or set PYLOG_STORE).",
)
@click.version_option(__version__, prog_name="pylog")
@click.pass_context
def main(ctx: click.Context, store: str | None) -> None:
    """Kafka's log in plain files: topics, records, offsets and groups of a store."""
    ctx.obj = Target(store)


if __name__ == "__main__":
    main()
