"""`pylog`: the command itself, and what all its commands have in common.

Exit codes: 0 done; 1 it could not be done (one line on standard error says why); 2 it was called wrongly;
130 stopped by Ctrl-C; 141 whoever read the output has gone away.
"""

from __future__ import annotations

import os
import sys

import click

from pyspark_log import __version__
from pyspark_log.cli.clean import clean
from pyspark_log.cli.compact import compact
from pyspark_log.cli.consume import consume
from pyspark_log.cli.doctor import doctor
from pyspark_log.cli.dump import dump
from pyspark_log.cli.export_kafka import export_kafka
from pyspark_log.cli.groups import groups
from pyspark_log.cli.import_kafka import import_kafka
from pyspark_log.cli.log_dirs import log_dirs
from pyspark_log.cli.offsets import offsets
from pyspark_log.cli.output import told
from pyspark_log.cli.produce import produce
from pyspark_log.cli.publishers import publishers
from pyspark_log.cli.recover import recover
from pyspark_log.cli.repair import repair
from pyspark_log.cli.target import Target
from pyspark_log.cli.topics import topics
from pyspark_log.cli.verify import verify
from pyspark_log.storage.errors import PylogError

_INTERRUPTED = 130
_BROKEN_PIPE = 141


class _Commands(click.Group):
    """Turns what a command raises into an exit code and one line."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command that was asked for."""
        try:
            result = super().invoke(ctx)
            # Here and not at exit, where a full disk or a closed pipe would end in a traceback.
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes standard output once more when it ends; that must go somewhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(_BROKEN_PIPE)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)
        except (PylogError, OSError) as error:
            raise click.ClickException(told(error)) from error
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


for command in (
    topics, produce, consume, offsets, groups, publishers, dump, log_dirs, clean, compact, doctor, verify, recover,
    repair, import_kafka, export_kafka,
):  # fmt: skip
    main.add_command(command)


if __name__ == "__main__":
    main()
