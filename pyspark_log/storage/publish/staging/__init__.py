"""Staged output: written by tasks, listed in a manifest, copied or installed when its publish is applied."""

from pyspark_log.storage.publish.staging.plan import PlannedTopic, StagedPart, StagingPlan
from pyspark_log.storage.publish.staging.staged_writer import StagedWriter

__all__ = ["PlannedTopic", "StagedPart", "StagedWriter", "StagingPlan"]
