"""`pylog jobs`: the jobs for spark-submit, which are read as files: no pyspark is needed."""

from __future__ import annotations

import ast
from pathlib import Path

import click

import pyspark_log
from pyspark_log.cli.support import CommandGroup, json_option, print_json, print_table
from pyspark_log.near_names import did_you_mean


@click.group(cls=CommandGroup)
def jobs() -> None:
    """List the jobs for spark-submit, and print their paths."""


@jobs.command("list")
@json_option
def list_jobs(as_json: bool) -> None:
    """Print the name of each job and what it does."""
    found = {name: _what(path) for name, path in _jobs().items()}
    if as_json:
        print_json([{"name": name, "what": what} for name, what in found.items()])
    else:
        print_table(("NAME", "WHAT"), found.items())


@jobs.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the path of the job NAME: `spark-submit $(pylog jobs path NAME) ...`."""
    found = _jobs()
    if name not in found:
        raise click.UsageError(
            f"There is no job {name!r}" + (did_you_mean(name, found) or f"; there are: {', '.join(found)}")
        )
    click.echo(str(found[name]))


def _jobs() -> dict[str, Path]:
    """The files of the jobs, by their names."""
    folder = Path(pyspark_log.__file__).resolve().parent / "jobs"
    return {one.stem: one for one in sorted(folder.glob("*.py")) if not one.stem.startswith("_")}


def _what(job: Path) -> str:
    """The first sentence of a job's docstring, without what follows a colon or a dot."""
    text = ast.get_docstring(ast.parse(job.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0].rstrip(":.")
