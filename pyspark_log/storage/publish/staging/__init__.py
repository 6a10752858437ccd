"""Staged output: written by tasks, listed in a manifest, copied or installed when its publish is applied."""

from pyspark_log.storage.publish.staging.staged_writer import PlannedTopic, StagedPart, StagedWriter, StagingPlan

__all__ = ["PlannedTopic", "StagedPart", "StagedWriter", "StagingPlan"]
