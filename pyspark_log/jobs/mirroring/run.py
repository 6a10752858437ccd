"""Runs a mirror: a streaming query that publishes each micro-batch with its offset syncs, exactly once."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_log.config import TOPIC_CONFIGS
from pyspark_log.errors import TopicExistsError
from pyspark_log.jobs.mirroring.arguments import MirrorPlan
from pyspark_log.jobs.mirroring.syncs import (
    SYNCS_TOPIC,
    MirroredRange,
    create_topic_of_syncs,
    load_syncs,
    next_sync,
    rows_of,
)
from pyspark_log.jobs.support import JobError
from pyspark_log.jobs.support.interrupts import interrupts_noted
from pyspark_log.mirror.groups import commit_unless_used, committed_offsets
from pyspark_log.replication.copied_topics import UNKNOWN
from pyspark_log.spark_connector.errors import conditions_shown
from pyspark_log.spark_connector.planning.offsets import is_own
from pyspark_log.spark_connector.writing.publish_together import Publish
from pyspark_log.storage.catalog import INTERNAL_TOPICS
from pyspark_log.types import TopicPartition

# How often the run looks for an interrupt and for groups that are due, in seconds.
_ROUND = 1
# Records keep their times, whatever these are.
_NOT_CARRIED = {"message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}
_NOT_MIRRORED = sorted({*INTERNAL_TOPICS, SYNCS_TOPIC})


def run_mirror(spark: SparkSession, plan: MirrorPlan) -> dict[str, int | float | str]:
    """Mirrors until all available records are mirrored, or until it is stopped.

    Returns:
        Figures by name: records and micro-batches of this run, offsets of groups that it has committed, seconds.

    Raises:
        PySparkException, Py4JError: the query has failed; a later run resumes there.
        click.UsageError: Spark has no connector to Kafka.
        StoreError, OSError: the store or the source cannot be read or written.
    """
    began = time.monotonic()
    mirror = _Mirror(spark, plan)
    moved = 0
    query = mirror.start()
    with interrupts_noted() as interrupted:
        due = began + plan.groups_interval
        try:
            while not query.awaitTermination(_ROUND) and not interrupted.is_set():
                if time.monotonic() >= due:
                    moved, due = moved + mirror.move_groups(), time.monotonic() + plan.groups_interval
            # The micro-batch that is under way is done again by the next run, and written once.
            query.stop()
        except (PySparkException, Py4JError):
            # A terminal interrupts spark-submit's JVM as well, which then ends the query itself.
            if not interrupted.is_set():
                raise
    moved += mirror.move_groups()
    return {
        "records": mirror.records,
        "batches": mirror.batches,
        "group_offsets": moved,
        "seconds": time.monotonic() - began,
    }


class _Mirror:
    """A run.

    Attributes:
        records, batches: how many it has published.
    """

    def __init__(self, spark: SparkSession, plan: MirrorPlan) -> None:
        self._spark, self._plan, self._target = spark, plan, plan.target
        create_topic_of_syncs(self._target)
        self._target.publishes.apply_pending()
        self._syncs = load_syncs(self._target, plan.name)
        self.records = self.batches = 0

    def start(self) -> StreamingQuery:
        """Starts the query."""
        plan = self._plan
        rows = plan.source.rows(self._spark).where(~sf.col("topic").isin(_NOT_MIRRORED)).select(
            "key", "value", "headers", "partition", "timestamp",
            sf.concat(sf.lit(plan.prefix), sf.col("topic")).alias("topic"),
        )  # fmt: skip
        writer = rows.writeStream.foreachBatch(self._publish).option("checkpointLocation", plan.checkpoint)
        if plan.until_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=plan.trigger).start()

    def move_groups(self) -> int:
        """Commits the translated offsets of groups, never backwards; returns how many offsets were committed."""
        plan, target, moved = self._plan, self._target, 0
        if plan.groups is None:
            return 0
        # Before the groups are read: a sync that is older than an offset only makes it lower.
        syncs = self._syncs
        topic_ids = {name: target.describe_topic(name).topic_id for name in target.topics()}
        for name, offsets in committed_offsets(plan.source, plan.groups):
            moves = {
                there: max(syncs[at].translate(offset), target.earliest_offset(there.topic, there.partition))
                for at, offset in offsets.items()
                if (there := TopicPartition(plan.prefix + at.topic, at.partition)).topic in topic_ids
                and at in syncs
                and syncs[at].topic_id == topic_ids[there.topic]
            }
            moved += commit_unless_used(target, name, moves, plan.name, back=False)
        return moved

    # ---- a micro-batch

    def _publish(self, rows: DataFrame, batch_id: int) -> None:
        """Publishes a micro-batch."""
        with conditions_shown():
            self._publish_checked(rows, batch_id)

    def _publish_checked(self, rows: DataFrame, batch_id: int) -> None:
        plan, target = self._plan, self._target
        ends = self._ends(batch_id)
        topic_ids = self._prepare(ends)
        moved = {
            at: TopicPartition(plan.prefix + at.topic, at.partition)
            for at, end in ends.items()
            if at not in self._syncs or self._syncs[at].source_offset != end
        }
        target.publishes.apply_pending()
        firsts = target.partitions.latest_offsets(moved.values())
        with Publish(target.path, f"mirror {plan.name}", batch_id) as out:
            out.write(rows, timestamp_column="timestamp")
            staged = out.staged
            syncs = {
                at: next_sync(
                    self._syncs.get(at),
                    topic_ids[at.topic],
                    MirroredRange(ends[at], firsts[there], staged.get(there, 0)),
                )
                for at, there in moved.items()
            }
            if syncs:
                records = self._spark.createDataFrame(rows_of(plan.name, syncs), "key string, value string")
                out.write(records.coalesce(1), topic=SYNCS_TOPIC)
        assert out.result is not None
        if out.result.replayed:
            # What was decided is what counts: it may be another run's, which this one did not know when it began.
            self._syncs = load_syncs(target, plan.name)
        else:
            self._syncs = self._syncs | syncs
            self.records, self.batches = self.records + sum(staged.values()), self.batches + 1

    def _prepare(self, ends: dict[TopicPartition, int]) -> dict[str, str]:
        """Makes the topics and partitions that are missing in the target; returns its topics' ids, by source topic."""
        plan, target = self._plan, self._target
        partitions = dict[str, int]()
        for at in ends:
            partitions[at.topic] = max(at.partition + 1, partitions.get(at.topic, 0))
        known, topic_ids = set(target.topics()), dict[str, str]()
        for topic, count in partitions.items():
            name = plan.prefix + topic
            if name not in known:
                with contextlib.suppress(TopicExistsError):  # another process was faster
                    target.create_topic(name, count, _carried(plan.source.configs([topic]).get(topic, UNKNOWN)))
            found = target.describe_topic(name)
            if found.partitions < count:
                target.add_partitions(name, count)
            topic_ids[topic] = found.topic_id
        return topic_ids

    def _ends(self, batch_id: int) -> dict[TopicPartition, int]:
        """Where a micro-batch ends in the source, as Spark notes it in the checkpoint before it runs."""
        path = f"{self._plan.checkpoint.rstrip('/')}/offsets/{batch_id}"
        version, _, *sources = _text_of(self._spark, path).splitlines()
        if version != "v1" or len(sources) != 1:
            raise JobError(f"{path} is not the checkpoint of a mirror as this version of Spark writes it")
        nested: dict[str, dict[str, int]] = json.loads(sources[0])
        return {
            TopicPartition(topic, int(partition)): offset
            for topic, offsets in nested.items()
            if not is_own(topic) and topic not in _NOT_MIRRORED
            for partition, offset in offsets.items()
        }


def _carried(configs: Mapping[str, str]) -> dict[str, str]:
    """Those that a store has too."""
    return {name: value for name, value in configs.items() if name in TOPIC_CONFIGS and name not in _NOT_CARRIED}


def _text_of(spark: SparkSession, path: str) -> str:
    """A file of any file system that Spark knows."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    stream = place.getFileSystem(spark._jsc.hadoopConfiguration()).open(place)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
