"""Where a query starts or ends, as its options say it, before a store is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_log.spark_connector.offsets import Offsets
from pyspark_log.types import EARLIEST, LATEST


@dataclass(frozen=True)
class Everywhere:
    """The same sentinel in every partition: -2 (earliest) or -1 (latest)."""

    offset: int


@dataclass(frozen=True)
class Specific:
    """An offset or sentinel for each partition; it must name exactly the partitions there are."""

    offsets: Offsets


@dataclass(frozen=True)
class AtTimestamp:
    """In every partition the first record whose time is `timestamp` (ms since 1970) or later."""

    timestamp: int


Position = Everywhere | Specific | AtTimestamp

AT_EARLIEST = Everywhere(EARLIEST)
AT_LATEST = Everywhere(LATEST)
