"""A store in an object store, as it is served, by any number of servers; see `logs`.

Clients read it and write to it. No server coordinates groups or transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from pyspark_log.config import int_config
from pyspark_log.errors import ReadOnlyError
from pyspark_log.group_records import RecordKey, Value
from pyspark_log.server.network import Workers
from pyspark_log.server.served.logs import Batch, GroupMembers, Refused, ServedLogs, Stored
from pyspark_log.server.served.object_append import Appends
from pyspark_log.server.served.object_follower import Follower, ObjectEvents
from pyspark_log.server.served.object_log import ObjectTopic
from pyspark_log.server.served.object_pieces import Pieces
from pyspark_log.storage.catalog import OFFSETS_TOPIC
from pyspark_log.storage.fs import contextmanager
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.metadata import GroupMetadataValue
from pyspark_log.storage.log.producers import ProducerEntry
from pyspark_log.storage.log_manager import LogDirDescription
from pyspark_log.storage.object_store import ObjectStore
from pyspark_log.storage.publish_log.groups import committed_in
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.transactions import TransactionMetadata
from pyspark_log.types import TopicPartition

# Why groups and transactions are refused.
_WHY = "a server over an object store coordinates neither groups nor transactions"


class ObjectLogs(ServedLogs):
    """The logs of a store in an object store, as they were at the follower's last look."""

    writable, why_read_only = True, ""

    def __init__(self, store: ObjectStore, workers: Workers, linger: float) -> None:
        """Looks at the store; `linger` as of Appends. Raises as PublishLog.follow."""
        self._path, self._pieces = store.path, Pieces(store.log.objects)
        self._follower = Follower(store.log, self._pieces, workers.run)
        self._appends = Appends(store, workers, self._follower, linger)
        self._max_batch_bytes = int_config(store.configs, "batch.max.memory.bytes")
        self.configs = store.configs
        self.groups, self.transactions, self.compaction = _Groups(self), _Transactions(), _Nothing()

    def check_writable(self) -> None:
        """Others may write to it, too."""

    def clock(self) -> int:
        return now_ms()

    def has_topic(self, name: str) -> bool:
        return name in self._follower.state.topics

    def topic(self, name: str) -> ObjectTopic:
        return ObjectTopic(self._follower, self._pieces, name, self._max_batch_bytes)

    def offsets_of(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed."""
        return committed_in(self._follower.state, group)

    def group_names(self) -> list[str]:
        """The groups that have committed offsets."""
        return list(self._follower.state.groups)

    def events(self) -> ObjectEvents:
        return self._follower.events()

    def problem(self) -> str:
        return self._follower.problem

    def is_there(self) -> bool:
        return not self._follower.problem

    async def append(self, batches: Sequence[Batch], *, sync: bool) -> Sequence[Stored | Refused]:
        return await self._appends.append(batches)

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
        """`pylog upkeep` does, once for all servers."""

    @contextmanager
    def held(self, most_files: int) -> Iterator[None]:
        """Others may serve it, too."""
        self._follower.start()
        self._appends.start()
        yield

    def begin_alone(self) -> Callable[[], object] | None:
        return None

    def close(self) -> None:
        self._appends.stop()
        self._follower.stop()


# Of sizes that an object store does not report.
_UNKNOWN = -1


class _Groups:
    """Committed offsets, for reading."""

    writable = False

    def __init__(self, logs: ObjectLogs) -> None:
        self._logs = logs

    def write(self, changes: Sequence[GroupChange]) -> Sequence[Exception | None]:
        return [ReadOnlyError(_WHY)] * len(changes)

    def commit_in_transaction(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int, producer_epoch: int
    ) -> None:
        _refuse()

    def members(self, partitions: Iterable[int] | None = None) -> GroupMembers:
        classic = dict[str, GroupMetadataValue | None].fromkeys(self._logs.group_names())
        return classic, dict[str, dict[RecordKey, Value]]()

    def partition_of(self, group: str) -> TopicPartition:
        return TopicPartition(OFFSETS_TOPIC, 0)

    def fetch(self, group: str, *, with_resets: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._logs.offsets_of(group)

    def pending(self, group: str) -> Iterable[TopicPartition]:
        return ()

    def expire(self) -> int:
        return 0


class _Transactions:
    """There are none."""

    writable = False

    def load(self, partitions: Iterable[int] | None = None) -> dict[str, TransactionMetadata]:
        return {}

    def write(self, transactional_id: str, metadata: TransactionMetadata | None, *, sync: bool) -> None:
        _refuse()

    def coordinator_epoch(self, transactional_id: str) -> int:
        return 0

    def end(
        self, at: TopicPartition, producer_id: int, producer_epoch: int, marker: EndTxnMarker, *, sync: bool
    ) -> None:
        _refuse()


class _Nothing:
    """Compacts nothing: `pylog upkeep` does."""

    def start(self) -> None:
        """There is nothing to begin."""

    def stop(self) -> None:
        """There is nothing to stop."""


def _refuse() -> NoReturn:
    raise ReadOnlyError(_WHY)
