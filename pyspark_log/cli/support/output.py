"""What the commands print: aligned tables for people, JSON for programs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest

import click

from pyspark_log.errors import PylogError, condition_of

#: Shown where a table has nothing to say.
NOTHING = "-"

#: The colour of a cell, from the heading of its column and its text; None: none.
Colour = Callable[[str, str], str | None]

# No column is made narrower than this, to fit into a terminal.
_LEAST_WIDTH = 16
_FIGURE = re.compile(r"-?[\d.]+( ([KMGT]i)?B)?")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def print_json(document: object) -> None:
    """Prints one JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def warn(text: str) -> None:
    """Prints a warning on standard error."""
    click.echo(f"Warning: {text}", err=True)


@contextlib.contextmanager
def incomplete_if_interrupted(folder: str) -> Iterator[None]:
    """Warns at Ctrl-C that what is made in a folder is not complete."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted: what is in {folder} is incomplete, and a copy is made only in a new or empty place")
        raise


def one_line(error: Exception) -> str:
    """An error in one line, those of the engine and of files with their names."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    named = isinstance(error, PylogError) or (isinstance(error, OSError) and error.filename is not None)
    return " ".join((f"[{condition_of(error)}] {error}" if named else str(error)).split())


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows under their headings; numbers are aligned to the right.

    Cells are wrapped to fit a terminal. If their longest words do not fit side by side, each row becomes a paragraph.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    cells = [[str(cell) for cell in row] for row in rows]
    text = table_text(headings, cells, width)
    heading, _, body = text.partition("\n")
    if cells and max(map(len, text.splitlines())) > width:
        for row in cells:
            click.echo(_paragraph(headings, row, width) + "\n")
    else:
        click.echo(strong(heading) + (f"\n{body}" if body else ""))


def table_text(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    width: int = sys.maxsize,
    colour: Colour = lambda *_: None,
) -> str:
    """The lines of a table.

    Args:
        headings, rows: its cells.
        width: of the terminal, in characters; cells of a wider table are wrapped between words.
        colour: gives a cell, also a heading, its colour.
    """
    cells = [list(headings), *([str(cell) for cell in row] for row in rows)]
    columns = list(zip(*cells, strict=True))
    widths = _fitted(columns, width)
    numeric = [len(column) > 1 and all(_is_figure(cell) for cell in column[1:]) for column in columns]
    return "\n".join(
        "  ".join(
            _coloured(cell.rjust(width) if right else cell.ljust(width), colour(heading, cell))
            for heading, cell, width, right in zip(headings, line, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
        for line in _wrapped(row, widths)
    )


def _fitted(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widths of columns: as wide as their cells, or, to fit into `width`, narrower, but not than a word."""
    widths = [max(map(len, column)) for column in columns]
    over = sum(widths) + 2 * (len(widths) - 1) - width
    least = [max(_LEAST_WIDTH, *(len(word) for cell in column for word in cell.split())) for column in columns]
    while over > 0 and any(wide > few for wide, few in zip(widths, least, strict=True)):
        widest = max(range(len(widths)), key=lambda number: (widths[number] > least[number], widths[number]))
        widths[widest] -= 1
        over -= 1
    return widths


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> Iterable[tuple[str, ...]]:
    """The lines of a row."""
    if all(len(cell) <= width for cell, width in zip(row, widths, strict=True)):
        return [tuple(row)]
    lines = [textwrap.wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    return zip_longest(*lines, fillvalue="")


def _paragraph(headings: Sequence[str], row: Sequence[str], width: int) -> str:
    """A row as lines of a heading and a cell each; those that have nothing to say are left out."""
    indent = max(map(len, headings)) + 2
    return "\n".join(
        strong(heading)
        + textwrap.fill(
            cell,
            width,
            initial_indent=" " * indent,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )[len(heading) :]
        for heading, cell in zip(headings, row, strict=True)
        if cell not in ("", NOTHING)
    )


def cell(value: object) -> object:
    """A value as a cell of a table."""
    return NOTHING if value is None else value


def good(text: str) -> str:
    """A text that says that all is well; green in a terminal."""
    return _styled(text, fg="green")


def alert(text: str) -> str:
    """A text that says that something is wrong; red in a terminal."""
    return _styled(text, fg="red", bold=True)


def strong(text: str) -> str:
    """A heading; bold in a terminal."""
    return _styled(text, bold=True)


def _coloured(text: str, colour: str | None) -> str:
    return _styled(text, fg=colour) if colour else text


def _styled(text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
    # click.echo removes the style where the output is no terminal. See no-color.org.
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=fg, bold=bold)


def _is_figure(cell: str) -> bool:
    """Whether a cell is a number or a size, and no name that begins with a digit."""
    return cell == NOTHING or _FIGURE.fullmatch(cell) is not None
