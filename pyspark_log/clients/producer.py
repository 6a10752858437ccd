"""Sends records one by one, and appends those that wait together, as Kafka's producer does.

    with Producer(store) as producer:
        delivery = producer.send("orders", b"...", key=b"42")
        delivery.result()

An append costs a lock, a write and a move of the log end, however many records it has: some 70 us. So one thread
appends all that has come while it appended what came before; under load these are thousands of records.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from operator import index
from types import TracebackType
from typing import Any

from pyspark_log.arguments import check_store, check_whole
from pyspark_log.clients.sent_records import Data, Delivery, Headers, SentRecords
from pyspark_log.clients.serializers import Serializer, check_serializer, serialized
from pyspark_log.errors import InvalidRecordError
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.fs import clock
from pyspark_log.storage.ingest import PIECE_SIZE
from pyspark_log.storage.ingest.partitioner import Partitioner
from pyspark_log.storage.store import Store

#: Returns the partition of a record, or None: as without a partitioner. From topic, key, value, number of partitions.
ChoosePartition = Callable[[str, Data, Data, int], int | None]


# How long a thread waits for work, in seconds.
_IDLE = 1.0


class Producer:
    """Sends records in the background. Safe to use from several threads; a forked child makes its own.

    Close it, or use it in a `with` block: a program that ends closes it too, but not a child of multiprocessing. One
    that is dropped instead still appends what was sent; it warns (ResourceWarning), and its thread ends.

    Records that one thread sends to a partition keep their order. A record without a partition goes where its key
    says, by Kafka's hash; without a key to one partition until that has a batch, then to another.
    """

    def __init__(
        self,
        store: Store,
        *,
        sync: bool = False,
        linger_ms: float = 0,
        batch_size: int = 256 * 1024,
        buffer_memory: int = 32 * 1024 * 1024,
        max_block_ms: float = 60_000,
        compression_type: str | None = None,
        partitioner: ChoosePartition | None = None,
        key_serializer: Serializer = None,
        value_serializer: Serializer = None,
    ) -> None:
        """Starts no thread yet.

        Args:
            store: the store.
            sync: as for `Store.append`: one sync for all records that are appended together.
            linger_ms: how long a record waits for others to come. 0: only while others are appended.
            batch_size: bytes of a topic's records that are appended before that time is over; 2 MiB at most.
            buffer_memory: bytes of records that may wait.
            max_block_ms: how long `send` waits when there are more.
            compression_type: as for `Store.append`.
            partitioner: called with topic, key, value and the number of partitions of each record that names no
                partition; returns one, or None.
            key_serializer, value_serializer: make bytes of keys and values: a function, a serializer of kafka-python or
                confluent-kafka, or `pyspark_log.schemas.SchemaSerializer`; None: they are bytes or text.
        """
        check_store(store)
        check_serializer(key_serializer, "key")
        check_serializer(value_serializer, "value")
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        for name, number in (("batch_size", batch_size), ("buffer_memory", buffer_memory)):
            check_whole(name, number, low=1)
        self._store = store
        self._append = partial(store.append, sync=sync, compression_type=compression_type)
        # No longer than a lock can wait: some 292 years.
        self._linger, self._patience = (min(one / 1000, threading.TIMEOUT_MAX) for one in (linger_ms, max_block_ms))
        # A larger append could end between two of its parts.
        self._batch_size = min(batch_size, PIECE_SIZE)
        self._memory = buffer_memory
        self._choose = partitioner
        self._partitioners: dict[str, tuple[int, Partitioner]] = {}
        self._thread: threading.Thread | None = None
        self._reset()
        _open.add(self)

    def _reset(self) -> None:
        """Begins with nothing that waits, with new locks."""
        lock = threading.Lock()
        self._has_work, self._has_room = threading.Condition(lock), threading.Condition(lock)
        self._filling: dict[str, SentRecords] = {}
        self._waiting: deque[SentRecords] = deque()
        self._appending: SentRecords | None = None
        self._size = 0
        self._flushing = 0
        self._closed = False

    def send(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401  (what its serializer takes)
        *,
        key: Any = None,  # noqa: ANN401
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Sends a record, and returns at once, or when there is room for it.

        Args:
            topic: an existing topic.
            value, key: bytes, or a text, which is sent as UTF-8; None: it has none. A record without a value is a
                tombstone. With a serializer, what that takes.
            headers: names and values.
            partition: None: see above. timestamp_ms: its time in ms since 1970; None: now.

        Returns what becomes of it: `result()` waits until it is in the log.

        Raises:
            UnknownTopicError: no such topic or partition. InvalidTopicError: one of the engine's own topics.
            InvalidRecordError: a part of it has a wrong type. TypeError: the partition is no whole number.
            TimeoutError: more than `buffer_memory` waited for more than `max_block_ms`. ValueError: it is closed.
            Exception: what a serializer raises.
        """
        if isinstance(headers, Mapping):
            raise InvalidRecordError("headers: expected pairs of a name and a value, got a mapping: pass its items()")
        if headers:
            headers = [_header(one) for one in headers]
        if self._value_serializer is not None:
            value = serialized(self._value_serializer, topic, "value", value, headers)
        if self._key_serializer is not None:
            key = serialized(self._key_serializer, topic, "key", key, headers)
        value, key = _bytes("value", value), _bytes("key", key)
        count, _ = self._partitioners.get(topic) or self._partitioner(topic)
        if partition is None and self._choose is not None:
            partition = self._choose(topic, key, value, count)
        if partition is not None:
            partition = index(partition)
            if not 0 <= partition < count:
                # There may be more by now; if not, this says so.
                self._store.earliest_offset(topic, partition)
        timestamp_ms = clock.now_ms() if timestamp_ms is None else _checked_time(timestamp_ms)
        with self._has_work:
            if self._size >= self._memory:
                self._wait_for_room()
            if self._closed:
                raise ValueError("the producer is closed")
            records = self._filling.get(topic)
            if records is None:
                records = self._begin(topic)
            before = records.size
            row = records.add(value, key, headers, partition, timestamp_ms)
            self._size += records.size - before
            if records.size >= self._batch_size:
                del self._filling[topic]
                self._has_work.notify()
        return Delivery(records, row)

    def _partitioner(self, topic: str) -> tuple[int, Partitioner]:
        """How many partitions a topic has now, and what spreads records over them. UnknownTopicError."""
        check_not_internal(topic)
        count = self._store.describe_topic(topic).partitions
        found = self._partitioners.get(topic)
        if found is None or found[0] != count:
            seed = int.from_bytes(os.urandom(4), "big")
            found = self._partitioners[topic] = count, Partitioner(count, self._batch_size, seed)
        return found

    def _wait_for_room(self) -> None:
        # What waits for others to come waits no longer.
        self._has_work.notify()
        if not self._has_room.wait_for(lambda: self._size < self._memory or self._closed, self._patience):
            raise TimeoutError(
                f"the send buffer has been full for {self._patience} s: {self._size} of "
                f"{self._memory} bytes pending (buffer_memory)"
            )

    def _begin(self, topic: str) -> SentRecords:
        """Begins a batch of records, to be appended after those that wait."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="pylog-producer", daemon=True)
            thread.start()
            self._thread = thread
        records = self._filling[topic] = SentRecords(topic, time.monotonic() + self._linger)
        self._waiting.append(records)
        self._has_work.notify()
        return records

    def _work(self) -> None:
        while (records := self._next()) is not None:
            records.append(partial(self._append, records.topic), partial(self._partitioner, records.topic))
            with self._has_work:
                self._appending = None
                self._size -= records.size
                self._has_room.notify_all()

    def _next(self) -> SentRecords | None:
        """Waits for records that are due; None: nothing waits, and the producer is closed or was idle for a while."""
        with self._has_work:
            while (records := self._first_due()) is None:
                if self._waiting:
                    self._has_work.wait(self._waiting[0].due - time.monotonic())
                elif self._closed or not self._has_work.wait_for(lambda: self._waiting or self._closed, _IDLE):
                    # The thread holds the producer, which may be dropped by now. The next record starts another.
                    self._thread = None
                    return None
            self._waiting.remove(records)
            self._appending = records
            if self._filling.get(records.topic) is records:
                del self._filling[records.topic]
            return records

    def _first_due(self) -> SentRecords | None:
        """The first records that need not wait for others: they are full or due, or something waits for all."""
        if self._waiting and (
            self._flushing or self._closed or self._size >= self._memory or self._waiting[0].due <= time.monotonic()
        ):
            return self._waiting[0]
        return next((one for one in self._waiting if self._filling.get(one.topic) is not one), None)

    def flush(self, timeout: float | None = None) -> None:
        """Returns when all that was sent is in the log, or was refused. TimeoutError: not in `timeout` seconds."""
        with self._has_work:
            sent = [*self._waiting] if self._appending is None else [self._appending, *self._waiting]
            self._flushing += 1
            self._has_work.notify()
            try:
                if not self._has_room.wait_for(lambda: all(one.finished.is_set() for one in sent), timeout):
                    raise TimeoutError(f"not all records were appended within {timeout} s")
            finally:
                self._flushing -= 1

    def close(self, timeout: float | None = None) -> None:
        """Flushes, and ends the thread. TimeoutError: after `timeout` seconds; the thread then keeps running."""
        with self._has_work:
            self._closed, thread = True, self._thread
            self._has_work.notify()
            self._has_room.notify_all()
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError(f"not all records were appended within {timeout} s")
        _open.discard(self)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            said = f"a producer was dropped that is not closed: {self!r}"
            warnings.warn(said, ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        waiting = "closed" if self._closed else f"waiting_bytes={self._size}"
        return f"Producer({waiting}, store={self._store.path!r})"

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget(self) -> None:
        """In a forked child: closes; what waits is the parent's to append."""
        self._reset()
        self._closed, self._thread = True, None


# Those that are not closed.
_open: weakref.WeakSet[Producer] = weakref.WeakSet()


def _close_all() -> None:
    for producer in list(_open):
        producer.close()


def _in_child() -> None:
    for producer in list(_open):
        producer._forget()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_in_child)


def _bytes(what: str, data: object) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise InvalidRecordError(f"{what}: expected bytes, a str or None, got {type(data).__name__}")


def _header(header: tuple[str, bytes | None]) -> tuple[str, bytes | None]:
    name, value = header
    if not isinstance(name, str):
        raise InvalidRecordError(f"name of a header: expected a str, got {type(name).__name__}")
    return name, _bytes(f"header {name}", value)


def _checked_time(timestamp_ms: int) -> int:
    if isinstance(timestamp_ms, bool) or not hasattr(timestamp_ms, "__index__"):
        raise InvalidRecordError(f"timestamp_ms: expected an int or None, got {type(timestamp_ms).__name__}")
    return index(timestamp_ms)
