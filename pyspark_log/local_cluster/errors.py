"""Why a cluster on one machine cannot be made or run."""

from __future__ import annotations

from pyspark_log.errors import PylogError


class LocalClusterError(PylogError):
    """A cluster on one machine cannot be made or run."""

    condition = "PYLOG_LOCAL_CLUSTER"
