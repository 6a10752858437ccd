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


def joined_lists(lists: pa.Array, texts: pa.Array, separator: str) -> pa.Array:
    """Each list in brackets, of the texts that its elements (`lists.flatten()`) have; a null is as an empty list."""
    lengths = pc.list_value_length(lists).fill_null(0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), separator)
    return pc.binary_join_element_wise("[", joined, "]", "")
