"""Kafka's messages: requests in frames, and any message by its plan."""

from __future__ import annotations

import random
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from family import Family
from mutations import changed, noise

from pyspark_log.kafka import MessageError, decode_request, encode_request
from pyspark_log.kafka.schemas import message
from pyspark_log.kafka.wire import decode, encode
from tests.message_values import Values, all_records, all_versions, joined

#: How much memory a message takes at most for each byte of its frame, in bytes.
FACTOR = 100
# How many values of each version there are to be damaged.
_VALUES = 8
_LENGTHS = (0x7FFFFFFF, 0x7FFFFFFE, 0xFFFFFFFF, 0x80000000, 0x00FFFFFF, 0x7FFF, 0xFFFF)


class Input(NamedTuple):
    """A version of a message, and bytes that should be one; `framed`: a request with its header."""

    name: str
    version: int
    framed: bool
    data: bytes


class Messages(Family):
    """Reads requests and messages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._versions = [*all_versions(), *all_records()]

    def input(self, pick: random.Random) -> Input:
        name, version = pick.choice(self._versions)
        framed = name.endswith("Request") and pick.random() < 0.5
        whole = _bytes_of(name, version, pick.randrange(_VALUES), framed)
        kind = pick.randrange(8)
        if kind == 0:
            data = whole[: pick.randint(0, len(whole))]
        elif kind == 1:
            data = noise(pick)
        elif kind == 2:
            at = pick.randint(0, len(whole))
            data = whole[:at] + pick.choice(_LENGTHS).to_bytes(4, "big") + whole[at + 4 :]
        elif kind == 3:
            at = pick.randint(0, len(whole))
            data = whole[:at] + b"\xff" * pick.randint(1, 5) + pick.choice((b"\x0f", b"\x01", b"\x7f")) + whole[at:]
        else:
            data = changed(pick, whole, 4)
        return Input(name, version, framed, data)

    def feed(self, data: Input, counts: Counter[str]) -> None:
        try:
            if data.framed:
                read = decode_request(data.data)
            else:
                read, end = decode(message(data.name).plan(data.version), data.data, 0)
                self.must(0 <= end <= len(data.data), ValueError(end))
        except MessageError as error:
            counts[type(error).__name__] += 1
            self.must("byte" in str(error) or "version" in str(error), error)
            return
        counts["read"] += 1
        self.must(_memory(read) <= FACTOR * len(data.data) + 4096, MemoryError(_memory(read)))
        if not data.framed:
            # What was read can be written, and is the same then.
            again = joined(encode(None, None, message(data.name).plan(data.version), read))
            self.must(
                _same(decode(message(data.name).plan(data.version), again, 0)[0], read), ValueError("other bytes")
            )


@cache
def _bytes_of(name: str, version: int, seed: int, framed: bool) -> bytes:
    values = Values(name, version, seed)
    value = values.any() if seed else values.default()
    if framed:
        return joined(encode_request(value, version, seed, "a client"))
    return joined(encode(None, None, message(name).plan(version), value))


def _memory(value: Any) -> int:
    if isinstance(value, tuple):
        return sys.getsizeof(value) + sum(map(_memory, value))
    return 0 if isinstance(value, memoryview) or value is None or isinstance(value, bool) else sys.getsizeof(value)


def _same(one: Any, other: Any) -> bool:
    return one == other or repr(one) == repr(other)  # NaN is no other NaN
