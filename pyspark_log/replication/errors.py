"""Why a copy of a partition cannot be continued."""

from __future__ import annotations

from pyspark_log.errors import PylogError


class ReplicationError(PylogError):
    """A copy of a partition of a Kafka cluster cannot be continued."""

    condition = "PYLOG_REPLICATION"


class CopyEndedError(ReplicationError):
    """A copy was ended while more of it was fetched, which is dropped."""


class LostRecordsError(ReplicationError):
    """The cluster has deleted records before they were copied."""

    condition = "PYLOG_REPLICATION_LOST_RECORDS"


class DivergedError(ReplicationError):
    """The cluster has replaced records that were copied."""

    condition = "PYLOG_REPLICATION_DIVERGED"
