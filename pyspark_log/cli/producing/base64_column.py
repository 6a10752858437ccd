"""Base64 texts to bytes, a column at a time."""

from __future__ import annotations

import binascii

import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def decoded(texts: pa.Array) -> pa.Array:
    """The bytes of each text, as large_binary; null for null. ValueError: one of them is no base64."""
    given = texts.fill_null("")
    wrong = pc.index(pc.match_substring_regex(given, _WHOLE), False).as_py()
    if wrong >= 0:
        raise ValueError(f"{given[wrong].as_py()!r} is no base64")
    # All are decoded as one text, in which padding is zeros; the bytes that these become are cut off afterwards.
    zeros = pc.replace_substring(given, "=", "A")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(zeros)], pa.int32()), zeros), "")[0]
    ends = pc.cumulative_sum(pc.multiply(pc.divide(pc.binary_length(zeros), 4), 3)).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    data = pa.py_buffer(binascii.a2b_base64(joined.as_buffer() or b""))
    full = pa.Array.from_buffers(pa.large_binary(), len(texts), [None, offsets.buffers()[1], data])
    padding = pc.count_substring(given, "=")
    cut = pc.if_else(pc.equal(padding, 1), pc.binary_slice(full, 0, -1), pc.binary_slice(full, 0, -2))
    return pc.if_else(pc.and_(texts.is_valid(), pc.equal(padding, 0)), full, pc.if_else(texts.is_valid(), cut, None))
