"""The isolation levels of readers (`isolation.level`), by Kafka's names."""

from __future__ import annotations

from pyspark_log.errors import InvalidConfigError

READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"


def check_isolation(level: str) -> bool:
    """Whether only committed records are to be read. InvalidConfigError: there is no such level."""
    if level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidConfigError(f"isolation.level = {level!r}: must be {READ_UNCOMMITTED} or {READ_COMMITTED}")
    return level == READ_COMMITTED
