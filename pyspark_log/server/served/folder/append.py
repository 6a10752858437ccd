"""Appends clients' batches to the partitions of a store in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark_log.errors import InvalidRecordError, ProducerError, PylogError
from pyspark_log.server.network import Workers
from pyspark_log.server.served.folder.topic import LogAsLeft
from pyspark_log.server.served.logs import AsLeft, Batch, Refused, Stored
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.ingest import validate
from pyspark_log.storage.log import Appended, Turnstile
from pyspark_log.storage.log_manager import LogManager, TopicLogs
from pyspark_log.storage.record import assign_offsets

# Up to as many bytes are checked and appended in the loop's thread, if the partition's lock is in hand: that takes some
# 50 us, and to have another thread do it as long again.
_AT_ONCE_BYTES = 64 * 1024


async def append(logs: LogManager, workers: Workers, batches: Sequence[Batch], *, sync: bool) -> list[Stored | Refused]:
    """See ServedLogs.append."""
    appends, remaining, size = [_Append(logs, batch) for batch in batches], list[_Append](), 0
    for batch in batches:
        size += len(batch.records)
    for append in appends:
        if sync or size > _AT_ONCE_BYTES or not append.is_done_at_once():
            remaining.append(append)
    if remaining:
        await workers.run(_finish, remaining, sync)
        for append in remaining:
            append.wake()
    return [append.outcome for append in appends]


def _finish(appends: Sequence[_Append], sync: bool) -> None:
    for append in appends:
        append.finish(sync=sync)


class _Append:
    """One batch.

    Attributes:
        outcome: what became of it, once that is known.
    """

    outcome: Stored | Refused

    def __init__(self, logs: LogManager, batch: Batch) -> None:
        self._logs, self._batch = logs, batch
        self._topic: TopicLogs | None = None
        self._writer: Turnstile | None = None
        self._checked: tuple[Turnstile, bytes | bytearray, int] | None = None

    def is_done_at_once(self) -> bool:
        """Appends the batch unless that may have to wait; whether there is an outcome. What waits for it is woken."""
        try:
            writer, data, time = self._check()
            on_written, place = self._batch.on_written, writer.place
            then = None if on_written is None else partial(on_written, place.topic_id, place.partition)
            outcomes = writer.append_at_once([data], then)
            if outcomes is None:
                return False
            self._note(writer, outcomes[0], time)
        except (PylogError, OSError) as error:
            self._fail(error)
            return True
        self.wake(partial(self._log, writer, data))
        return True

    def wake(self, as_left: AsLeft | None = None) -> None:
        """Says that the batch is there, if it was appended; see Batch.on_stored."""
        outcome, on_stored = self.outcome, self._batch.on_stored
        if on_stored is not None and isinstance(outcome, Stored) and not outcome.is_duplicate:
            assert self._writer is not None
            on_stored(self._writer.place.topic_id, outcome.base_offset, as_left)

    def _log(self, writer: Turnstile, data: bytes | bytearray) -> LogAsLeft | None:
        """See AsLeft."""
        state, outcome = writer.log.lease.state_left, self.outcome
        assert isinstance(outcome, Stored)
        is_end = state is not None and state.next_offset == state.high_watermark == outcome.next_offset
        if self._topic is None or state is None or not is_end or writer.log.sources is not None:
            return None
        records, reader = bytearray(data), self._topic.reader(self._batch.at.partition)
        assign_offsets(records, 0, len(records), outcome.base_offset, state.leader_epoch)
        return LogAsLeft(reader, state, outcome.base_offset, bytes(records))

    def finish(self, *, sync: bool) -> None:
        """Appends the batch."""
        try:
            writer, data, time = self._check()
            self._note(writer, writer.append_in_turn([data], sync=sync)[0], time)
        except Exception as error:  # noqa: BLE001  (the other batches of the request have their own outcomes)
            self._fail(error)

    def _check(self) -> tuple[Turnstile, bytes | bytearray, int]:
        """The writer, the batch as it is to be stored, and the time that its records get (ms; -1: they keep theirs)."""
        if self._checked is None:
            at = self._batch.at
            check_not_internal(at.topic)
            self._topic = self._logs.topic(at.topic)
            writer, now = self._logs.writer_of(self._topic, at.partition), self._logs.clock()
            self._writer = writer
            data = validate(self._batch.records, writer.config, now, writer.place)
            self._checked = writer, data, now if writer.config.log_append_time else -1
        return self._checked

    def _note(self, writer: Turnstile, outcome: Appended | PylogError, time: int) -> None:
        if isinstance(outcome, Appended):
            base, end, is_old = outcome.base_offset, outcome.next_offset, outcome.duplicate
            self.outcome = Stored(base, end, writer.log.lease.log_start_left, time, is_old)
        else:
            self._fail(outcome)

    def _fail(self, error: Exception) -> None:
        """Takes in why it was refused, with the log start where Kafka has looked at the log."""
        start = -1
        is_of_log = isinstance(error, ProducerError) or (isinstance(error, InvalidRecordError) and error.records)
        if self._writer is not None and is_of_log:
            place = self._writer.place
            start = self._logs.reader(place.topic, place.partition).state().log_start
        self.outcome = Refused(error, start)
