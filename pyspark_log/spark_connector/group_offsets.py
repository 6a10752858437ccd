"""Commits a streaming query's position to the offsets log, where tools that show lag look for it.

Nothing depends on these offsets: the checkpoint is the truth for the query. So a commit that fails is a warning.
"""

from __future__ import annotations

import logging

from pyspark_log.errors import PylogError
from pyspark_log.spark_connector.offsets import Offsets
from pyspark_log.storage.groups import NEVER, OffsetsLog
from pyspark_log.storage.store import Store

log = logging.getLogger(__name__)


class GroupOffsets:
    """Commits for one query; never backwards, and only what has changed."""

    def __init__(self) -> None:
        self._tried: tuple[str, Offsets] | None = None
        self._offsets_log: tuple[Store, OffsetsLog] | None = None

    def commit(self, store: Store, group: str, offsets: Offsets) -> None:
        """Records that the records before `offsets` are done. Best effort: never raises what the store raises.

        Each position is tried once, as an idle query would else try the same again a hundred times a second.
        """
        if self._tried == (group, offsets) or not store.writable:
            return
        self._tried = (group, offsets)
        try:
            committed = self._log_of(store)
            known = committed.fetch(group)
            ahead = {at: new for at, new in offsets.items() if at not in known or new > known[at].offset}
            if ahead:
                committed.commit(group, ahead, expire_timestamp=NEVER)
        except (PylogError, OSError) as error:
            log.warning("%s: the offsets of group %s were not committed: %s", store.path, group, error)

    def _log_of(self, store: Store) -> OffsetsLog:
        if self._offsets_log is None or self._offsets_log[0] is not store:
            self._offsets_log = (store, OffsetsLog(store))
        return self._offsets_log[1]
