"""What is before a value: nothing, Confluent's five bytes, or the ten of Avro's single objects.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html ("Wire format");
Apache Avro specification 1.12, "Single-object encoding". After Confluent's five bytes Protobuf has the place of the
message in its file: how many numbers follow, and these, each as `encoded_long` has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

Framing = Literal["none", "confluent", "single-object"]
FRAMINGS: tuple[Framing, ...] = ("none", "confluent", "single-object")

_MAGIC = b"\0"
_SINGLE_OBJECT = b"\xc3\x01"
#: Bytes before a value.
SIZES: dict[Framing, int] = {"none": 0, "confluent": 5, "single-object": 10}


class NoFrameError(Exception):
    """A value does not begin as its framing has it; the message says why."""


@dataclass(frozen=True)
class Prefixes:
    """How the values of a batch begin.

    Attributes:
        numbers: what `looked_up` has returned for each kind of beginning; None: there is no such schema.
        which: the number of each value's in `numbers`; null: the value is null.
        problems: by the number of one that is None: why.
    """

    numbers: list[int | None]
    which: pa.Array
    problems: dict[int, str]


def prefixes(values: pa.Array, framing: Framing, looked_up: Callable[[bytes], int]) -> Prefixes:
    """How values begin.

    Args:
        values: binary.
        framing: not "none".
        looked_up: a number of the caller's for a beginning, which is as long as the framing has it; each is asked for
            once. NoFrameError: there is none.
    """
    encoded = pc.binary_slice(values, 0, SIZES[framing]).dictionary_encode()
    numbers, problems = list[int | None](), dict[int, str]()
    for number, begin in enumerate(encoded.dictionary.to_pylist()):
        try:
            _check(begin, framing)
            numbers.append(looked_up(begin))
        except NoFrameError as error:
            numbers.append(None)
            problems[number] = str(error)
    return Prefixes(numbers, encoded.indices, problems)


def _check(begin: bytes, framing: Framing) -> None:
    magic = _MAGIC if framing == "confluent" else _SINGLE_OBJECT
    if not begin.startswith(magic):
        expected = "Confluent's zero byte" if framing == "confluent" else "a single object's c3 01"
        raise NoFrameError(f"it begins with {begin[:2].hex(' ') or 'nothing'}, not with {expected}")
    if len(begin) < SIZES[framing]:
        raise NoFrameError(f"it has {len(begin)} bytes, fewer than the {SIZES[framing]} before a value")


def confluent_prefix(number: int) -> bytes:
    """The five bytes before a value whose schema has a number."""
    return _MAGIC + number.to_bytes(4, "big")


def number_in(prefix: bytes) -> int:
    """The number of the schema in Confluent's five bytes."""
    return int.from_bytes(prefix[1:], "big")


def single_object_prefix(fingerprint: bytes) -> bytes:
    """The ten bytes before a single object, whose schema has a fingerprint."""
    return _SINGLE_OBJECT + fingerprint


def fingerprint_in(prefix: bytes) -> bytes:
    """The fingerprint of the schema in the ten bytes before a single object."""
    return prefix[2:]


def encoded_long(number: int) -> bytes:
    """A number as Avro has its int and long, and Confluent the place of a message: zigzag, seven bits a byte."""
    rest, data = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    data.append(rest)
    return bytes(data)
