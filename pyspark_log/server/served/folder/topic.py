"""A topic of a store in a folder, and its partitions' logs, for the handlers of requests; see `logs`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.kafka import FileRange
from pyspark_log.server.served.logs import NO_LEADER_EPOCH, Batches, LogView, MustWaitError, ServedTopic
from pyspark_log.storage.log.leader_epochs import FILE_NAME, EpochEnd, LeaderEpochs
from pyspark_log.storage.log.read import LogReader
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.storage.log_manager import LogManager, TopicLogs
from pyspark_log.storage.record.layout import FLAGS_AT, TRANSACTIONAL
from pyspark_log.types import OffsetAndTimestamp


class FolderTopic(ServedTopic):
    """A topic."""

    def __init__(self, logs: LogManager, topic: TopicLogs) -> None:
        self._logs, self._topic = logs, topic
        self.name, self.topic_id = topic.description.name, topic.description.topic_id
        self.partitions = topic.description.partitions

    def check(self, partition: int) -> None:
        self._topic.check(partition)

    def leader_epoch(self, partition: int) -> int:
        return self._topic.leader_epoch(partition)

    def view(self, partition: int, *, may_wait: bool, client_end: int = 0) -> FolderLog:
        topic = self._topic
        if partition in topic.recovered:
            reader = topic.reader(partition)
        elif may_wait or self._logs.is_brokers:
            reader = self._logs.recovered(topic.description.name, partition)
        else:
            raise MustWaitError
        state = reader.state()
        # A client that has another one asks for it next.
        topic.note_leader_epoch(partition, state.leader_epoch)
        return FolderLog(reader, state)


class SharedTopic(FolderTopic):
    """A topic of a folder with several servers."""

    def leader_epoch(self, partition: int) -> int:
        return NO_LEADER_EPOCH


class FolderLog(LogView):
    """A partition's log."""

    is_reported = True

    def __init__(self, reader: LogReader, state: PartitionState) -> None:
        self._reader, self._state = reader, state
        self.leader_epoch, self.log_start = state.leader_epoch, state.log_start
        self.next_offset, self.high_watermark = state.next_offset, state.high_watermark
        self.may_have_transactions = state.may_have_transactions

    def is_near(self, offset: int, *, committed: bool) -> bool:
        # Inactive segments may be on the disk alone.
        is_active = offset >= self._state.active_base
        return is_active and (not committed or self._reader.stable.is_near(self._state))

    def last_stable_offset(self) -> int:
        return self._reader.last_stable_offset(self._state)

    def batches(self, start: int, end: int, max_bytes: int) -> Batches | None:
        stored = self._reader.stored_batches(start, end, max_bytes, self._state)
        if stored is None:
            return None
        return Batches(FileRange(stored.file, stored.position, stored.length), stored.next_offset)

    def aborted(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        transactions = self._reader.aborted(start, end)
        return [(transaction.producer_id, transaction.first_offset) for transaction in transactions]

    def _epochs(self) -> LeaderEpochs:
        epochs = LeaderEpochs.read(f"{self._reader.place_in(self._state).folder}/{FILE_NAME}")
        # One that has no records yet is in no file.
        epochs.assign(self._state.leader_epoch, self._state.next_offset)
        return epochs

    def epoch_of(self, offset: int) -> int:
        return self._epochs().of(offset)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        return self._epochs().end_of(epoch, self._state.next_offset)

    def find_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        return self._reader.find_timestamp(timestamp)

    def find_max_timestamp(self) -> OffsetAndTimestamp | None:
        return self._reader.find_max_timestamp()


class LogAsLeft(FolderLog):
    """A partition's log as an append has left it, whose batch is in memory: what waits for that needs no file."""

    def __init__(self, reader: LogReader, state: PartitionState, first: int, records: bytes) -> None:
        """`first`: the offset of the batch; `records`: its bytes as they are stored."""
        super().__init__(reader, state)
        self._first, self._records = first, records
        is_plain = not records[FLAGS_AT] & TRANSACTIONAL
        if self.may_have_transactions and is_plain and reader.stable.pass_over(state, first, state.next_offset):
            self.may_have_transactions = False  # all below its end is decided

    def batches(self, start: int, end: int, max_bytes: int) -> Batches | None:
        if start != self._first or end != self.next_offset:
            return super().batches(start, end, max_bytes)
        return Batches(self._records, end)
