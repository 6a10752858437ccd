"""How long (s) a process waits for a lock, by what it wants the lock for.

What a caller asked for waits `DEFAULT_TIMEOUT`; then the caller gets LockTimeoutError.
"""

from __future__ import annotations

from typing import Final

from pyspark_log.storage.fs.guarded import DEFAULT_TIMEOUT

__all__ = [
    "ALL_LOCKS",
    "AT_ONCE",
    "CHECKPOINTS",
    "CLEANING",
    "DEFAULT_TIMEOUT",
    "HELP",
    "HELP_COMPACT",
    "RECOVERY",
    "WHILE_DECIDING",
]

#: Not to wait at all. The error does not say what holds the lock, for which it would have to be looked up.
AT_ONCE: Final = 0.0
#: To finish what another process has decided; the lock's holder does that anyway.
HELP: Final = 0.05
#: To lock the partition of a group while the decision log's lock is held, for which others wait.
WHILE_DECIDING: Final = 0.05
#: To compact a partition after an own commit or publish; the next segment comes soon.
HELP_COMPACT: Final = 0.5
#: To write the checkpoints of a log dir: their writers take milliseconds.
CHECKPOINTS: Final = 1.0
#: To clean a partition, or to check whether it can be compacted; the next pass does what is left.
CLEANING: Final = 5.0
#: To read a partition while another process recovers it.
RECOVERY: Final = 10.0
#: To hold all locks of a store together, for a backup. The processes that wait meanwhile give up after DEFAULT_TIMEOUT.
ALL_LOCKS: Final = 10.0
