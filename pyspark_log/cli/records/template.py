"""Templates of records, as `kcat -f` has them: `%t [%p] %o: %k %s\\n`."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.cli.records.formats import data_of, header_texts, joined, times

_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{1,2}|.?)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\", "%": b"%"}
# The text of each record, by the letter after the percent sign; the second argument is the text of null.
_COLUMNS: dict[str, Callable[[pa.RecordBatch, bytes], pa.Array]] = {
    "t": lambda batch, _: batch.column("topic"),
    "p": lambda batch, _: batch.column("partition").cast(pa.string()),
    "o": lambda batch, _: batch.column("offset").cast(pa.string()),
    "T": lambda batch, _: times(batch),
    "k": lambda batch, null: batch.column("key").fill_null(null),
    "s": lambda batch, null: batch.column("value").fill_null(null),
    "K": lambda batch, _: _sizes(batch.column("key")),
    "S": lambda batch, _: _sizes(batch.column("value")),
    "h": lambda batch, null: header_texts(batch.column("headers"), null, between=b"=", none=b""),
}


class Template:
    """A template of records.

    Attributes:
        headers: whether it needs the headers of records.
    """

    def __init__(self, text: str) -> None:
        """Raises ValueError: something unknown follows a percent sign or a backslash."""
        self._parts, end = list[bytes | str](), 0
        for token in _TOKEN.finditer(text):
            self._parts += [text[end : token.start()].encode(), _part(token)]
            end = token.end()
        self._parts.append(text[end:].encode())
        self.headers = "h" in self._parts

    def fill(self, batch: pa.RecordBatch, null: bytes) -> bytes:
        """The text of each record, one after the other; `null` is the text of null."""
        if not batch.num_rows:
            return b""
        columns = [_COLUMNS[part](batch, null) if isinstance(part, str) else part for part in self._parts]
        # The empty column repeats a template that has no column of its own.
        return data_of(joined(pa.repeat(pa.scalar(b"", pa.large_binary()), batch.num_rows), *columns, b""))


def _part(token: re.Match[str]) -> bytes | str:
    """The letter of a column, or bytes. ValueError."""
    letter, escape = token[1], token[2]
    if letter is not None:
        if letter in _COLUMNS:
            return letter
        if letter == "%":
            return b"%"
        raise ValueError(f"{token[0]} is unknown; there are %{', %'.join(_COLUMNS)} and %%")
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if escape.startswith("x") and len(escape) > 1:
        return bytes([int(escape[1:], 16)])
    raise ValueError(f"{token[0]} is unknown; there are \\n, \\t, \\r, \\0, \\xHH and \\\\")


def _sizes(column: pa.Array) -> pa.Array:
    """The number of bytes of each value as text, -1 for null."""
    return pc.binary_length(column).fill_null(-1).cast(pa.string())
