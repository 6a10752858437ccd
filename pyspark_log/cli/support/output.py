"""What the commands print: aligned tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence

import click

from pyspark_log.errors import PylogError

#: Shown where a table has nothing to say.
NOTHING = "-"

_FIGURE = re.compile(r"-?[\d.]+( ([KMGT]i)?B)?")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def print_json(document: object) -> None:
    """Prints one JSON document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def warn(text: str) -> None:
    """Prints a warning on standard error."""
    click.echo(f"Warning: {text}", err=True)


def one_line(error: Exception) -> str:
    """An error in one line, those of the engine with their names."""
    if isinstance(error, click.ClickException):
        return error.format_message()
    return " ".join((f"[{error.condition}] {error}" if isinstance(error, PylogError) else str(error)).split())


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows under their headings, in columns as wide as they need; numbers are aligned to the right."""
    heading, _, body = table_text(headings, rows).partition("\n")
    click.echo(_styled(heading, bold=True) + (f"\n{body}" if body else ""))


def table_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The lines that `print_table` prints."""
    cells = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [
        len(column) > 1 and all(_is_figure(cell) for cell in column[1:])
        for column in zip(*cells, strict=True)
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    )


def cell(value: object) -> object:
    """A value as a cell of a table."""
    return NOTHING if value is None else value


def plural(count: int, noun: str) -> str:
    """A number of things: 1 record, 2 records."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def good(text: str) -> str:
    """A text that says that all is well; green in a terminal."""
    return _styled(text, fg="green")


def alert(text: str) -> str:
    """A text that says that something is wrong; red in a terminal."""
    return _styled(text, fg="red", bold=True)


def _styled(text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
    # click.echo removes the style where the output is no terminal. See no-color.org.
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=fg, bold=bold)


def human_size(size: int) -> str:
    """A number of bytes as people write it: 512 B, 1.5 KiB, 30.2 MiB."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def _is_figure(cell: str) -> bool:
    """Whether a cell is a number or a size, and no name that begins with a digit."""
    return cell == NOTHING or _FIGURE.fullmatch(cell) is not None
