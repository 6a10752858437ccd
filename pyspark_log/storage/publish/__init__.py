"""Exactly once: stage the output, decide the publish with one record, apply the decision."""

from pyspark_log.storage.publish.applier import staging_folder
from pyspark_log.storage.publish.decision import Decision, TopicIdPartition
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.pending import apply_pending
from pyspark_log.storage.publish.publishing import PublishResult, publish
from pyspark_log.storage.publish.staging.agreed_topics import AgreedTopic
from pyspark_log.storage.publish.staging.staged_writer import PlannedTopic, StagedPart, StagedWriter, StagingPlan

__all__ = [
    "AgreedTopic",
    "Decision",
    "DecisionLog",
    "PlannedTopic",
    "PublishResult",
    "StagedPart",
    "StagedWriter",
    "StagingPlan",
    "TopicIdPartition",
    "apply_pending",
    "publish",
    "staging_folder",
]
