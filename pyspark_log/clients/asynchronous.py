"""The consumer and the producer for asyncio: the calls that wait run in a thread.

async with AsyncConsumer(store, "orders") as consumer:
    async for record in consumer:
        ...
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_log.clients.consumer import Consumer
from pyspark_log.clients.producer import Producer
from pyspark_log.clients.records import ConsumerRecord
from pyspark_log.clients.sent_records import Headers, RecordMetadata
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")

# How often a record that has no room is tried again, in seconds.
_ROOM_SECONDS = 0.002


class AsyncConsumer:
    """A consumer for one task at a time. Its methods are those of Consumer; those that may wait are to be awaited.

    Cancelling a call loses no records: what it had taken is handed out again. In place of `wakeup` cancel the task.

    Attributes:
        consumer: the consumer, for what does not wait: `pause`, `assignment`, `position` and the like. Not while a call
            is awaited.
    """

    def __init__(self, store: Store, *topics: str, **settings: Any) -> None:  # noqa: ANN401  (those of Consumer)
        """Arguments and errors are those of Consumer."""
        self.consumer = Consumer(store, *topics, **settings)
        self._thread = ThreadPoolExecutor(1, "pylog-consumer")

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        iterator = self.consumer._iterator

        def fill() -> bool:
            try:
                iterator.fill()
            except StopIteration:
                return False
            return True

        while (record := iterator.ready()) is None:
            if not await self._run(fill):
                raise StopAsyncIteration
        return record

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """As Consumer.poll."""
        return await self._run(lambda: self.consumer.poll(timeout_ms, max_records))

    async def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int | None = None, *, headers: bool = False
    ) -> pa.RecordBatch | None:
        """As Consumer.poll_arrow."""
        return await self._run(lambda: self.consumer.poll_arrow(timeout_ms, max_bytes, headers=headers))

    async def run(self, call: Callable[[Consumer], _T]) -> _T:
        """What another call returns that may wait: `await consumer.run(lambda one: one.commit())`."""
        return await self._run(lambda: call(self.consumer))

    async def close(self, autocommit: bool = True) -> None:
        """As Consumer.close. One that was cancelled can be repeated."""
        try:
            if not self.consumer._holding.is_closed:
                await self._in_thread(lambda: self.consumer.close(autocommit))
        finally:
            if self.consumer._holding.is_closed:
                self._thread.shutdown(wait=False)

    async def _run(self, call: Callable[[], _T]) -> _T:
        self.consumer._check_open()
        return await self._in_thread(call)

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        future = self._thread.submit(call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.consumer.wakeup()
            self._thread.submit(lambda: self._take_back(future))
            raise

    def _take_back(self, future: Future[_T]) -> None:
        """Hands out again what a call has handed out whose task was cancelled; in the thread, after the call."""
        self.consumer._holding.waiter.take_woken()
        if not future.cancelled() and future.exception() is None:
            for at, offset in _firsts(future.result()).items():
                self.consumer.seek(at, offset)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(autocommit=kind is None)

    def __repr__(self) -> str:
        return f"Async{self.consumer!r}"


def _firsts(handed_out: object) -> dict[TopicPartition, int]:
    """The offsets at which records begin that a poll has returned."""
    if isinstance(handed_out, dict):
        return {at: records[0].offset for at, records in handed_out.items() if isinstance(at, TopicPartition)}
    rows: list[dict[str, Any]] = getattr(handed_out, "to_pylist", list)()
    return {TopicPartition(row["topic"], row["partition"]): row["offset"] for row in reversed(rows)}


class AsyncProducer:
    """A producer whose `send` is awaited until the record is in the log. Arguments and errors are those of Producer.

    Attributes:
        producer: the producer; its `send` returns without waiting, unless `buffer_memory` is full.
    """

    def __init__(self, store: Store, *, max_block_ms: float = 60_000, **settings: Any) -> None:  # noqa: ANN401  (those of Producer)
        """Starts no thread yet."""
        self.producer = Producer(store, max_block_ms=0, **settings)
        self._patience = max_block_ms / 1000

    async def send(
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401  (as Producer.send)
        *,
        key: Any = None,  # noqa: ANN401
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends a record, and returns where it is, once it is in the log. Many are sent at once by `asyncio.gather`.

        If it is cancelled, the record is sent nevertheless, if there was room for it.
        """
        until = time.monotonic() + self._patience
        while True:
            try:
                sent = self.producer.send(
                    topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
                )
            except TimeoutError:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(_ROOM_SECONDS)  # There is no room yet.
            else:
                return await sent

    async def flush(self) -> None:
        """As Producer.flush."""
        await asyncio.to_thread(self.producer.flush)

    async def close(self) -> None:
        """As Producer.close."""
        await asyncio.to_thread(self.producer.close)

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
