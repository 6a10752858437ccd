"""First and last offsets, offsets by time, and the ends of leader epochs."""

import pyarrow as pa
import pytest
from server_requests import EARLIEST, LARGEST_TIME, LATEST, each_version, list_offset

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests import requests as r


@pytest.fixture
def filled(store, topic):
    """Five records, of which the first is deleted; their times are 100, 300, 200, 500, 400 ms."""
    times = pa.array([100, 300, 200, 500, 400], pa.int64())
    store.append(topic, pa.record_batch({"value": [b"x"] * 5, "timestamp": times}))
    store.delete_records(topic, 0, 1)
    return topic


@each_version(m.ListOffsetsRequest)
def test_each_version(peer, filled, version):
    assert list_offset(peer, filled, LATEST, version).offset == 5
    assert list_offset(peer, filled, EARLIEST, version).offset == 1
    found = list_offset(peer, filled, 301, version)
    assert (found.offset, found.timestamp) == (3, 500)


@pytest.mark.parametrize(("time", "offset", "found"), [(0, 1, 300), (250, 1, 300), (301, 3, 500), (501, -1, -1)])
def test_by_time(peer, filled, time, offset, found):
    answer = list_offset(peer, filled, time)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, found)


def test_the_largest_time(peer, filled):
    assert list_offset(peer, filled, LARGEST_TIME)[2:4] == (500, 3)


@pytest.mark.parametrize(("time", "since"), [(LARGEST_TIME, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_meanings_that_a_version_lacks(peer, filled, time, since):
    assert list_offset(peer, filled, time, since).error_code == ErrorCode.NONE
    assert list_offset(peer, filled, time, since - 1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_local_and_tiered(peer, filled):
    assert list_offset(peer, filled, -4, 10).offset == 1
    assert [list_offset(peer, filled, time, 11).offset for time in (-5, -6)] == [-1, -1]


def test_an_empty_partition(peer, topic):
    assert [list_offset(peer, topic, time).offset for time in (LATEST, EARLIEST, 0, LARGEST_TIME)] == [0, 0, -1, -1]


def test_unknown(peer, topic):
    assert list_offset(peer, "missing", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(peer, topic, LATEST, partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_twice_in_a_request(peer, filled):
    [answers] = [one.partitions for one in peer.ask(r.list_offsets(filled, LATEST, LATEST), 5).topics]
    assert {one.error_code for one in answers} == {ErrorCode.INVALID_REQUEST}


def test_a_publish_that_nothing_has_applied_is_counted(peer, store, topic, monkeypatch):
    plan = store.publishes.plan([topic])
    writer = store.publishes.writer(plan)
    writer.append(topic, pa.record_batch({"value": [b"a", b"b"]}))
    parts = writer.finish()
    # As if the process had been killed after the decision.
    monkeypatch.setattr("pyspark_log.storage.publish.publishing.apply_decision", lambda *_, **__: None)
    store.publishes.publish("killed", 0, parts)
    assert list_offset(peer, topic, LATEST).offset == 2


@each_version(m.OffsetForLeaderEpochRequest)
def test_ends_of_leader_epochs(peer, filled, version):
    def end(epoch, current=-1):
        [[answer]] = [one.partitions for one in peer.ask(r.end_of_epoch(filled, epoch, current), version).topics]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end(0) == (ErrorCode.NONE, 0, 5)
    assert end(1) == (ErrorCode.NONE, -1, -1)
    assert end(-1) == (ErrorCode.NONE, -1, -1)
    assert end(0, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
