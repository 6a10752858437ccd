"""Columns of text as JSON."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def quoted(text: pa.Array) -> pa.Array:
    """Strings as JSON has them; nulls stay."""
    text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, "[\\x00-\\x1f]")).as_py():
        for code in range(32):
            text = pc.replace_substring(text, chr(code), f"\\u{code:04x}")
    return pc.binary_join_element_wise('"', text, '"', "")
