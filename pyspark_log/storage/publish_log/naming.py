"""The names of a store's objects. Those of records and of lists of names have the time at which they were made.

A name is the engine's only if the whole of it is: others may keep what they like below the prefix of a store.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from pyspark_log.types import TopicPartition

#: What objects of staged output begin with, those of merged records, lists of what nothing needs, and documents.
STAGED, MERGED, UNUSED, DOCUMENTS = "data", "segments", "unused", "access"
#: What objects begin with that are numbered: entries and what is made of them, and floors.
NUMBERED: Final = ("log", "sum", "checkpoint", "floor")
_SHARED = rf"(?:{STAGED}|{MERGED}|{UNUSED}|{DOCUMENTS})/([0-9]{{13}})-[0-9a-f]{{24}}"
_SEGMENT = rf"{MERGED}/[A-Za-z0-9._-]+-[0-9]+/[0-9]{{20}}-([0-9]{{13}})-[0-9a-f]{{24}}\.log"
_TIMED = re.compile(f"{_SHARED}|{_SEGMENT}")
_NUMBER = re.compile(rf"({'|'.join(NUMBERED)})/([0-9]{{20}})")


def new(kind: str, now: int) -> str:
    """A new name of a kind, with the time (ms)."""
    return f"{kind}/{_unique(now)}"


def segment(at: TopicPartition, base_offset: int, now: int) -> str:
    """A new name for merged records of one partition: Kafka's name of the segment, after its partition's folder."""
    return f"{MERGED}/{at}/{base_offset:020}-{_unique(now)}.log"


def staged_time(name: str) -> int | None:
    """The time in a name (ms); None: it has none, as those of the log's entries."""
    found = _TIMED.fullmatch(name)
    return int(found[1] or found[2]) if found else None


def number(name: str, kind: str | None = None) -> int | None:
    """The number in a name of a kind of NUMBERED, or of any; None: it is no such name."""
    found = _NUMBER.fullmatch(name)
    return int(found[2]) if found and kind in (None, found[1]) else None


def is_given(name: str) -> bool:
    """Whether it is a name of an entry, of what is made of entries, records, a list of names, or a document."""
    return number(name) is not None or staged_time(name) is not None


def _unique(now: int) -> str:
    return f"{now:013}-{secrets.token_hex(12)}"
