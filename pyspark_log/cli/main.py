"""`pylog`: the command group, and the parts that all commands share.

Exit codes: 0 done; 1 failed (one line on standard error says why); 2 wrong usage;
130 stopped by Ctrl-C; 141 the reader of the output has closed it.
"""

from __future__ import annotations

import importlib
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from pyspark_log import __version__
from pyspark_log.cli import interrupts
from pyspark_log.cli.kafka_spelling import kafka_spelling
from pyspark_log.cli.support import CommandGroup, one_line, with_store_option
from pyspark_log.cli.target import Target
from pyspark_log.errors import PylogError, condition_of

_BROKEN_PIPE = 141

#: The commands, each in the file of its name, with the first sentence of its help. A command is loaded when it is
#: asked for: most need pyarrow, which takes a second.
COMMANDS = {
    "acls": "Add, list and remove what clients of `pylog serve --acls` may do.",
    "backup": "Copy the store, as it is at one moment, into a new folder or URL while it stays in use.",
    "clean": "Delete what exceeds TOPIC's retention, or that of all topics.",
    "cluster": "Make and run a cluster on this machine: three controllers of Kafka, and nodes of pylog.",
    "compact": "Compact TOPIC: keep the last record of each key.",
    "configs": "List the configs of topics and stores, and the options of Spark's connector.",
    "consume": "Print the records of TOPIC.",
    "doctor": "Check whether the file system of the folder PATH, or an object store, can hold a store.",
    "du": "Print the size of each TOPIC: bytes, segments and records.",
    "dump": "Print the record batches of segment files (.log), as Kafka's dump tool does.",
    "explain": "Say what the NAME of an error means, and what to do about it.",
    "export-kafka": "Copy TOPIC into a new FOLDER that a Kafka broker can take over.",
    "groups": "List, describe, delete and reset consumer groups.",
    "jobs": "List the jobs for spark-submit, and print their paths.",
    "log-dirs": "List, describe, add and remove log dirs, and move partitions between them.",
    "merge": "Merge small pieces of TOPIC into larger objects, or those of all topics.",
    "metrics": "Print sizes, offsets, lag and publishers for Prometheus, or serve them.",
    "mirror": "Mirror topics of SOURCE into the store, byte for byte.",
    "move-job": "Print what must change in PySpark programs for Kafka, as a diff, and what is left to do by hand.",
    "offsets": "Print the earliest and latest offset and the size of each partition of TOPIC.",
    "perf": "Measure how fast this store can be written and read.",
    "produce": "Append each line of standard input to TOPIC as a record.",
    "publishers": "List, describe and delete publishers: streaming queries, and transactions of Python's Producer.",
    "quotas": "Set, list and remove how much clients of `pylog serve` may use.",
    "recover": "Apply publishes that are decided but not visible everywhere yet.",
    "repair": "Create a repaired copy of a damaged store in a new folder.",
    "serve": "Serve the store to Kafka's clients, until Ctrl-C or SIGTERM.",
    "tail": "Print the last records of each partition of TOPIC, then new ones as they arrive.",
    "top": "Watch how fast each TOPIC grows and how far its groups lag.",
    "topics": "Create, list, describe, alter and delete topics.",
    "ui": "Show topics, records, groups and publishes in a browser, until Ctrl-C.",
    "upkeep": "Do what a store needs now and then: retention, compaction, merging, and pending publishes.",
    "users": "Add, list and remove the users that log in to `pylog serve` by a password.",
    "verify": "Check the whole store for damage.",
}

# The commands by their headings in the help, and under these by the packages that have a file for each.
_HEADINGS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Topics": {"topics": ("configs", "du", "offsets", "top", "topics")},
    "Records": {"records": ("consume", "dump", "tail"), "producing": ("perf", "produce")},
    "Groups": {"groups": ("groups",)},
    "In and out": {"transfer": ("backup", "export-kafka", "jobs", "mirror", "move-job")},
    "Maintenance": {"maintenance": (
        "clean", "compact", "doctor", "explain", "log-dirs", "merge", "publishers", "recover", "repair", "upkeep",
        "verify",
    )},
    "Server": {"serving": ("acls", "cluster", "metrics", "quotas", "serve", "ui", "users")},
}  # fmt: skip
_PACKAGES = {
    command: package for by_package in _HEADINGS.values() for package, names in by_package.items() for command in names
}


def _module(command: str) -> str:
    """The name of the module that a command is in."""
    return f"pyspark_log.cli.{_PACKAGES[command]}.{command.replace('-', '_')}"


# Where the words of the call are kept, for `kafka_spelling`.
_WORDS = "pyspark_log.cli.words"


class _Commands(CommandGroup):
    """Turns what a command raises into an exit code and one line."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401
    ) -> click.Context:
        """Reads what is given before the command."""
        words = list(args)
        try:
            found = super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt:
            raise SystemExit(interrupts.INTERRUPTED) from None
        found.meta[_WORDS] = words
        return found

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
        with_store_option(command, _keep_store)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands, and loads none of them."""
        for heading, by_package in _HEADINGS.items():
            names = sorted(name for names in by_package.values() for name in names)
            with formatter.section(heading):
                formatter.write_dl([(name, COMMANDS[name]) for name in names])

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
        except click.NoSuchOption as error:
            line = kafka_spelling(ctx.meta.get(_WORDS, ()), error.option_name, has_store=bool(ctx.obj.path))
            if line is None:
                raise
            raise click.UsageError(f"{error.message.rstrip('.')}. Use instead: {line}", error.ctx) from error
        except (PylogError, OSError) as error:
            text = _without_right(error, ctx.obj) if isinstance(error, PermissionError) else ""
            raise click.ClickException(text or one_line(error)) from error
        return result


def _without_right(error: PermissionError, target: Target | None) -> str:
    """Which user may not do what with a file of the store; "": it is none of its files."""
    from pyspark_log.storage.fs import files  # noqa: PLC0415

    path, file = os.path.abspath(target.path) if target and target.path else "", str(error.filename or "")
    if not path or not file.startswith(f"{path}/"):
        return ""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    reads = not files.may(path, os.X_OK) or (files.exists(file) and not files.may(file, os.R_OK))
    what = "read" if reads else "write to"
    return (
        f"[{condition_of(error)}] user {user} may not {what} {file}, of the store {path}: see "
        "docs/guides/troubleshooting.md#several-users"
    )


def _keep_store(ctx: click.Context, _parameter: click.Parameter, path: str | None) -> None:
    """The callback of --store: the last one given counts."""
    if path is not None or ctx.obj is None:
        ctx.obj = Target(path)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--store",
    metavar="PATH",
    envvar="PYLOG_STORE",
    expose_value=False,
    callback=_keep_store,
    help="The folder or URL of the store (or set PYLOG_STORE). Can also be given after the command.",
)
@click.version_option(__version__, prog_name="pylog")
def main() -> None:
    """Kafka's log in plain files: the topics, records, offsets and groups of a store."""


if __name__ == "__main__":
    main()
