"""The topic for records that do not fit their schema: the option `onBadRecord=topic` of a streaming query.

The task that reads a record publishes it, as only tasks decode, and Spark takes nothing but rows from them. A task runs
again, beside itself, and in a micro-batch that is repeated after the driver was killed. So each publish moves a
committed offset, which says up to where the bad records of a partition are published. It is decided with the records or
not at all, and only if it starts from where the last publish has ended. A task that comes second is refused, looks how
far the first one came, and publishes what is left, which is nothing as a rule.

That needs the bad records of a partition in order: one task reads all that a micro-batch has of a partition (so options
that split partitions are refused), and Spark begins the next micro-batch when all of that is read. The offset is moved
to the one after the last bad record, and not to the end of what was read: if a query is started again with another
schema, records that are bad only by that one may follow.

The name of the committed offset has the group of the source, which the checkpoint keeps, the query's id, and the id of
the topic: a query with a new checkpoint reads all again, and publishes all again. It never expires. It is no topic's,
so nothing that watches groups takes it for a reader that is late.

A task ends with its publish. So where a query with a limit stops a task early, none of the records that it has read by
then is there: what such a query has not read to its end, it has not checked.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from pyspark_log.errors import OffsetConflictError, PublishError
from pyspark_log.schemas import BadValue
from pyspark_log.spark_connector.errors import option_error
from pyspark_log.spark_connector.store_access import warn_of_new_topic
from pyspark_log.storage.new_topics import keep_first_records
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition

#: The columns of the store that a dead letter is made of.
COLUMNS = ("key", "value", "offset", "timestamp", "headers")
#: The names of the headers that say where a record was, and what is wrong, begin with this.
HEADERS = "__pylog.errors."
# Bytes of bad records that a task collects before it publishes them.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class DeadLetters:
    """Where a query's bad records go; sent to the tasks.

    Attributes:
        topic: the topic, in the store that is read.
        group: the group of the source.
    """

    topic: str
    group: str

    def check(self, read: set[str]) -> None:
        """Refuses a query that reads the topic; `read`: the topics that it reads. ConnectorError."""
        if self.topic in read:
            raise option_error(
                f"deadLetterTopic: the query reads {self.topic}, so it would read its own bad records: name another one"
            )

    def prepare(self, store: Store) -> None:
        """Creates the topic if it is missing, on the driver; it keeps records of any time.

        Raises:
            UnknownTopicError: the store lets no writer create topics (auto.create.topics.enable).
            ReadOnlyError: it cannot be written.
        """
        store.publishes.check_writable()
        if store.ensure_topic(self.topic):
            warn_of_new_topic(store, self.topic)
            keep_first_records(store, self.topic, None)

    def writer(self, store: Store, at: TopicPartition, topic_id: str | None) -> DeadLetterWriter:
        """Publishes bad records of a partition, for one task; the topic that it is of has an id."""
        context = TaskContext.get()
        query = (context.getLocalProperty("sql.streaming.queryId") or "") if context is not None else ""
        digest = hashlib.sha256(f"{query}\0{topic_id}".encode()).hexdigest()[:16]
        place = TopicPartition(f"{at.topic[:200]}-{digest}", at.partition)
        return DeadLetterWriter(store, self.topic, f"{self.group}-dead-letters", place, at)


class DeadLetterWriter:
    """Publishes the bad records of one range, each once. Not thread-safe."""

    def __init__(self, store: Store, topic: str, group: str, place: TopicPartition, at: TopicPartition) -> None:
        self._store, self._topic, self._group, self._place, self._at = store, topic, group, place, at
        self._rows: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch, bad: Mapping[int, tuple[str, BadValue]]) -> None:
        """Takes bad records.

        Args:
            batch: has them, and COLUMNS.
            bad: by their rows: the part that is bad, and why.

        Raises: as `finish`.
        """
        rows = batch.select(list(COLUMNS)).take(pa.array(sorted(bad), pa.int64()))
        offsets, kept = rows.column("offset").to_pylist(), rows.column("headers").to_pylist()
        headers = [
            [*(before or ()), *self._headers(offset, *bad[row])]
            for row, offset, before in zip(sorted(bad), offsets, kept, strict=True)
        ]
        at = rows.schema.get_field_index("headers")
        self._rows.append(rows.set_column(at, "headers", pa.array(headers, rows.schema.field(at).type)))
        if sum(rows.nbytes for rows in self._rows) >= _MOST_BYTES:
            self.finish()

    def _headers(self, offset: int, part: str, value: BadValue) -> list[dict[str, object]]:
        facts: dict[str, object] = {
            "topic": self._at.topic, "partition": self._at.partition, "offset": offset, "part": part,
            "schema.id": value.schema_id, "message": value.reason,
        }  # fmt: skip
        return [
            {"key": f"{HEADERS}{name}", "value": str(fact).encode()} for name, fact in facts.items() if fact is not None
        ]

    def finish(self) -> None:
        """Publishes what was added and is not published yet. Raises: as Publishes.publish, but OffsetConflictError."""
        rows = pa.Table.from_batches(self._rows) if self._rows else None
        while rows is not None and rows.num_rows:
            committed = self._store.groups[self._group].committed().get(self._place)
            expected = None if committed is None else committed.offset
            if expected is not None:
                rows = rows.filter(pc.greater_equal(rows.column("offset"), expected))
            if rows.num_rows and self._publish(rows, expected):
                break
        self._rows = []

    def _publish(self, rows: pa.Table, expected: int | None) -> bool:
        """False: another attempt of the task has published meanwhile."""
        publishes = self._store.publishes
        writer = publishes.writer(publishes.plan([self._topic]))
        for batch in rows.drop_columns(["offset"]).to_batches():
            writer.append(self._topic, batch)
        parts = writer.finish()
        step = OffsetStep(self._group, self._place, expected, rows.column("offset")[-1].as_py() + 1)
        try:
            publishes.publish(f"dead-letters/{uuid.uuid4()}", 0, parts, steps=[step], one_off=True)
        except OffsetConflictError:
            publishes.discard(parts)
            return False
        except PublishError:
            publishes.discard(parts)  # It is certainly not published, and the next attempt stages it again.
            raise
        return True
