"""Stored batches, as a server sends them, and how it waits for new ones."""

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from server_requests import (
    FETCH_BY_ID,
    batch,
    each_version,
    fetch,
    fetch_request,
    id_of,
    produce,
    produce_request,
    values,
)
from transaction_tools import Log

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests.requests import NO_ID
from tests.server_tools import Peer, served

# Longer than any test waits for something that comes, so that a wait that ends has a reason; in ms.
_LONG = 60_000


def _fill(store, topic, *batches, partition=None):
    for batch_values in batches:
        store.append(topic, pa.record_batch({"value": list(batch_values)}), partition=partition)


@each_version(m.FetchRequest)
def test_each_version(peer, store, topic, version):
    _fill(store, topic, [b"a", b"b"], [b"c"])
    by_id = {"topic_id": id_of(store, topic)} if version >= FETCH_BY_ID else {}
    answer = fetch(peer, "" if by_id else topic, 0, version, **by_id)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    assert values(answer) == {0: b"a", 1: b"b", 2: b"c"}


def test_the_whole_batch_that_has_the_offset(peer, store, topic):
    _fill(store, topic, [b"a", b"b", b"c"], [b"d"])
    assert list(values(fetch(peer, topic, 1))) == [0, 1, 2, 3]
    assert list(values(fetch(peer, topic, 3))) == [3]


def test_at_the_end_there_is_nothing(peer, store, topic):
    _fill(store, topic, [b"a"])
    answer = fetch(peer, topic, 1)
    assert (answer.error_code, answer.high_watermark, bytes(answer.records)) == (0, 1, b"")


@pytest.mark.parametrize("offset", [-1, 0, 9])
def test_out_of_range(peer, store, topic, offset):
    _fill(store, topic, [b"a"], [b"b"])
    store.delete_records(topic, 0, 1)
    answer = fetch(peer, topic, offset)
    assert (answer.error_code, answer.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")


def test_unknown_topics_and_partitions(peer, topic):
    for name in ("missing", "__pylog_publish", "no name"):
        assert fetch(peer, name, 0).error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    response = peer.ask(fetch_request(topic, 0, 0), 12)
    assert [one.error_code for one in response.responses[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    response = peer.ask(fetch_request("", 0, topic_id=b"\x01" * 16), FETCH_BY_ID)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_are_compared(peer, store, topic):
    _fill(store, topic, [b"a"])

    def known(epoch):
        request = fetch_request(topic, 0)
        [[part]] = [one.partitions for one in request.topics]
        topics = [request.topics[0]._replace(partitions=[part._replace(current_leader_epoch=epoch)])]
        return peer.ask(request._replace(topics=topics), 12).responses[0].partitions[0].error_code

    assert known(0) == ErrorCode.NONE
    assert known(1) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_bytes_are_bounded_but_for_the_first_batch(peer, store, topic):
    _fill(store, topic, *[[bytes([number]) * 1000] for number in range(10)])
    size = len(fetch(peer, topic, 0, max_bytes=1).records)
    assert size > 1000
    assert len(fetch(peer, topic, 0, max_bytes=3 * size + 10).records) == 3 * size
    assert len(fetch(peer, topic, 0, total=2 * size).records) == 2 * size


def test_bytes_are_bounded_over_all_partitions(peer, store, topic):
    store.add_partitions(topic, 3)
    for number in range(3):
        for _ in range(3):
            store.append(topic, pa.record_batch({"value": [b"x" * 1000]}), partition=number)
    size = len(fetch(peer, topic, 0, max_bytes=1).records)
    [answers] = [one.partitions for one in peer.ask(fetch_request(topic, 0, 0, 0, total=4 * size), 12).responses]
    assert [len(one.records) // size for one in answers] == [3, 1, 0]
    # A batch that is larger than what is left is not sent, though one that is larger than all would be.
    [answers] = [one.partitions for one in peer.ask(fetch_request(topic, 0, 0, 0, total=10), 12).responses]
    assert [len(one.records) // size for one in answers] == [1, 0, 0]


def test_inactive_segments(peer, store, topic):
    store.alter_configs(topic, {"segment.bytes": "2000"})
    _fill(store, topic, *[[b"x" * 500] for _ in range(20)])
    found, offset = [], 0
    while offset < 20:
        got = list(values(fetch(peer, topic, offset)))
        found += got
        offset = got[-1] + 1
    assert found == list(range(20))


def test_large_records_come_whole(peer, store, topic):
    store.alter_configs(topic, {"max.message.bytes": "50000000"})
    large = bytes(range(256)) * 100_000
    produce(peer, topic, batch(large))
    answer = fetch(peer, topic, 0, max_bytes=100_000_000, total=100_000_000)
    assert values(answer) == {0: large}


# ---- sessions


# ---- waiting


def test_the_time_is_kept(peer, topic):
    begin = time.monotonic()
    assert bytes(fetch(peer, topic, 0, wait=200).records) == b""
    assert time.monotonic() - begin >= 0.2


def test_what_is_there_is_not_waited_for(peer, store, topic):
    _fill(store, topic, [b"a"])
    assert values(fetch(peer, topic, 0, wait=_LONG)) == {0: b"a"}
    # Nor is it with an error.
    assert fetch(peer, topic, 9, wait=_LONG).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(peer, topic, 1, wait=_LONG, least=0).error_code == ErrorCode.NONE


def test_woken_by_another_client(server, peer, store, topic):
    store.add_partitions(topic, 2)
    peer.send(fetch_request(topic, 0, 0, wait=_LONG), 12)
    with Peer(server) as other:
        produce(other, topic, batch(b"a"))
    [answers] = [one.partitions for one in peer.response().responses]
    assert values(answers[0]) == {0: b"a"}


def test_woken_by_another_process(peer, store, topic):
    """The store is opened in the process of the test, too."""
    for number in range(20):
        peer.send(fetch_request(topic, number, wait=_LONG), 12)
        threading.Timer(0.001 * (number % 3), _fill, (store, topic, [b"a"])).start()
        assert list(values(peer.response().responses[0].partitions[0])) == [number]


def test_woken_by_a_publish(peer, store, topic):
    peer.send(fetch_request(topic, 0, wait=_LONG), 12)
    plan = store.publishes.plan([topic])
    writer = store.publishes.writer(plan)
    writer.append(topic, pa.record_batch({"value": [b"a", b"b"]}))
    store.publishes.publish("someone", 0, writer.finish())
    assert values(peer.response().responses[0].partitions[0]) == {0: b"a", 1: b"b"}


def test_enough_bytes_are_waited_for(peer, store, topic):
    _fill(store, topic, [b"x" * 100])
    size = len(fetch(peer, topic, 0).records)
    peer.send(fetch_request(topic, 0, wait=_LONG, least=2 * size + 1), 12)
    _fill(store, topic, [b"x" * 100])
    _fill(store, topic, [b"x" * 100])
    assert list(values(peer.response().responses[0].partitions[0])) == [0, 1, 2]


def test_a_deleted_topic_ends_the_wait(peer, store, topic):
    _fill(store, topic, [b"a"])
    peer.send(fetch_request(topic, 1, wait=_LONG), 12)
    store.delete_topic(topic)
    assert peer.response().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_leaves_while_it_waits(server, peer, store, topic):
    for _ in range(20):
        with Peer(server) as other:
            other.send(fetch_request(topic, 0, wait=_LONG), 12)
    _fill(store, topic, [b"a"])
    assert values(fetch(peer, topic, 0)) == {0: b"a"}


def test_what_a_waiting_client_gets_is_what_is_stored(tmp_path):
    log = Log(tmp_path / "store")
    log.write(1, b"aborted")
    log.finish(1, commit=False)
    log.plain(b"0")
    end = log.end
    with served(log.store.path, tmp_path) as server, Peer(server) as waits, Peer(server) as peer:
        for isolation_level in (0, 1):
            for data in (
                batch(b"plain"),
                batch(b"1", b"2", producer_id=7, producer_epoch=0, base_sequence=3 * isolation_level),
                batch(b"3", producer_id=7, producer_epoch=0, base_sequence=3 * isolation_level + 2),
                batch(b"x" * 2000),  # in a new segment
            ):
                waits.send(fetch_request("t", end, wait=_LONG, isolation_level=isolation_level), 12)
                peer.send(produce_request("t", data), 9)
                peer.send(produce_request("t", batch(b"next")), 9)
                peer.response(), peer.response()
                got = waits.response().responses[0].partitions[0]
                stored = fetch(peer, "t", end, isolation_level=isolation_level)
                # The second one may have come before it looked.
                size = len(got.records)
                assert (got.records, got.aborted_transactions) == (stored.records[:size], stored.aborted_transactions)
                assert got.high_watermark == got.last_stable_offset == end + len(values(got))
                end = stored.high_watermark
            # By offsets that are not the waiting client's, too.
            assert values(fetch(peer, "t", end - 1, isolation_level=isolation_level)) == {end - 1: b"next"}


# ---- transactions, which another broker has begun and ended


def test_all_is_committed_where_no_producer_has_an_id(tmp_path):
    log = Log(tmp_path / "store")
    log.plain(b"0")
    with served(log.store.path, tmp_path) as server, Peer(server) as peer:
        found = fetch(peer, "t", 0, isolation_level=1)
        assert (found.high_watermark, found.last_stable_offset, [*found.aborted_transactions]) == (1, 1, [])
        assert list(values(found)) == [0]


def test_committed_and_aborted_transactions(tmp_path):
    log = Log(tmp_path / "store")
    log.plain(b"0")
    log.write(1, b"1", b"2")
    log.finish(1, commit=False)
    log.write(2, b"4")
    log.finish(2, commit=True)
    log.write(3, b"6")
    log.plain(b"7")
    with served(log.store.path, tmp_path) as server, Peer(server) as peer, Peer(server) as waits:
        committed = fetch(peer, "t", 0, isolation_level=1)
        assert (committed.high_watermark, committed.last_stable_offset) == (8, 6)
        [aborted] = committed.aborted_transactions
        assert (aborted.producer_id, aborted.first_offset) == (1, 1)
        assert fetch(peer, "t", 6, isolation_level=1).records == b""
        everything = fetch(peer, "t", 6)
        assert (everything.aborted_transactions, everything.last_stable_offset) == (None, 8)
        assert list(values(everything)) == [6, 7]
        # What is appended while a transaction is open is not shown to one that waits for it.
        for end in (8, 9, 10):
            waits.send(fetch_request("t", end, wait=100, isolation_level=1), 12)
            produce(peer, "t", batch(b"later"))
            waited = waits.response().responses[0].partitions[0]
            assert (waited.records, waited.high_watermark, waited.last_stable_offset) == (b"", end + 1, 6)


@pytest.mark.parametrize("limit", [{"total": 2500}, {"max_bytes": 2500}, {"total": 500, "least": 1 << 20}])
def test_a_fetch_waits_for_no_more_than_may_be_sent(peer, store, topic, limit):
    """Of batches that fit only in part the answer has less than the client wants at least, however long it waits."""
    for _ in range(3):
        store.append(topic, [{"value": b"x" * 1000}])
    answer = fetch(peer, topic, 0, **{"least": 2500, "wait": 600_000, **limit})
    assert 0 < len(values(answer)) < 3


# ---- partitions in which nothing happens


def _reads(server):
    """How often the server has read from files."""
    [line] = [line for line in Path(f"/proc/{server.process.pid}/io").read_text().splitlines() if "syscr" in line]
    return int(line.split()[1])


def _all_partitions(topic, ends):
    parts = [m.FetchRequest.FetchPartition(number, -1, end, -1, -1, 1 << 20) for number, end in enumerate(ends)]
    return fetch_request(topic, 0)._replace(topics=[m.FetchRequest.FetchTopic(topic, NO_ID, parts)], max_wait_ms=1)


def test_quiet_partitions_are_not_looked_at_again(server, peer, store, topic):
    """For half a second, unless a change of them is reported: so it may take a busy machine several tries."""
    ends = [1] * 100
    store.add_partitions(topic, len(ends))
    for number in range(len(ends)):
        _fill(store, topic, [b"a"], partition=number)
    for _ in range(100):
        peer.ask(_all_partitions(topic, ends), 12)
        before = _reads(server)
        assert not any(len(part.records) for part in peer.ask(_all_partitions(topic, ends), 12).responses[0].partitions)
        if _reads(server) - before < len(ends) // 2:
            break
    else:
        pytest.fail("each fetch reads the state of each partition")
    # What other processes append is seen at once.
    for number in (0, 7, 99, 7):
        _fill(store, topic, [b"b"], partition=number)
        parts = peer.ask(_all_partitions(topic, ends), 12).responses[0].partitions
        assert [(part.partition_index, list(values(part))) for part in parts if len(part.records)] == [
            (number, [ends[number]])
        ]
        ends[number] += 1
