"""Keys, values and headers as people read them: text, JSON, Avro or hex.

What is shown comes from records, so nothing here trusts it: texts are cut, and characters that would not be seen, or
that change the order of others, are shown by their numbers.
"""

from __future__ import annotations

import codecs
import json
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pyspark_log.ui.bounds import SHOWN_CHARACTERS
from pyspark_log.ui.looks.avro import NotAvroError, PartSchemas
from pyspark_log.ui.looks.json_text import spaced

#: The forms that can be asked for. The first one takes JSON, text or hex, whichever fits.
FORMATS = ("auto", "text", "json", "avro", "hex")
# Characters that are shown by their numbers: controls, those without a meaning, halves of pairs, and those that are
# invisible or change the direction. Line ends and tabs are not among them.
_HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs"}
_HEX_ROW = 16


class Shown(NamedTuple):
    """A key or value as it is shown.

    Attributes:
        text: what is shown.
        kind: text, json, avro, hex, or null.
        note: what the reader of the page should know; "": nothing.
    """

    text: str
    kind: str
    note: str = ""


def shown(data: bytes | None, size: int, wanted: str, schemas: PartSchemas, *, is_laid_out: bool = False) -> Shown:
    """Shows a key or value.

    Args:
        data: its first bytes; None: null.
        size: all of its bytes.
        wanted: one of FORMATS.
        schemas: those for Avro; auto is that, too, if the topic names a format.
        is_laid_out: with line ends, for a page of its own.
    """
    if data is None:
        return Shown("null", "null")
    cut = f"cut after {len(data):,} of {size:,} bytes" if len(data) < size else ""
    if wanted == "avro" or (wanted == "auto" and schemas.is_named):
        return _as_avro(data, cut, schemas, is_laid_out=is_laid_out)
    if wanted in ("auto", "json") and not cut:
        found = _checked(data, is_any=wanted == "json")
        if found is not None:
            return Shown(_cut(spaced(found, is_laid_out=is_laid_out)), "json")
    text = _text(data, is_cut=bool(cut))
    if wanted == "hex" or (wanted == "auto" and text is None):
        return Shown(_hex(data, is_laid_out=is_laid_out), "hex", cut)
    readable = visible(data.decode(errors="replace") if text is None else text)
    return Shown(readable, "text", cut or ("no JSON" if wanted == "json" else ""))


def _as_avro(data: bytes, cut: str, schemas: PartSchemas, *, is_laid_out: bool) -> Shown:
    """As hex with a note, where it cannot be."""
    problem = f"{cut}: too long to decode"
    try:
        if not cut:
            encoder = json.JSONEncoder(ensure_ascii=False, indent=2 if is_laid_out else None, default=str)
            return Shown(_cut(encoder.iterencode(schemas.decoded(data))), "avro")
    except NotAvroError as error:
        problem = str(error)
    return Shown(_hex(data, is_laid_out=is_laid_out), "hex", problem)


def visible(text: str) -> str:
    """A text in which each character can be seen."""
    if text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(one):x}}}" if one not in "\n\t" and unicodedata.category(one) in _HIDDEN else one for one in text
    )


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """The text, if it is UTF-8 without control characters. The last character may be cut."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        return None
    return None if any(one < " " and one not in "\t\n\r" for one in text) else text


def _checked(data: bytes, *, is_any: bool) -> str | None:
    """The text of some bytes that are JSON, an object or array unless `is_any`; None: they are none, or too deep."""
    if not is_any and data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        text = data.decode(json.detect_encoding(data))
        # The numbers are not needed, and Python limits their digits.
        json.loads(text, parse_int=len, parse_float=len, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return text


def _refuse(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _cut(parts: Iterable[str]) -> str:
    """JSON from its parts; cut, as the indents of what is deep may take far more than what they indent."""
    size, kept = 0, list[str]()
    for part in parts:
        kept.append(part)
        size += len(part)
        if size > SHOWN_CHARACTERS:
            kept.append("…")
            break
    return visible("".join(kept))


def _hex(data: bytes, *, is_laid_out: bool) -> str:
    return "\n".join(_hex_rows(data)) if is_laid_out else data.hex(" ")


def _hex_rows(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _HEX_ROW):
        row = data[at : at + _HEX_ROW]
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        yield f"{at:08x}  {row.hex(' '):<{_HEX_ROW * 3 - 1}}  {letters}"
