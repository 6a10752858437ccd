"""Exactly once: stage the output, decide the publish with one record, apply the decision."""

from pyspark_log.storage.publish import prepare, recovery
from pyspark_log.storage.publish.applier import apply_in, staging_folder, unlink_all, waits_in
from pyspark_log.storage.publish.claims import check_claim, claim, revoke
from pyspark_log.storage.publish.decision import (
    NO_NUMBER,
    Decision,
    Origin,
    SetAside,
    TopicIdPartition,
    decode_decision,
    publisher_of,
)
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.partition_applier import apply
from pyspark_log.storage.publish.pending import apply_pending, tidy
from pyspark_log.storage.publish.prepare import discard, discard_job
from pyspark_log.storage.publish.publisher_admin import delete_publisher, forget_one_offs, publishers
from pyspark_log.storage.publish.publishing import PublishResult, publish
from pyspark_log.storage.publish.recovery import Waiting
from pyspark_log.storage.publish.staging import install, manifest
from pyspark_log.storage.publish.staging.agreed_topics import AgreedTopic
from pyspark_log.storage.publish.staging.staged_file import SUFFIX, Job, StagedRegion, job_of, region_fault
from pyspark_log.storage.publish.staging.staged_writer import PlannedTopic, StagedPart, StagedWriter, StagingPlan

__all__ = [
    "NO_NUMBER",
    "SUFFIX",
    "AgreedTopic",
    "Decision",
    "DecisionLog",
    "Job",
    "Origin",
    "PlannedTopic",
    "PublishResult",
    "SetAside",
    "StagedPart",
    "StagedRegion",
    "StagedWriter",
    "StagingPlan",
    "TopicIdPartition",
    "Waiting",
    "apply",
    "apply_in",
    "apply_pending",
    "check_claim",
    "claim",
    "decode_decision",
    "delete_publisher",
    "discard",
    "discard_job",
    "forget_one_offs",
    "install",
    "job_of",
    "manifest",
    "prepare",
    "publish",
    "publisher_of",
    "publishers",
    "recovery",
    "region_fault",
    "revoke",
    "staging_folder",
    "tidy",
    "unlink_all",
    "waits_in",
]
