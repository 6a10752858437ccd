"""Publishes what tasks have staged, together with the committed offsets that say that it was imported."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyspark_log.errors import PublishFailedError
from pyspark_log.spark_connector.store_access import StoreRef, warn_of_new_topic
from pyspark_log.storage.fs import Process
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.new_topics import keep_first_records
from pyspark_log.storage.publish import StagedPart, StagingPlan
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition


class ImportTarget:
    """The topic of an import, and the group that knows what was imported.

    One publish has both: the records and the offsets that say so. So whatever is killed, a source is either imported or
    not, and two imports of one group at once cannot import it twice: the second one's offsets conflict.
    """

    def __init__(self, path: str, topic: str, group: str, *, own_times: bool) -> None:
        """Opens the store, and creates the topic if it is missing, with a warning.

        Args:
            path: the store's.
            topic: its name.
            group: its id.
            own_times: whether records get times of the source. A topic that is created keeps records of any time then.

        Raises:
            StoreError, ReadOnlyError: there is no store to write to.
            UnknownTopicError: the store lets no writer create topics (auto.create.topics.enable).
        """
        self.topic, self.group = topic, group
        self._store = Store.open(path)
        self._store.publishes.check_writable()
        if self._store.ensure_topic(topic):
            warn_of_new_topic(self._store, topic)
            if own_times:
                keep_first_records(self._store, topic, None)
        self.ref = StoreRef.to(self._store)

    def imported(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What was imported before: the group's committed offsets."""
        self._store.publishes.apply_pending()
        return self._store.groups[self.group].committed()

    def plan(self) -> StagingPlan:
        """A plan for the tasks of one publish."""
        return self._store.publishes.plan([self.topic], owner=Process.here())

    def discard(self, plan: StagingPlan) -> None:
        """Removes what the tasks of a plan have staged, none of which is published."""
        self._store.publishes.discard_job(plan)

    def publish(self, parts: Sequence[StagedPart], steps: Sequence[OffsetStep]) -> None:
        """Makes records visible and moves the group's offsets, or neither. PublishError, or as `publish`."""
        publishes, publisher = self._store.publishes, f"import/{self.group}/{uuid.uuid4()}"
        try:
            publishes.publish(publisher, 0, parts, steps=steps, one_off=True)
        except PublishFailedError:
            publishes.discard(parts)  # It is certainly not published, and the next run stages it again.
            raise
