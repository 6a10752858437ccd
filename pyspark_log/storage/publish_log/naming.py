"""The names of the objects that hold records or lists of names. They have the time at which they were made."""

from __future__ import annotations

import re
import secrets

from pyspark_log.types import TopicPartition

#: What objects of staged output begin with, those of merged records, and lists of what nothing needs.
STAGED, MERGED, UNUSED = "data", "segments", "unused"
_TIME = re.compile(rf"(?:{STAGED}|{MERGED}|{UNUSED})/(?:[^/]*/\d{{20}}-)?(\d{{13}})-[0-9a-f]{{24}}(?:\.log)?")


def new(kind: str, now: int) -> str:
    """A new name of a kind, with the time (ms)."""
    return f"{kind}/{_unique(now)}"


def segment(at: TopicPartition, base_offset: int, now: int) -> str:
    """A new name for merged records of one partition: Kafka's name of the segment, after its partition's folder."""
    return f"{MERGED}/{at}/{base_offset:020}-{_unique(now)}.log"


def staged_time(name: str) -> int | None:
    """The time in a name (ms); None: it has none, as those of the log's entries."""
    found = _TIME.fullmatch(name)
    return int(found[1]) if found else None


def _unique(now: int) -> str:
    return f"{now:013}-{secrets.token_hex(12)}"
