"""The consumer and the producer for asyncio: the same records, and none lost when a task is cancelled."""

import asyncio
import itertools
import threading

import pytest

from pyspark_log import AsyncConsumer, AsyncProducer, TopicPartition
from pyspark_log.errors import InvalidConfigError, UnknownTopicError
from tests.store_tools import rows, store_with

store = store_with({"retention.ms": "-1"}, settings={"offsets.topic.num.partitions": "1"})
PATIENCE, PATIENCE_MS = 120, 120_000
T0 = TopicPartition("t", 0)
BEGIN = {"auto_offset_reset": "earliest"}


def fill(store, count):
    store.append("t", rows(*(b"%d" % number for number in range(count))))


def run(main):
    return asyncio.run(asyncio.wait_for(main, PATIENCE))


def test_iterating(store):
    async def main():
        fill(store, 1200)
        async with AsyncConsumer(store, "t", **BEGIN, group_id=None) as consumer:
            await consumer.run(lambda one: one.stop_at())
            found = []
            async for record in consumer:
                found.append(record.offset)
                assert consumer.consumer.position(T0) == record.offset + 1
            assert found == list(range(1200))
            assert "AsyncConsumer(1 partitions" in repr(consumer)
        assert "closed" in repr(consumer)

    run(main())


def test_polls(store):
    async def main():
        async with AsyncConsumer(store, "t", **BEGIN) as consumer:
            waiting = asyncio.create_task(consumer.poll(PATIENCE_MS))
            await asyncio.sleep(0)
            fill(store, 3)
            assert [record.value for record in (await waiting)[T0]] == [b"0", b"1", b"2"]
            assert await consumer.poll() == {}
            consumer.consumer.seek(T0, 1)
            assert (await consumer.poll_arrow())["offset"].to_pylist() == [1, 2]

    run(main())


def test_errors_and_closing(store):
    async def main():
        consumer = AsyncConsumer(store, "t", **BEGIN)
        with pytest.raises(InvalidConfigError):
            await consumer.poll(max_records=0)
        for _ in range(2):
            await consumer.close()
        with pytest.raises(ValueError, match="closed"):
            await consumer.poll()

    run(main())


def test_a_close_that_is_cancelled_may_be_called_again(store):
    async def main():
        async with AsyncConsumer(store, "t") as consumer:
            begins = threading.Event()
            consumer._thread.submit(begins.wait)  # It is cancelled before it begins.
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            begins.set()
        assert "closed" in repr(consumer)

    run(main())


@pytest.mark.parametrize("how", ["poll", "poll_arrow", "next"])
def test_a_cancelled_call_loses_nothing(store, how):
    """It is cancelled at many moments: before it runs, while it waits, and when it has records that no task gets."""

    async def main():
        found = []
        async with AsyncConsumer(store, "t", **BEGIN, max_poll_records=3) as consumer:
            calls = {
                "poll": lambda: consumer.poll(PATIENCE_MS),
                "poll_arrow": lambda: consumer.poll_arrow(PATIENCE_MS),
                "next": consumer.__anext__,
            }
            for delay in itertools.chain(range(0, 40), (100, 300)):
                task = asyncio.create_task(calls[how]())
                if delay % 3 == 1:
                    fill(store, 1)
                await asyncio.sleep(delay / 10_000)
                if delay % 3 == 0:
                    fill(store, 1)
                task.cancel()
                try:
                    taken = await task
                except asyncio.CancelledError:
                    continue
                if how == "poll":
                    found += [record.offset for record in taken[T0]]
                else:
                    found += taken["offset"].to_pylist() if how == "poll_arrow" else [taken.offset]
            await consumer.run(lambda one: one.stop_at())
            async for record in consumer:
                found.append(record.offset)
        end = store.latest_offset("t", 0)
        assert end > 10
        assert found == list(range(end))

    run(main())


def test_a_cancelled_poll_ends(store):
    async def main():
        async with AsyncConsumer(store, "t", **BEGIN) as consumer:
            task = asyncio.create_task(consumer.poll(PATIENCE_MS))
            await asyncio.sleep(0.01)
            task.cancel()
            assert await asyncio.wait_for(consumer.poll(), PATIENCE / 2) == {}

    run(main())


def test_what_a_cancelled_poll_had_taken_is_handed_out_again(store):
    """The thread is done, and the task is cancelled before it learns that."""

    async def main():
        fill(store, 5)
        async with AsyncConsumer(store, "t", **BEGIN) as consumer:
            done = asyncio.Event()
            loop, poll = asyncio.get_running_loop(), consumer.consumer.poll

            def noted(*given):
                try:
                    return poll(*given)
                finally:
                    loop.call_soon_threadsafe(done.set)

            consumer.consumer.poll = noted
            task = asyncio.create_task(consumer.poll())
            await done.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            consumer.consumer.poll = poll
            assert [record.offset for record in (await consumer.poll())[T0]] == [0, 1, 2, 3, 4]

    run(main())


def test_the_producer(store):
    async def main():
        async with AsyncProducer(store) as producer:
            sent = await asyncio.gather(*(producer.send("t", b"%d" % number, partition=0) for number in range(500)))
            assert [one.offset for one in sent] == list(range(500))
            await producer.flush()
            with pytest.raises(UnknownTopicError):
                await producer.send("u", b"v")

    run(main())


def test_a_producer_waits_for_room(store):
    async def full():
        async with AsyncProducer(store, buffer_memory=1000, max_block_ms=20) as producer:
            with store.logs.writer("t", 0).hold():
                first = asyncio.create_task(producer.send("t", bytes(5000)))
                await asyncio.sleep(0)
                with pytest.raises(TimeoutError, match="buffer"):
                    await producer.send("t", b"v")
            assert (await first).offset == 0

    async def with_room():
        async with AsyncProducer(store, buffer_memory=1000) as producer:
            sent = await asyncio.gather(*(producer.send("t", bytes(600)) for _ in range(50)))
            assert sorted(one.offset for one in sent) == list(range(1, 51))

    run(full())
    run(with_room())
