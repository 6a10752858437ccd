"""`pylog move-job`: what must change in PySpark programs for Kafka, so that they read and write a store."""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import json_option, plural, print_json
from pyspark_log.cli.target import Target
from pyspark_log.storage.fs import files

if TYPE_CHECKING:
    from pyspark_log.move_job import MovedProgram

_CHANGES, _TROUBLE = 1, 2
_LARGEST = 16 * 2**20
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class _File:
    """A file that was given.

    Attributes:
        path: as it was given.
        before: its bytes.
        moved: what becomes of it; None: it cannot be read.
        error: why not.
    """

    path: str
    before: bytes = b""
    moved: MovedProgram | None = None
    error: str = ""

    @property
    def is_changed(self) -> bool:
        return self.moved is not None and self.moved.source != self.before

    @property
    def needs_a_person(self) -> bool:
        return self.moved is not None and any(note.needed for note in self.moved.notes)


@click.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--write", is_flag=True, help="Write the files, each at once and with its mode and encoding.")
@json_option
@click.pass_context
def move_job(context: click.Context, paths: Sequence[str], write: bool, as_json: bool) -> None:
    """Print what must change in PySpark programs for Kafka, as a diff, and what is left to do by hand.

    --store is what the programs get in place of kafka.bootstrap.servers. Nothing of a FILE is run. What is not certain
    stays as it is, and a note on standard error has its line, and what to do.

    Exit codes: 0: nothing is to change or to do; 1: something is to change, or, with --write, something is left to do
    by hand; 2: wrong usage, or a FILE cannot be read.
    """
    if find_spec("libcst") is None:
        click.echo("Error: move-job needs LibCST: pip install 'pyspark-log[move]'", err=True)
        context.exit(_TROUBLE)
    target = context.find_object(Target)
    programs = [_read(path, target.path if target else None) for path in paths]
    if write:
        for program in programs:
            _write(program)
    if as_json:
        print_json({"files": [_document(program, write) for program in programs]})
    else:
        _print(programs, write)
    is_open = any(program.needs_a_person or (program.is_changed and not write) for program in programs)
    context.exit(_TROUBLE if any(program.error for program in programs) else _CHANGES if is_open else 0)


def _read(path: str, store: str | None) -> _File:
    with interrupts.fatal():
        from pyspark_log.move_job import UnreadableError, move  # noqa: PLC0415
    try:
        source = files.read_whole(path, _LARGEST)
    except (OSError, ValueError) as error:
        return _File(path, error=str(error))
    try:
        return _File(path, source, move(source, store))
    except UnreadableError as error:
        return _File(path, source, error=str(error))


def _write(program: _File) -> None:
    if program.moved is None or not program.is_changed:
        return
    path = files.real_path(program.path)
    before = os.umask(0)  # The new file has the mode of the old one, whatever this user's is.
    try:
        files.replace_whole(path, program.moved.source, mode=stat.S_IMODE(files.status_of(path).st_mode))
    finally:
        os.umask(before)


def _print(programs: Sequence[_File], write: bool) -> None:
    for program in programs:
        click.echo(b"".join(_diff(program)), nl=False)
        if program.error:
            click.echo(f"{program.path}: {program.error}", err=True)
        for note in program.moved.notes if program.moved else ():
            kind = "to do" if note.needed else "note"
            click.echo(f"{program.path}:{note.line}: {kind}: {note.finding}: {note.advice}", err=True)
    changed = plural(sum(program.is_changed for program in programs), "file")
    by_hand = sum(program.needs_a_person for program in programs)
    rest = f", {plural(by_hand, 'file')} with something to do by hand" if by_hand else ""
    click.echo(f"{changed} {'changed' if write else 'to change'}{rest}", err=True)


def _document(program: _File, write: bool) -> dict[str, object]:
    notes = [note._asdict() for note in program.moved.notes] if program.moved else []
    return {
        "file": program.path,
        "changed": program.is_changed,
        "written": program.is_changed and write,
        "diff": b"".join(_diff(program)).decode(errors="replace"),
        "notes": notes,
        "error": program.error or None,
    }


def _diff(program: _File) -> Iterator[bytes]:
    """What `patch -p0` takes, in the file's own encoding."""
    if program.moved is None:
        return
    name = os.fsencode(program.path)
    before, after = _LINE.findall(program.before), _LINE.findall(program.moved.source)
    for line in difflib.diff_bytes(difflib.unified_diff, before, after, name, name):
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
