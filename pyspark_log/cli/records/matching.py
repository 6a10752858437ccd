"""Records in whose key or value a regular expression is found."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def matching(batch: pa.RecordBatch, pattern: str) -> pa.RecordBatch:
    """The records in whose key or value the pattern (RE2) is found."""
    found = [pc.match_substring_regex(batch.column(name), pattern).fill_null(False) for name in ("key", "value")]
    return batch.filter(pc.or_(*found))


def pattern_problem(pattern: str) -> str | None:
    """Why a text is no regular expression (RE2); None: it is one."""
    try:
        pc.match_substring_regex(pa.array([b""]), pattern)
    except pa.ArrowInvalid as error:
        return str(error)
    return None
