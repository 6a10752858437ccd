"""A topic of a store in an object store, and its partitions' logs, for the handlers of requests; see `logs`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.errors import UnknownTopicError
from pyspark_log.server.served.logs import NO_LEADER_EPOCH, Batches, LogView, MustWaitError, ServedTopic
from pyspark_log.server.served.objects.follower import Follower
from pyspark_log.server.served.objects.pieces import Pieces
from pyspark_log.storage.log.leader_epochs import EpochEnd
from pyspark_log.storage.publish_log import reading
from pyspark_log.storage.publish_log.proposals import log_of, topic_of
from pyspark_log.storage.publish_log.state import PartitionLog
from pyspark_log.types import OffsetAndTimestamp, TopicPartition

# The log of an object store has one leader epoch, which never changes; what Kafka answers for another.
_EPOCH, _NO_EPOCH = 0, EpochEnd(-1, -1)


class ObjectTopic(ServedTopic):
    """A topic; its partitions are as the follower has them."""

    def __init__(self, follower: Follower, pieces: Pieces, name: str, max_batch_bytes: int) -> None:
        """UnknownTopicError, InvalidTopicError."""
        self._follower, self._pieces, self._max_batch_bytes = follower, pieces, max_batch_bytes
        topic = topic_of(follower.state, name)
        self.name, self.topic_id, self.partitions = name, topic.topic_id, topic.partitions

    def check(self, partition: int) -> None:
        log_of(self._follower.state, self.name, partition)

    def leader_epoch(self, partition: int) -> int:
        return NO_LEADER_EPOCH

    def view(self, partition: int, *, may_wait: bool, client_end: int = 0) -> ObjectLog:
        log = self._log(partition)
        if log.log_end < client_end:
            if not may_wait:
                raise MustWaitError
            self._follower.look()
            log = self._log(partition)
        return ObjectLog(self._pieces, TopicPartition(self.name, partition), log, self._max_batch_bytes)

    def _log(self, partition: int) -> PartitionLog:
        state = self._follower.state
        if topic_of(state, self.name).topic_id != self.topic_id:
            raise UnknownTopicError(f"topic {self.name!r} was deleted, and created again")
        return log_of(state, self.name, partition)


class ObjectLog(LogView):
    """A partition's log. Its transactions are decided before they are in it."""

    leader_epoch, may_have_transactions = _EPOCH, False
    is_reported = False  # what is known of it is in memory

    def __init__(self, pieces: Pieces, at: TopicPartition, log: PartitionLog, max_batch_bytes: int) -> None:
        self._pieces, self._at, self._log, self._max_batch_bytes = pieces, at, log, max_batch_bytes
        self.log_start, self.next_offset, self.high_watermark = log.log_start, log.log_end, log.log_end

    def is_near(self, offset: int, *, committed: bool) -> bool:
        if not self.log_start <= offset < self.next_offset:
            return True
        # What compaction has removed at the end of a piece is followed by the next one.
        return all(self._pieces.near(piece) is not None for piece in self._log.between(offset, self.next_offset)[:2])

    def last_stable_offset(self) -> int:
        return self.high_watermark

    def batches(self, start: int, end: int, max_bytes: int) -> Batches | None:
        pieces, parts, size, next_offset = self._log.between(start, end), list[memoryview](), 0, start
        for number, piece in enumerate(pieces):
            if parts and size + piece.size > max_bytes:
                break
            data, following = self._pieces.load(self._at, pieces[number:]).cut(next_offset, max_bytes - size)
            if data:
                parts.append(data)
                size += len(data)
            next_offset = piece.next_offset if following is None else following
            if following is not None:
                break
        return Batches(b"".join(parts), next_offset) if parts else None

    def aborted(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        return []

    def epoch_of(self, offset: int) -> int:
        return _EPOCH

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        return EpochEnd(_EPOCH, self.next_offset) if epoch == _EPOCH else _NO_EPOCH

    def find_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        return reading.find_timestamp(self._pieces.objects, self._at, self._log, timestamp, self._max_batch_bytes)

    def find_max_timestamp(self) -> OffsetAndTimestamp | None:
        return reading.find_max_timestamp(self._pieces.objects, self._at, self._log, self._max_batch_bytes)
