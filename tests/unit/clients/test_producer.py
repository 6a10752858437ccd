"""The producer of single records: where they end up, what is said of each, and that none is lost or doubled."""

import asyncio
import concurrent.futures
import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from pyspark_log.clients import Consumer, Producer
from pyspark_log.clients import producer as producer_module
from pyspark_log.errors import (
    InvalidConfigError,
    InvalidRecordError,
    InvalidTopicError,
    LogDamagedError,
    RecordTooLargeError,
    UnknownTopicError,
)
from pyspark_log.storage.ingest.partitioner import murmur2
from pyspark_log.storage.segment import SegmentReader, read_headers
from tests.processes import forked, run_at_once
from tests.store_tools import all_values, store_with, values

PATIENCE = 120


store = store_with({"retention.ms": "-1"}, partitions=3)


def read(store, partition, topic="t"):
    return [row for batch in store.read(topic, partition, headers=True) for row in batch.to_pylist()]


def batches(store, partition=0, topic="t"):
    place = store.logs.place(topic, partition)
    reader = SegmentReader(place.folder, 0)
    try:
        return len(list(read_headers(reader.log, 0, reader.log.size(), None)))
    finally:
        reader.close()


def test_each_record_is_where_its_delivery_says(store):
    with Producer(store, linger_ms=5, batch_size=2000) as producer:
        sent = {}
        for number in range(1000):
            key = None if number % 3 == 0 else b"k%d" % (number % 17)
            partition = number % 2 if number % 10 == 5 else None
            sent[b"%d" % number] = key, partition, producer.send("t", b"%d" % number, key=key, partition=partition)
    for value, (key, partition, delivery) in sent.items():
        at = delivery.result(0)
        assert delivery.done()
        assert delivery.exception() is None
        [found] = values(store, at.partition, start=at.offset, end=at.offset + 1)
        assert (at.topic, found) == ("t", value)
        if partition is not None:
            assert at.partition == partition
        elif key is not None:
            assert at.partition == (murmur2(key) & 0x7FFFFFFF) % 3
    assert sorted(all_values(store)) == sorted(sent)


def test_all_of_a_record_arrives(clock, store):
    with Producer(store) as producer:
        producer.send("t", "wert", key="schlüssel", headers=[("a", b"1"), ("a", None)], timestamp_ms=5, partition=0)
        producer.send("t", key=b"gone", partition=0)
        producer.send("t", b"", partition=0, headers=[("text", "x")])
    first, second, third = read(store, 0)
    assert (first["key"], first["value"]) == ("schlüssel".encode(), b"wert")
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert first["timestamp"].timestamp() == 0.005
    assert (second["key"], second["value"], second["headers"]) == (b"gone", None, None)
    assert (third["key"], third["value"], third["headers"]) == (None, b"", [{"key": "text", "value": b"x"}])
    assert second["timestamp"].timestamp() == clock.ms / 1000


def test_records_that_wait_share_a_batch(store):
    with Producer(store, linger_ms=PATIENCE * 1000) as producer:
        sent = [producer.send("t", b"%d" % number, partition=0) for number in range(500)]
        assert not sent[0].done()
        producer.flush()
        assert sent[-1].result(0) == ("t", 0, 499)
        assert batches(store) == 1
        # A full batch does not wait.
        assert producer.send("t", bytes(300_000), partition=0).result(PATIENCE).offset == 500


def test_a_batch_waits_no_longer_than_the_linger(store):
    with Producer(store, linger_ms=20) as producer:
        assert producer.send("t", b"1", partition=0).result(PATIENCE).offset == 0


def test_threads_keep_their_order(store):
    with Producer(store, batch_size=500) as producer:

        def send(name):
            for number in range(500):
                producer.send("t", b"%d-%d" % (name, number), key=b"%d" % name)

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        run_at_once(threads)
    found = all_values(store)
    assert len(found) == 2000
    for name in range(4):
        of_thread = [value for value in found if value.startswith(b"%d-" % name)]
        assert of_thread == [b"%d-%d" % (name, number) for number in range(500)]


def test_synced_records_survive_a_power_loss(store):
    with Producer(store, sync=True) as producer:
        producer.send("t", b"1", partition=0).result()
        state = store.logs.reader("t", 0).state()
        assert (state.next_offset, state.synced) == (1, state.position)
    with Producer(store) as producer:
        producer.send("t", b"2", partition=0).result()
    state = store.logs.reader("t", 0).state()
    assert state.synced < state.position


def test_own_partitioner(store):
    asked = []

    def choose(topic, key, value, partitions):
        asked.append((topic, key, value, partitions))
        return None if key is None else int(key)

    with Producer(store, partitioner=choose) as producer:
        assert producer.send("t", b"v", key="2").result().partition == 2
        assert producer.send("t", b"v", key=b"1").result().partition == 1
        producer.send("t", b"w").result()
        assert producer.send("t", b"v", key=b"1", partition=0).result().partition == 0
    assert asked == [("t", b"2", b"v", 3), ("t", b"1", b"v", 3), ("t", None, b"w", 3)]


def test_serializers(store):
    """A function, and an object as kafka-python has them."""

    class Named:
        def serialize(self, topic, headers, data):
            return f"{topic} {data} {len(headers)}".encode()

    with Producer(store, key_serializer=Named(), value_serializer=json.dumps) as producer:
        producer.send("t", {"n": 5}, key=7, headers=[("h", b"")], partition=0)
        producer.send("t", partition=0)
    assert [(row["key"], row["value"]) for row in read(store, 0)] == [(b"t 7 1", b'{"n": 5}'), (None, None)]
    with Producer(store, value_serializer=lambda value: value) as producer, pytest.raises(InvalidRecordError):
        producer.send("t", 5)
    with pytest.raises(InvalidConfigError, match="key_serializer: expected a function or a serializer, got str"):
        Producer(store, key_serializer="json")


def test_a_serializer_of_confluent_gets_its_context(store):
    serialization = pytest.importorskip("confluent_kafka.serialization")

    class Told(serialization.Serializer):
        def __call__(self, value, context):
            return f"{context.topic} {context.field} {value}".encode()

    with Producer(store, value_serializer=Told(), key_serializer=Told()) as producer:
        producer.send("t", 1, key=2, partition=0)
    assert [(row["key"], row["value"]) for row in read(store, 0)] == [(b"t key 2", b"t value 1")]


def test_codec_of_a_topic_that_leaves_it_to_its_writers(store):
    with Producer(store, compression_type="zstd") as producer:
        producer.send("t", bytes(10_000), partition=0).result()
    assert store.logs.reader("t", 0).state().position < 1000


# --- what is refused


def test_a_wrong_record_does_no_harm_to_those_beside_it(store, caplog):
    store.create_topic("keyed", 2, {"cleanup.policy": "compact", "max.message.bytes": "1000"})
    with Producer(store, linger_ms=PATIENCE * 1000) as producer:
        sent = [
            producer.send("keyed", b"a", key=b"1"),
            producer.send("keyed", b"b"),
            producer.send("keyed", os.urandom(2000), key=b"2"),
            producer.send("keyed", b"d", key=b"3"),
        ]
    assert [type(one.exception()) for one in sent] == [type(None), InvalidRecordError, RecordTooLargeError, type(None)]
    with pytest.raises(InvalidRecordError, match="key"):
        sent[1].result()
    assert sorted(all_values(store, "keyed")) == [b"a", b"d"]
    assert len(caplog.records) == 2


def test_partitions_fail_one_by_one(store, caplog):
    with Producer(store, linger_ms=PATIENCE * 1000) as producer:
        sent = [producer.send("t", b"%d" % number, partition=number) for number in range(3)]
        # The log of another store, as it seems.
        folder = Path(store.logs.place("t", 1).folder)
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").mkdir()
    assert sent[0].result() == ("t", 0, 0)
    with pytest.raises(LogDamagedError, match="restore it"):
        sent[1].result()
    assert sent[2].result() == ("t", 2, 0)
    assert [values(store, 0), values(store, 2)] == [[b"0"], [b"2"]]
    assert len(caplog.records) == 1


def test_what_cannot_be_sent_is_refused_at_once(store):
    with Producer(store) as producer:
        for sent, error, why in (
            ({"topic": "nothing"}, UnknownTopicError, None),
            ({"partition": 3}, UnknownTopicError, "no partition 3"),
            ({"partition": -1}, UnknownTopicError, None),
            ({"topic": "__consumer_offsets"}, InvalidTopicError, None),
            ({"value": 1}, InvalidRecordError, "value: expected bytes, a str or None, got int"),
            ({"key": bytearray(1)}, InvalidRecordError, "key"),
            ({"headers": [(b"a", b"1")]}, InvalidRecordError, "header"),
            ({"headers": {"id": b"1"}}, InvalidRecordError, r"items\(\)"),
            ({"timestamp_ms": "now"}, InvalidRecordError, "timestamp_ms"),
            ({"partition": 0.5}, TypeError, None),
        ):
            with pytest.raises(error, match=why):
                producer.send(**{"topic": "t", "value": b"1"} | sent)
        producer.flush()
    assert all_values(store) == []
    with pytest.raises(InvalidConfigError):
        Producer(store, batch_size=0)
    with pytest.raises(ValueError, match="closed"):
        producer.send("t", b"1")


def test_a_topic_gets_partitions(store):
    with Producer(store) as producer:
        assert producer.send("t", b"1", partition=2).result().partition == 2
        store.add_partitions("t", 8)
        assert producer.send("t", b"1", partition=7).result().partition == 7
        # The next keys go by the new number.
        key = next(b"%d" % number for number in range(100) if (murmur2(b"%d" % number) & 0x7FFFFFFF) % 8 == 6)
        assert producer.send("t", b"1", key=key).result().partition == 6


def test_a_deleted_topic(store):
    with Producer(store) as producer:
        producer.send("t", b"1").result()
        store.delete_topic("t")
        with pytest.raises(UnknownTopicError):
            producer.send("t", b"1").result()


def test_a_topic_that_is_deleted_between_its_partitions(store, monkeypatch, caplog):
    """What is in the log is said to be, and is not appended once more."""
    append, calls = store.append, []

    def failing(topic, rows, **how):
        calls.append(rows.num_rows)
        if len(calls) == 1:
            results = append(topic, rows.filter(pc.equal(rows["partition"], 0)), **how)
            error = OSError("no")
            error.results = results
            raise error
        raise UnknownTopicError("t is gone")

    monkeypatch.setattr(store, "append", failing)
    with Producer(store, linger_ms=PATIENCE * 1000) as producer:
        sent = [producer.send("t", b"%d" % number, partition=number) for number in range(3)]
    assert sent[0].result() == ("t", 0, 0)
    assert [type(one.exception()) for one in sent[1:]] == [OSError, UnknownTopicError]
    assert (calls, all_values(store)) == ([3, 1], [b"0"])


# --- limits, ends, forks


def test_what_waits_is_bounded(store):
    writer = store.logs.writer("t", 0)
    producer = Producer(store, buffer_memory=10_000, max_block_ms=50)
    with writer.hold():
        first = producer.send("t", bytes(20_000), partition=0)
        with pytest.raises(TimeoutError, match="buffer_memory"):
            producer.send("t", b"1", partition=0)
        with pytest.raises(TimeoutError, match="not appended within"):
            first.result(0.01)
        with pytest.raises(TimeoutError):
            first.exception(0.01)
        with pytest.raises(TimeoutError):
            producer.flush(0.01)
        with pytest.raises(TimeoutError):
            producer.close(0.01)
    producer.close()
    assert first.result(0).offset == 0
    assert len(all_values(store)) == 1


def test_senders_continue_when_there_is_room(store):
    with Producer(store, buffer_memory=1000, batch_size=100) as producer:
        sent = [producer.send("t", b"%d" % number, partition=1) for number in range(300)]
    assert [one.result(0).offset for one in sent] == list(range(300))


def test_a_program_that_ends_loses_nothing(store):
    code = (
        "import sys; from pyspark_log import Producer, Store\n"
        "producer = Producer(Store.open(sys.argv[1]), linger_ms=600_000)\n"
        "for number in range(100): producer.send('t', str(number), partition=0)\n"
    )
    subprocess.run([sys.executable, "-c", code, store.path], check=True, timeout=PATIENCE)
    assert values(store) == [b"%d" % number for number in range(100)]


def test_a_forked_child_sends_nothing_of_its_parent(store):
    with Producer(store, linger_ms=PATIENCE * 1000) as producer:
        producer.send("t", b"1", partition=0)

        def send():
            with pytest.raises(ValueError, match="the producer is closed"):
                producer.send("t", b"2", partition=0)
            with Producer(store) as own:
                own.send("t", b"3", partition=0)

        with forked(send):
            pass
    assert values(store) == [b"3", b"1"]


def test_close_is_repeatable(store):
    producer = Producer(store)
    producer.flush()
    producer.close()
    producer.close()


def test_a_full_batch_waits_for_no_other_topic(store):
    store.create_topic("u", 1)
    with Producer(store, linger_ms=PATIENCE * 2000, batch_size=1000) as producer:
        waits = producer.send("t", b"1", partition=0)
        assert producer.send("u", bytes(2000)).result(PATIENCE).offset == 0
        assert not waits.done()


def test_records_that_wait_for_others_make_room(store):
    with Producer(store, linger_ms=PATIENCE * 2000, buffer_memory=1000, max_block_ms=PATIENCE * 1000) as producer:
        first = producer.send("t", bytes(2000), partition=0)
        producer.send("t", b"1", partition=0)
        assert first.done()


@pytest.mark.parametrize("forever", [float("inf"), 2**63 - 1])
def test_a_linger_without_end(store, forever):
    with Producer(store, linger_ms=forever, max_block_ms=forever) as producer:
        sent = producer.send("t", b"1", partition=0)
        with pytest.raises(TimeoutError):
            sent.result(0.5)
        producer.flush(PATIENCE)
        assert sent.result(0).offset == 0


def test_a_thread_that_cannot_be_started(store):
    producer = Producer(store)
    usual = threading.stack_size(1 << 46)
    try:
        with pytest.raises(RuntimeError, match="thread"):
            producer.send("t", b"1", partition=0)
    finally:
        threading.stack_size(usual)
    assert producer.send("t", b"2", partition=0).result(PATIENCE).offset == 0
    producer.close()


def test_a_delivery_that_is_kept_keeps_no_record(store):
    value = os.urandom(100)
    references = sys.getrefcount(value)
    with Producer(store) as producer:
        sent = producer.send("t", value, partition=0)
    assert sys.getrefcount(value) == references
    assert sent.result(0).offset == 0


@pytest.mark.parametrize("wrong", [{"timestamp_ms": 2**63}, {"headers": [("\udc80", b"")]}])
def test_a_record_that_no_column_holds_does_no_harm(store, wrong):
    with Producer(store, linger_ms=PATIENCE * 1000) as producer:
        before = producer.send("t", b"1", partition=0)
        refused = producer.send("t", b"2", partition=0, **wrong)
        after = producer.send("t", b"3", partition=0)
    assert isinstance(refused.exception(), InvalidRecordError)
    assert [before.result(0).offset, after.result(0).offset] == [0, 1]


def test_few_appends_find_a_refused_record(store):
    store.create_topic("keyed", 1, {"cleanup.policy": "compact"})
    with Producer(store, linger_ms=PATIENCE * 1000) as producer:
        sent = [producer.send("keyed", b"%d" % number, key=b"k" if number != 77 else None) for number in range(256)]
    assert isinstance(sent[77].exception(), InvalidRecordError)
    assert [one.result(0).offset for one in sent[:77] + sent[78:]] == list(range(255))
    assert batches(store, topic="keyed") <= 8


def test_offsets_of_two_producers_in_small_segments(store):
    store.create_topic("small", 1, {"segment.bytes": "2000"})
    sent = {}

    def send(name):
        with Producer(store, linger_ms=PATIENCE * 1000, batch_size=20_000) as producer:
            for number in range(1000):
                value = b"%d-%d" % (name, number) + bytes(100)
                sent[value] = producer.send("small", value)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(2)]
    run_at_once(threads)
    found = all_values(store, "small")
    assert [found[one.result(0).offset] for one in sent.values()] == list(sent)


def test_a_delivery_is_awaited(store):
    async def send():
        sent = [producer.send("t", b"%d" % number, partition=number % 3) for number in range(9)]
        first = asyncio.ensure_future(sent[0])
        await asyncio.sleep(0)
        assert not first.done()  # They wait for the producer, and the event loop runs.
        producer.flush()
        return [await first, *await asyncio.gather(*sent[1:])], await sent[0]

    with Producer(store, linger_ms=3_600_000) as producer:
        places, again = asyncio.run(send())
    assert [(at.partition, at.offset) for at in places] == [(number % 3, number // 3) for number in range(9)]
    assert again == places[0]


def test_an_awaited_delivery_raises_what_became_of_the_record(store):
    async def send():
        return await asyncio.gather(
            producer.send("t", b"v", partition=0, timestamp_ms=-5),
            producer.send("t", b"w", partition=0),
            return_exceptions=True,
        )

    with Producer(store) as producer:
        refused, appended = asyncio.run(send())
    assert isinstance(refused, InvalidRecordError)
    assert appended.offset == 0


def test_an_event_loop_that_ended_before_does_not_stop_the_producer(store):
    async def send():
        asyncio.ensure_future(producer.send("t", b"given up", partition=0))  # noqa: RUF006
        await asyncio.sleep(0)

    with Producer(store, linger_ms=3_600_000) as producer:
        asyncio.run(send())
        producer.flush()
        after = producer.send("t", b"after", partition=0)
        producer.flush()
    assert after.result(0).offset == 1


def test_deliveries_as_futures(store):
    with Producer(store, linger_ms=3_600_000) as producer:
        sent = [producer.send("t", b"v", partition=number) for number in range(3)]
        futures = [one.future() for one in sent]
        assert not futures[0].cancel()
        producer.flush()
    done, _ = concurrent.futures.wait([*futures, sent[0].future()], PATIENCE)
    assert {one.result() for one in done} == {one.result() for one in sent}


def test_what_a_producer_and_a_delivery_look_like(store):
    with Producer(store, linger_ms=3_600_000) as producer:
        delivery = producer.send("t", b"v", partition=0)
        assert repr(producer) == f"Producer(waiting_bytes=65, store={store.path!r})"
        with pytest.raises(AssertionError, match=r"await it, or call result\(\) or future\(\)"):
            asyncio.wrap_future(delivery, loop=object())
    assert repr(producer) == f"Producer(closed, store={store.path!r})"
    assert repr(delivery) == "<Delivery: RecordMetadata(topic='t', partition=0, offset=0)>"


def test_a_producer_that_is_dropped(store, monkeypatch):
    """What was sent is appended, and nothing of it stays."""
    monkeypatch.setattr(producer_module, "_IDLE", 0.01)
    started, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread), start(thread)))
    producer = Producer(store, linger_ms=50)
    producer.send("t", b"sent", partition=0)
    [thread] = started
    dropped, held = weakref.ref(producer), [producer]
    del producer

    def drop():
        held.clear()
        thread.join(PATIENCE)
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"a producer was dropped that is not closed: Producer\(waiting_bytes=0"):
        drop()
    assert dropped() is None
    assert values(store, 0) == [b"sent"]


def test_an_idle_producer_starts_its_thread_again(store, monkeypatch):
    monkeypatch.setattr(producer_module, "_IDLE", 0)
    with Producer(store) as producer:
        for number in range(50):
            producer.send("t", b"%d" % number, partition=0).result(PATIENCE)
            producer.send("t", b"and", partition=1)
        producer.flush()
    assert values(store, 0) == [b"%d" % number for number in range(50)]
    assert values(store, 1) == [b"and"] * 50


def test_whole_numbers_of_numpy(store):
    with Producer(store) as producer:
        producer.send("t", b"v", partition=np.int64(1), timestamp_ms=np.int64(7))
        for wrong in (True, 7.0, "7"):
            with pytest.raises(InvalidRecordError, match="timestamp_ms: expected an int or None, got"):
                producer.send("t", b"v", timestamp_ms=wrong)
    [row] = read(store, 1)
    assert row["timestamp"].timestamp() * 1000 == 7


@pytest.mark.parametrize("client", [Consumer, Producer])
def test_a_path_is_no_store(client, tmp_path):
    with pytest.raises(InvalidConfigError, match=r"Store\.open"):
        client(tmp_path)
