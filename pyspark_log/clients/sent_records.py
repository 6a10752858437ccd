"""Records that were sent and are appended together, and what became of each."""

from __future__ import annotations

import contextlib
import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.errors import InvalidRecordError, PylogError, RecordTooLargeError
from pyspark_log.storage.ingest.partitioner import Partitioner, group
from pyspark_log.types import AppendResult

log = logging.getLogger(__name__)

#: A key or a value.
Data = bytes | str | None
#: The headers of a record: names and values.
Headers = Sequence[tuple[str, bytes | None]]
#: Appends rows to a topic, as `Store.append`.
Append = Callable[[pa.RecordBatch], Sequence[AppendResult]]
#: How many partitions a topic has, and what spreads records over them.
Spread = Callable[[], tuple[int, Partitioner]]

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))

# What a record takes beside its key and value, in bytes, about; and each of its headers.
_OVERHEAD = 64


class RecordMetadata(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class SentRecords:
    """Records of one topic that are appended together. Not thread-safe before `finished`.

    Attributes:
        topic: theirs.
        due: when they are appended at the latest, by the monotonic clock (s).
        size: the memory that they take, in bytes, about.
        finished: set when it is known of each whether it was appended.
    """

    def __init__(self, topic: str, due: float) -> None:
        self.topic = topic
        self.due = due
        self.size = 0
        self.finished = threading.Event()
        self._callbacks = list[Callable[[], None]]()
        self._count = 0  # after `finished`
        self._values = list[Data]()
        self._keys = list[Data]()
        self._timestamps = list[int]()
        self._partitions = list[int | None]()
        self._headers: dict[int, Headers] = {}
        # The partition of each row; the rows of each partition, one partition after the other; where each begins there.
        self._assignment: Sequence[int] = ()
        self._rows: Sequence[int] = ()
        self._bounds: Sequence[int] = ()
        # The first offset of each partition's records, or why they were not appended; and why all of them were not.
        self._outcomes: dict[int, int | Exception] = {}
        self._error: Exception | None = None
        self._halves: tuple[SentRecords, SentRecords] | None = None  # after one of the records was refused

    def add(self, value: Data, key: Data, headers: Headers, partition: int | None, timestamp: int) -> int:
        """Adds a record; returns its number."""
        row = len(self._values)
        self._values.append(value)
        self._keys.append(key)
        self._timestamps.append(timestamp)
        self._partitions.append(partition)
        size = _OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            self._headers[row] = headers
            size += sum(_OVERHEAD + len(name) + len(data or b"") for name, data in headers)
        self.size += size
        return row

    def append(self, append: Append, spread: Spread) -> None:
        """Appends the records. Raises nothing: what happens is their outcome.

        Args:
            append: as `Store.append`, for the topic.
            spread: returns how many partitions the topic has now, and what spreads records over them.
        """
        try:
            self._append_each_partition(append, self._assigned(*spread()))
        except (InvalidRecordError, RecordTooLargeError) as error:
            # Nothing was appended, perhaps for the sake of one record.
            if len(self._values) > 1:
                self._append_halves(append, spread)
            else:
                self._fail(error)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is for those that sent the records)
            self._fail(error)
        self._count = len(self._values)
        # A Delivery may be kept for long.
        self._values, self._keys, self._timestamps, self._partitions, self._headers = [], [], [], [], {}
        self.finished.set()
        self._call_back()

    def _append_each_partition(self, append: Append, rows: pa.RecordBatch) -> None:
        """Appends what a partition has, whatever happens to others. Raises what `append` raises for all of them."""
        while rows.num_rows:
            try:
                self._take(append(rows))
            except (OSError, PylogError) as error:
                results = getattr(error, "results", None)
                if results is None and not self._outcomes:
                    raise  # Nothing was appended.
                self._take(results or ())
                left = set(self._assignment) - self._outcomes.keys()
                # They are taken in their order; an error without results is of none of them, so of all.
                for partition in left if results is None else [min(left)]:
                    self._fail(error, partition)
                done = pa.array(list(self._outcomes), pa.int32())
                rows = rows.filter(pc.invert(pc.is_in(rows["partition"], done)))
            else:
                return

    def _take(self, results: Sequence[AppendResult]) -> None:
        for result in results:
            self._outcomes[result.partition] = result.base_offset

    def _fail(self, error: Exception, partition: int | None = None) -> None:
        """Notes an error, of one partition or of all."""
        log.error("%s: records were sent but not appended: %s", self.topic, error)
        if partition is None:
            self._error = error
        else:
            self._outcomes[partition] = error

    def _assigned(self, partitions: int, partitioner: Partitioner) -> pa.RecordBatch:
        """The records, each with a partition. InvalidRecordError: no column holds one of them."""
        try:
            columns = self._columns()
            explicit = pa.array(self._partitions, pa.int32())
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InvalidRecordError(f"{self.topic}: {error}") from error
        rows = len(self._values)
        if explicit.null_count == rows:
            explicit = None
        self._assignment = partitioner.assign(columns["key"], columns["value"], explicit, rows)
        self._rows, self._bounds = group(self._assignment, partitions)
        columns["partition"] = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(self._assignment)])
        return pa.record_batch(columns)

    def _columns(self) -> dict[str, pa.Array]:
        rows = len(self._values)
        columns = {
            "value": pa.array(self._values, pa.binary()),
            "key": pa.array(self._keys, pa.binary()),
            "timestamp": pa.array(self._timestamps, pa.int64()),
        }
        if self._headers:
            columns["headers"] = pa.array([self._headers.get(row) for row in range(rows)], _HEADERS)
        return columns

    def _append_halves(self, append: Append, spread: Spread) -> None:
        """Appends what is beside a refused record, which is found by halves."""
        fields = zip(self._values, self._keys, self._partitions, self._timestamps, strict=True)
        self._halves = SentRecords(self.topic, self.due), SentRecords(self.topic, self.due)
        middle = len(self._values) // 2
        for row, (value, key, partition, timestamp) in enumerate(fields):
            self._halves[row >= middle].add(value, key, self._headers.get(row, ()), partition, timestamp)
        for half in self._halves:
            half.append(append, spread)

    def when_finished(self, callback: Callable[[], None]) -> None:
        """Calls back once, after `finished`: in this thread if that is set, else in the thread that sets it."""
        self._callbacks.append(callback)
        if self.finished.is_set():
            self._call_back()

    def _call_back(self) -> None:
        # Two threads may be here at once: `pop` gives each callback to one of them.
        with contextlib.suppress(IndexError):
            while True:
                self._callbacks.pop()()

    def outcome(self, row: int) -> RecordMetadata | Exception:
        """Where a record is, or why it was not appended, after `finished`."""
        if self._halves is not None:
            middle = self._count // 2
            return self._halves[row >= middle].outcome(row - middle if row >= middle else row)
        if self._error is not None:
            return self._error
        partition = self._assignment[row]
        base = self._outcomes[partition]
        if isinstance(base, Exception):
            return base
        low, high = self._bounds[partition : partition + 2]
        return RecordMetadata(self.topic, partition, base + bisect_left(self._rows, row, low, high) - low)


class Delivery:
    """What becomes of one record that was sent. `await` it in asyncio, or call `result`."""

    __slots__ = ("_records", "_row")

    def __init__(self, records: SentRecords, row: int) -> None:
        self._records, self._row = records, row

    def done(self) -> bool:
        """Whether it is known."""
        return self._records.finished.is_set()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits until it is known; returns why the record was not appended, or None. TimeoutError: see `result`."""
        outcome = self._outcome(timeout)
        return outcome if isinstance(outcome, Exception) else None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is in the log; returns where.

        Raises:
            TimeoutError: it waits still after `timeout` seconds, and may be appended later.
            OutcomeUnknownError: it may have been appended.
            PylogError, OSError: it was not appended; the errors are those of `Store.append`.
        """
        outcome = self._outcome(timeout)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def future(self) -> Future[RecordMetadata]:
        """The same as a future, for `concurrent.futures.wait` and `asyncio.wrap_future`. It cannot be cancelled."""
        found = Future[RecordMetadata]()
        found.set_running_or_notify_cancel()
        self._records.when_finished(partial(self._settle, found))
        return found

    def _settle(self, future: Future[RecordMetadata]) -> None:
        outcome = self._records.outcome(self._row)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Waits as `result` does, while the event loop runs; with the same errors."""
        import asyncio  # noqa: PLC0415  (a program that awaits has it loaded; others need not)

        return asyncio.wrap_future(self.future()).__await__()

    def __repr__(self) -> str:
        if not self.done():
            return f"<Delivery to {self._records.topic!r}, pending: await it, or call result() or future()>"
        return f"<Delivery: {self._records.outcome(self._row)!r}>"

    def _outcome(self, timeout: float | None) -> RecordMetadata | Exception:
        if not self._records.finished.wait(timeout):
            raise TimeoutError(f"{self._records.topic}: a record was not appended within {timeout} s")
        return self._records.outcome(self._row)
