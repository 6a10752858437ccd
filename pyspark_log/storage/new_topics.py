"""A topic that a write creates keeps what the write brings, however old that is."""

from __future__ import annotations

import logging

from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.store import Store

log = logging.getLogger(__name__)


def keep_first_records(store: Store, topic: str, oldest: int | None) -> None:
    """Ends the retention by time of a topic that a write has created, if it may delete what the write brings.

    Else the first load of old events would be there once, and be gone after the next write.

    Args:
        store: the store.
        topic: has no records yet.
        oldest: the time (ms) of the oldest record to come; None: it is not known, and may be any.

    Raises:
        Exception: as Store.alter_configs.
    """
    if not store.publishes.is_past_retention(topic, oldest or 0):
        return
    store.alter_configs(topic, {"retention.ms": "-1"})
    log.warning(
        "%s: topic %s is created with retention.ms=-1, as its first records are of %s: the retention of the "
        "store would delete them. Set retention.ms to have old records deleted",
        store.path,
        topic,
        "times of their own" if oldest is None else f"{format_time(oldest)} and later",
    )
