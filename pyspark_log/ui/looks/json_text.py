"""JSON by its parts, none of which is lost: with other space, in colours, or as the fields of an object."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from pyspark_log.ui.bounds import COLOURED_CHARACTERS

# The parts of a JSON text that is one: strings, signs, and numbers or words.
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"\s]+')
# What has a colour: a name with its colon, another string, a number, a word.
_COLOURED = re.compile(
    r'("(?:[^"\\]|\\.)*")(?=\s*:)|("(?:[^"\\]|\\.)*")|(-?\d[\d.eE+-]*)|(\btrue\b|\bfalse\b|\bnull\b)'
)
_CLASSES = ("", "name", "string", "digits", "word")
_OPENING, _CLOSING = ("[", "{"), ("]", "}")


def spaced(text: str, *, is_laid_out: bool) -> Iterator[str]:
    """The parts of a JSON text with other space between them, and else as they are."""
    depth, before = 0, ""
    for match in _PART.finditer(text):
        part = match[0]
        if part in _CLOSING:
            depth -= 1
        if before in _OPENING and part in _CLOSING:
            pass  # empty ones stay together
        elif is_laid_out and (before in (*_OPENING, ",") or part in _CLOSING):
            yield "\n" + "  " * depth
        elif before in (",", ":"):
            yield " "
        if part in _OPENING:
            depth += 1
        yield part
        before = part


def coloured(text: str) -> Markup:
    """A JSON text with classes for its parts; a long one without."""
    if len(text) > COLOURED_CHARACTERS:
        return escape(text)
    pieces, end = list[str | Markup](), 0
    for part in _COLOURED.finditer(text):
        pieces.append(text[end : part.start()])
        pieces.append(Markup('<span class="{}">{}</span>').format(_CLASSES[part.lastindex or 0], part[0]))
        end = part.end()
    return Markup("").join([*pieces, text[end:]])


def fields(text: str) -> dict[str, str]:
    """The top-level fields of a JSON object, as they are written, but for quotes; of another value none."""
    by_name = dict[str, str]()
    if not text.startswith("{"):
        return by_name
    depth, start, name, before = 0, 0, None, ""
    for match in _PART.finditer(text):
        part = match[0]
        depth += (part in _OPENING) - (part in _CLOSING)
        if name is not None and ((depth == 1 and part == ",") or depth == 0):
            by_name[name], name = _unquoted(text[start : match.start()].strip()), None
        elif depth == 1 and part == ":" and name is None:
            name, start = _unquoted(before), match.end()
        before = part
    return by_name


def _unquoted(text: str) -> str:
    return text[1:-1] if text.startswith('"') else text
