"""Ways to damage bytes and JSON; the same ones for the same random numbers."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

_BYTES = (0, 1, 2, 4, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF)
_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, 1e300, float("nan"),
    "", "..", "../../x", "a/b", "x\0", "é", "\ud800", "1", "a" * 300, [], [1], [["a"]], {}, {"a": 1}, [None] * 3,
)  # fmt: skip


def changed(pick: random.Random, data: bytes, most: int, *, in_place: bool = False) -> bytes:
    """`data` with up to `most` changes; `in_place` keeps its length."""
    result = bytearray(data)
    for _ in range(pick.randint(0, most)):
        if not result:
            break
        at, kind = pick.randrange(len(result)), pick.randrange(4 if in_place else 7)
        if kind < 2:
            result[at] = pick.choice(_BYTES)
        elif kind == 2:
            result[at] ^= 1 << pick.randrange(8)
        elif kind == 3:
            result[at] = pick.randrange(256)
        elif kind == 4:
            del result[at : at + pick.randint(1, 8)]
        elif kind == 5:
            result[at:at] = pick.randbytes(pick.randint(1, 8))
        else:
            result[at:at] = result[at : at + pick.randint(1, 40)] * pick.choice((1, 2, 500))
    return bytes(result)


def noise(pick: random.Random, most: int = 200) -> bytes:
    """Any bytes, up to `most` of them."""
    return pick.randbytes(pick.randint(0, most))


def rearranged(pick: random.Random, data: bytes, width: int) -> bytes:
    """The entries of `width` bytes in another order, some of them twice or not at all."""
    entries = [data[at : at + width] for at in range(0, len(data), width)]
    for _ in range(pick.randint(1, 4)):
        if entries:
            one, other = pick.randrange(len(entries)), pick.randrange(len(entries))
            kind = pick.randrange(3)
            if kind == 0:
                entries[one], entries[other] = entries[other], entries[one]
            elif kind == 1:
                entries.insert(one, entries[other])
            else:
                del entries[one]
    return b"".join(entries)


def changed_json(pick: random.Random, content: Any) -> bytes:
    """JSON text with some of its values replaced, removed or doubled; and sometimes some of its bytes."""
    content = json.loads(json.dumps(content))
    for _ in range(pick.randint(1, 3)):
        content = _changed_value(pick, content, 0)
    data = json.dumps(content).encode()
    if pick.random() < 0.1:
        data = changed(pick, data, 3)
    if pick.random() < 0.01:
        utf_16 = data.decode(errors="replace").encode("utf-16")
        data = pick.choice((b"[" * 100_000, b'{"a":' * 100_000, utf_16, b"9" * 5000))
    return data


def _changed_value(pick: random.Random, value: Any, depth: int) -> Any:
    if isinstance(value, dict | list) and value and pick.random() < 0.9 - 0.2 * depth:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = pick.choice(keys)
        if pick.random() < 0.1:
            del value[key]
        else:
            value[key] = _changed_value(pick, value[key], depth + 1)
        return value
    if isinstance(value, int) and pick.random() < 0.3:
        return value + pick.choice((-1, 1))
    return copy.deepcopy(pick.choice(_VALUES))
