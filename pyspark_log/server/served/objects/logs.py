"""A store in an object store, as it is served, by any number of servers; see `logs`.

Clients read it and write to it, also in transactions; one of the servers coordinates groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark_log.config import int_config
from pyspark_log.errors import ReadOnlyError
from pyspark_log.server.documents.in_objects import ObjectDocuments
from pyspark_log.server.network import Workers
from pyspark_log.server.served.logs import Batch, Refused, ServedLogs, Stored
from pyspark_log.server.served.objects.append import Appends
from pyspark_log.server.served.objects.collector import Collector
from pyspark_log.server.served.objects.follower import Follower, ObjectEvents
from pyspark_log.server.served.objects.groups import ObjectGroups
from pyspark_log.server.served.objects.pieces import Pieces
from pyspark_log.server.served.objects.servers import ObjectServers
from pyspark_log.server.served.objects.topic import ObjectTopic
from pyspark_log.server.served.objects.transactions import ObjectTransactions
from pyspark_log.server.served.objects.upkeep import ObjectUpkeep
from pyspark_log.storage.fs import contextmanager
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.log.producers import ProducerEntry
from pyspark_log.storage.log_manager import LogDirDescription
from pyspark_log.storage.object_store import ObjectStore
from pyspark_log.types import TopicDescription, TopicPartition


class ObjectLogs(ServedLogs):
    """The logs of a store in an object store, as they were at the follower's last look."""

    writable, why_read_only, overlaps = True, "", True

    def __init__(
        self, store: ObjectStore, workers: Workers, linger: float, node_id: int | None, rack: str = ""
    ) -> None:
        """Looks at the store; `linger` as of Collector, `node_id` and `rack` as of ObjectServers. PublishLog.follow."""
        self._path, self._pieces = store.path, Pieces(store.log.objects)
        self._follower = Follower(store.log, self._pieces, workers.run)
        self._collector = Collector(store.log, self._follower.keep, linger)
        self._appends = Appends(store, workers, self._follower, self._collector)
        self.servers = ObjectServers(store.log, self._follower, node_id, rack)
        self.documents = ObjectDocuments(self._follower.documents, lambda: None)
        self._max_batch_bytes = int_config(store.configs, "batch.max.memory.bytes")
        self.configs = store.configs
        self.groups = ObjectGroups(self._follower, self._collector, self.servers.run, store.groups.log.retention_ms)
        self.transactions = ObjectTransactions(self._follower, self._collector, workers)
        self.background = ObjectUpkeep(store, self.servers)

    def check_writable(self) -> None:
        """Others may write to it, too."""

    def clock(self) -> int:
        return now_ms()

    def has_topic(self, name: str) -> bool:
        return name in self._follower.state.topics

    def may_lack(self, names: Iterable[str]) -> bool:
        topics = self._follower.state.topics
        return any(name not in topics for name in names)

    def catch_up(self) -> None:
        self._follower.catch_up()

    def topics(self, *, fresh: bool) -> list[TopicDescription]:
        if fresh:
            self.catch_up()
        return list(self._follower.state.topics.values())

    def topic(self, name: str) -> ObjectTopic:
        return ObjectTopic(self._follower, self._pieces, name, self._max_batch_bytes)

    def events(self) -> ObjectEvents:
        return self._follower.events()

    def problem(self) -> str:
        return self._follower.problem

    def is_there(self) -> bool:
        return not self._follower.problem

    async def append(
        self, batches: Sequence[Batch], *, sync: bool, on_order: Callable[[], object]
    ) -> Sequence[Stored | Refused]:
        return await self._appends.append(batches, on_order)

    def producers(self, at: TopicPartition) -> Sequence[ProducerEntry]:
        topic, state = self.topic(at.topic), self._follower.state
        topic.check(at.partition)
        producers = state.producers.get((topic.topic_id, at.partition), {})
        return [producer.entry(producer_id) for producer_id, producer in producers.items()]

    def has_log_dir(self, path: str) -> bool:
        return path == self._path

    def log_dirs(self) -> Sequence[LogDirDescription]:
        state = self._follower.state
        names = {topic.topic_id: name for name, topic in state.topics.items()}
        sizes = {
            TopicPartition(names[topic_id], partition): sum(piece.size for piece in log.pieces)
            for (topic_id, partition), log in state.partitions.items()
        }
        return [LogDirDescription(self._path, self.problem(), sizes, _UNKNOWN, _UNKNOWN)]

    def move(self, at: TopicPartition, path: str) -> None:
        raise ReadOnlyError(f"{at}: an object store has one log dir")

    def clean(self) -> None:
        """ObjectUpkeep does, at one of the servers."""

    @contextmanager
    def held(self, most_files: int) -> Iterator[None]:
        """Others may serve it, too."""
        self._follower.start()
        self._collector.start()
        yield

    def begin_alone(self) -> Callable[[], object] | None:
        return None

    def close(self) -> None:
        self._collector.stop()
        self.servers.end()
        self._follower.stop()


# Of sizes that an object store does not report.
_UNKNOWN = -1
