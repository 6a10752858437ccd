"""Appends clients' batches to the partitions of a store in an object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark_log.config import TopicConfig
from pyspark_log.errors import InvalidRecordError, ProducerError, PylogError
from pyspark_log.server.network import Wait, Workers
from pyspark_log.server.served.logs import Batch, Refused, Stored
from pyspark_log.server.served.objects.collector import Collector, Request
from pyspark_log.server.served.objects.follower import Follower
from pyspark_log.storage.catalog import check_name, check_not_internal
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.ingest import validate, without_transaction
from pyspark_log.storage.object_store import ObjectStore
from pyspark_log.storage.publish_log.proposals import log_of, topic_of
from pyspark_log.storage.publish_log.serving.incoming import Incoming, Outcome, Placed
from pyspark_log.storage.record import scan
from pyspark_log.types import TopicDescription

# Up to as many bytes are checked in the loop's thread, as over a folder.
_AT_ONCE_BYTES = 64 * 1024


class Appends:
    """Checks batches, and has them decided together with those of other clients."""

    def __init__(self, store: ObjectStore, workers: Workers, follower: Follower, collector: Collector) -> None:
        """`collector`: makes the decisions."""
        self._store, self._workers, self._follower, self._collector = store, workers, follower, collector
        self._configs = dict[str, tuple[TopicDescription, TopicConfig]]()

    async def append(self, batches: Sequence[Batch], on_order: Callable[[], object]) -> list[Stored | Refused]:
        """See ServedLogs.append; what is answered is durable."""
        if sum(len(batch.records) for batch in batches) <= _AT_ONCE_BYTES:
            looked_at = [self._look_at(batch) for batch in batches]
        else:
            looked_at = await self._workers.run(lambda: [self._look_at(batch) for batch in batches])
        incoming = [batch.incoming for batch in looked_at if isinstance(batch, _Admitted)]
        decided = self._decided(incoming) if incoming else None
        on_order()
        outcomes = iter(() if decided is None else await decided)
        return [batch.answer(next(outcomes)) if isinstance(batch, _Admitted) else batch for batch in looked_at]

    def _decided(self, incoming: list[Incoming]) -> Wait[list[Outcome]]:
        wait: Wait[list[Outcome]] = Wait()
        self._collector.add(Request(lambda outcomes: self._workers.deliver([(wait, outcomes, None)]), incoming))
        return wait

    def _look_at(self, batch: Batch) -> _Admitted | Refused:
        at, log_start = batch.at, -1
        try:
            check_name(at.topic)
            check_not_internal(at.topic)
            state = self._follower.state
            topic, log_start = topic_of(state, at.topic), log_of(state, at.topic, at.partition).log_start
            config, now = self._config(topic), now_ms()
            data = validate(batch.records, config, now, at)
            [header] = scan(data, 0, len(data))
        except (PylogError, OSError) as error:
            return _refused(error, log_start)
        incoming = Incoming(topic, at.partition, header, data, in_transaction=header.is_transactional)
        if incoming.in_transaction:
            # In the log it is as any other: no marker follows.
            incoming.records = without_transaction(data)
            [incoming.header] = scan(incoming.records, 0, len(data))
        return _Admitted(incoming, now if config.log_append_time else -1, log_start)

    def _config(self, topic: TopicDescription) -> TopicConfig:
        resolved = self._configs.get(topic.name)
        if resolved is None or resolved[0] != topic:
            resolved = topic, TopicConfig.resolve(topic.configs, self._store.configs)
            self._configs[topic.name] = resolved
        return resolved[1]


def _refused(error: Exception, log_start: int) -> Refused:
    """Why it was refused, with the log start where Kafka has looked at the log."""
    is_of_log = isinstance(error, ProducerError) or (isinstance(error, InvalidRecordError) and error.records)
    return Refused(error, log_start if is_of_log else -1)


@dataclass
class _Admitted:
    """A batch that may be stored.

    Attributes:
        incoming: it.
        time: what its records have got as their time (ms); -1: they keep theirs.
        log_start: the log's first offset.
    """

    incoming: Incoming
    time: int
    log_start: int

    def answer(self, outcome: Outcome) -> Stored | Refused:
        """What is answered."""
        if isinstance(outcome, Placed):
            return Stored(outcome.base_offset, outcome.next_offset, outcome.log_start, self.time, outcome.is_duplicate)
        return _refused(outcome, self.log_start)
