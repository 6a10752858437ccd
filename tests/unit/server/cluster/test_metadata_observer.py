"""The observer: which controller it asks, what it takes of answers, snapshots, and what ends it."""

import pytest

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.errors import UnknownRecordError
from pyspark_log.server.cluster import Address, Observer, ObserverConfig
from pyspark_log.server.cluster.errors import MetadataError
from pyspark_log.server.cluster.image import Position
from pyspark_log.server.cluster.observer import METADATA_TOPIC_ID
from tests.metadata_tools import batch_of, batch_of_values, control_batch

A, B, C = (Address(name, 9093) for name in "abc")
TOPIC = m.TopicRecord("t", b"t" * 16)
NODES = {1: A, 2: B, 3: C}


def observer(*bootstrap, **config):
    return Observer(ObserverConfig(bootstrap or (A, B), **config))


def ask(one, now=0):
    """What it sends now: where to, the request's only partition, and the number."""
    send = one.poll(now)
    assert one.poll(now) is None  # one at a time
    (topic,) = send.request.topics
    (part,) = topic.partitions
    return send.to, part, send.number


def answer(one, response):
    """Answers what it sends now; what has changed."""
    _, _, number = ask(one)
    return one.answered(number, response, 0)


def fetched(records=b"", high_watermark=1 << 40, *, error=0, leader=1, epoch=1, nodes=NODES, **fields):
    """An answer to Fetch."""
    of = m.FetchResponse
    part = of.PartitionData(
        0, error, high_watermark, records=records, current_leader=of.LeaderIdAndEpoch(leader, epoch), **fields
    )
    named = [of.NodeEndpoint(leader, *nodes[leader])] if leader in nodes else []
    return of(responses=[of.FetchableTopicResponse("", METADATA_TOPIC_ID, [part])], node_endpoints=named)


def part_of(data, size, position, *, end=50, error=0, leader=1, epoch=1):
    """An answer to FetchSnapshot."""
    of = m.FetchSnapshotResponse
    part = of.PartitionSnapshot(
        0, error, of.SnapshotId(end, epoch), of.LeaderIdAndEpoch(leader, epoch), size, position, data
    )
    return of(topics=[of.TopicSnapshot("", [part])], node_endpoints=[of.NodeEndpoint(leader, *NODES[leader])])


def led(one, now=0):
    """The observer, which has found the leader, A, of epoch 1, and nothing in its log."""
    _, _, number = ask(one, now)
    one.answered(number, fetched(error=ErrorCode.FENCED_LEADER_EPOCH), now)
    to, _, number = ask(one, now)
    one.answered(number, fetched(b"", -1), now)
    assert to == one.leader == A
    return one


def snapshot_offered(one, end=50, epoch=1):
    assert answer(one, fetched(snapshot_id=m.FetchResponse.SnapshotId(end, epoch))) is None


# ---- which controller it asks


def test_the_first_request():
    one = observer(node_id=7, directory_id=b"d" * 16, cluster_id="x", max_bytes=999, max_wait=5)
    send = one.poll(0)
    assert (send.to, send.deadline) == (A, 5000)
    request = send.request
    assert (request.cluster_id, request.replica_state.replica_id) == ("x", 7)
    assert (request.max_bytes, request.max_wait_ms) == (999, 5)
    assert request.topics[0].topic_id == METADATA_TOPIC_ID
    (part,) = request.topics[0].partitions
    assert (part.partition, part.fetch_offset, part.last_fetched_epoch, part.current_leader_epoch) == (0, 0, 0, 0)
    assert part.replica_directory_id == b"d" * 16


def test_a_leader_that_an_answer_names_is_asked_at_once():
    one = observer()
    to, _, number = ask(one)
    assert to == A
    one.answered(number, fetched(error=ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=4), 10)
    assert one.trouble == "a:9093 has answered FENCED_LEADER_EPOCH"
    to, part, number = ask(one, 10)
    assert (to, part.current_leader_epoch, one.leader) == (C, 4, C)
    one.answered(number, fetched(leader=3, epoch=4), 20)
    assert one.trouble is None
    assert ask(one, 20)[0] == C


def test_without_a_leader_each_is_asked_in_turn_and_later_each_time():
    one, now, asked, pauses = observer(A, B, C), 0, [], []
    for _ in range(10):
        to, _, number = ask(one, now)
        asked.append(to)
        one.answered(number, fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1, epoch=3), now)
        assert one.poll(one.next_deadline() - 1) is None
        pauses.append(one.next_deadline() - now)
        now = one.next_deadline()
    assert asked == [A, B, C, A, B, C, A, B, C, A]
    assert pauses == [50, 100, 200, 400, 500, 500, 500, 500, 500, 500]


def test_a_leader_that_does_not_answer_is_doubted_and_others_name_the_next():
    one = led(observer(A, B))
    to, _, number = ask(one)
    assert to == A
    one.failed(number, "refused", 0)
    assert (one.leader, one.trouble) == (None, "refused")
    to, _, number = ask(one, 50)
    assert to == B
    # B has not heard of another one yet, so A is asked, but later; then B again.
    one.answered(number, fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=1), 60)
    assert one.poll(159) is None
    to, _, number = ask(one, 160)
    assert to == A
    one.failed(number, "refused", 160)
    to, _, number = ask(one, 1000)
    assert to == B
    one.answered(number, fetched(error=ErrorCode.FENCED_LEADER_EPOCH, leader=2, epoch=2), 1000)
    to, part, _ = ask(one, 1000)
    assert (to, part.current_leader_epoch) == (B, 2)


def test_no_answer_in_time():
    one = led(observer(request_timeout=1000))
    _, _, number = ask(one, 5)
    assert one.next_deadline() == 1005
    assert one.poll(1004) is None
    assert one.poll(1005) is None
    assert (one.trouble, one.leader, one.next_deadline()) == ("no answer in time", None, 1055)
    # The answer comes after all.
    assert one.answered(number, fetched(batch_of([TOPIC], 0), 1), 1010) is None
    one.failed(number, "closed", 1010)
    assert (one.image.topics, one.trouble) == ({}, "no answer in time")


def test_an_answer_is_taken_once():
    one = led(observer())
    _, _, number = ask(one)
    answer = fetched(batch_of([TOPIC], 0), 1)
    assert one.answered(number, answer, 0) is not None
    assert one.answered(number, answer, 0) is None
    assert one.answered(number + 7, answer, 0) is None


def test_a_leader_of_an_older_epoch_is_not_followed():
    one = led(observer(A, B, C))
    answer(one, fetched(error=ErrorCode.FENCED_LEADER_EPOCH, leader=2, epoch=5))
    for error in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NONE):
        _, part, number = ask(one, one.next_deadline())
        assert part.current_leader_epoch == 5
        one.answered(number, fetched(batch_of([TOPIC], 0), 1, error=error, leader=1, epoch=1), one.next_deadline())
        assert one.image.topics == {}
        assert one.leader != A


def test_controllers_without_addresses_in_their_answers():
    """Those before 3.7: the leader is known when it answers itself."""
    one = observer(A, B)
    answer(one, fetched(error=ErrorCode.FENCED_LEADER_EPOCH, leader=2, epoch=4, nodes={}))
    assert one.leader is None
    to, part, number = ask(one, one.next_deadline())
    assert (to, part.current_leader_epoch) == (B, 4)
    one.answered(number, fetched(leader=2, epoch=4, nodes={}), 100)
    assert one.leader == B


@pytest.mark.parametrize(("listener", "expected"), [(None, A), ("SECOND", B), ("THIRD", None)])
def test_controllers_are_found_in_the_metadata(listener, expected):
    one = observer(C, listener=listener)
    of = m.RegisterControllerRecord
    endpoints = [of.ControllerEndpoint("FIRST", *A, 0), of.ControllerEndpoint("SECOND", *B, 0)]
    answer(one, fetched(batch_of([of(9, bytes(16), False, endpoints, [])], 0), 1, nodes={}))
    _, _, number = ask(one)
    one.failed(number, "closed", 0)
    assert one.poll(50).to == (expected or C)


# ---- what it takes


def test_only_what_is_committed_is_taken_and_the_rest_is_asked_for_again():
    one = led(observer())
    data = batch_of([TOPIC], 0) + control_batch(1) + batch_of([m.NoOpRecord(), m.NoOpRecord()], 2, 1)
    for high_watermark, position, now in ((-1, -1, 0), (0, -1, 50), (1, 0, 100), (2, 1, 100), (3, 1, 100), (4, 3, 150)):
        assert one.poll(now - 1) is None or now in (0, 100)
        _, part, number = ask(one, now)
        before = one.image
        change = one.answered(number, fetched(data, high_watermark), now)
        assert (change is None) == (one.image.position == before.position)
        assert one.image.position.offset == position
        assert one.is_current == (high_watermark == position + 1 and high_watermark >= 0)
        assert one.next_deadline() == (now if change else now + 50)
    _, part, _ = ask(one, 150)
    assert (part.fetch_offset, part.last_fetched_epoch) == (4, 1)


def test_an_answer_without_records_is_followed_by_the_next_request():
    one = led(observer())
    _, _, number = ask(one)
    assert one.answered(number, fetched(b"", 0), 500) is None
    assert one.is_current
    assert ask(one, 500)[1].fetch_offset == 0
    two = led(observer())
    _, _, number = ask(two)
    two.answered(number, fetched(None, 0), 500)
    assert two.is_current


def test_a_transaction_is_not_asked_for_twice():
    one = led(observer())
    assert answer(one, fetched(batch_of([m.BeginTransactionRecord(), TOPIC], 0), 2)).topics == set()
    assert one.image.position.offset == -1
    _, part, number = ask(one)
    assert (part.fetch_offset, part.last_fetched_epoch) == (2, 1)
    change = one.answered(number, fetched(batch_of([m.EndTransactionRecord()], 2), 3), 0)
    assert set(change.topics) == {TOPIC.topic_id}


def test_damaged_records_are_asked_for_again():
    one = led(observer())
    _, _, number = ask(one)
    data = bytearray(batch_of([TOPIC], 0))
    data[-1] ^= 1
    assert one.answered(number, fetched(bytes(data), 1), 0) is None
    assert "CRC" in one.trouble
    _, part, number = ask(one, one.next_deadline())
    assert part.fetch_offset == 0
    one.answered(number, fetched(batch_of([TOPIC], 0), 1), 100)
    assert set(one.image.topics) == {TOPIC.topic_id}


@pytest.mark.parametrize(
    "response",
    [
        m.FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
        m.FetchResponse(),
        fetched(error=8),
        fetched(error=999),
    ],
)
def test_an_answer_that_is_of_no_use(response):
    one = led(observer())
    assert answer(one, response) is None
    assert one.trouble.startswith("a:9093 has answered ")
    assert one.next_deadline() > 0


# ---- snapshots


SNAPSHOT = control_batch(0) + batch_of([TOPIC, m.FeatureLevelRecord("f", 1)], 1) + control_batch(3)


@pytest.mark.parametrize("size", [1, 40, 100, len(SNAPSHOT)])
def test_a_snapshot_is_fetched_in_parts(size):
    one = led(observer(node_id=7, directory_id=b"d" * 16, cluster_id="x", max_bytes=999))
    snapshot_offered(one)
    for position in range(0, len(SNAPSHOT), size):
        send = one.poll(0)
        request = send.request
        assert (request.cluster_id, request.replica_id, request.max_bytes) == ("x", 7, 999)
        assert request.topics[0].name == "__cluster_metadata"
        (part,) = request.topics[0].partitions
        assert (part.snapshot_id, part.position, part.current_leader_epoch) == ((50, 1), position, 1)
        assert part.replica_directory_id == b"d" * 16
        data = SNAPSHOT[position : position + size]
        change = one.answered(send.number, part_of(memoryview(data), len(SNAPSHOT), position), 0)
    assert set(change.topics) == {TOPIC.topic_id}
    assert (one.image.features, one.image.position) == ({"f": 1}, Position(49, 1))
    _, part, number = ask(one)
    assert (part.fetch_offset, part.last_fetched_epoch) == (50, 1)
    assert one.answered(number, fetched(batch_of([m.FeatureLevelRecord("f", 2)], 50), 51), 0).after.features == {"f": 2}


def test_a_running_node_takes_a_snapshot_too():
    one = led(observer())
    answer(one, fetched(batch_of([m.FeatureLevelRecord("old", 1)], 0), 1))
    snapshot_offered(one)
    send = one.poll(0)
    change = one.answered(send.number, part_of(SNAPSHOT, len(SNAPSHOT), 0), 0)
    assert (change.before.features, change.after.features) == ({"old": 1}, {"f": 1})


@pytest.mark.parametrize(
    "answer",
    [
        part_of(b"", 0, 0, error=ErrorCode.SNAPSHOT_NOT_FOUND),
        part_of(b"", 0, 0, error=ErrorCode.POSITION_OUT_OF_RANGE),
        part_of(b"", len(SNAPSHOT), 0),
        part_of(SNAPSHOT, len(SNAPSHOT), 3),
        part_of(SNAPSHOT[:-1], len(SNAPSHOT) - 1, 0),
        part_of(SNAPSHOT[:-5] + b"\0" + SNAPSHOT[-4:], len(SNAPSHOT), 0),
    ],
)
def test_a_snapshot_that_is_gone_or_damaged_is_looked_for_in_the_log_again(answer):
    one = led(observer())
    snapshot_offered(one)
    send = one.poll(0)
    assert one.answered(send.number, answer, 0) is None
    assert one.trouble is not None
    _, part, _ = ask(one, one.next_deadline())
    assert part.fetch_offset == 0


def test_the_next_leader_has_the_snapshot_too():
    one = led(observer())
    snapshot_offered(one)
    send = one.poll(0)
    one.answered(send.number, part_of(SNAPSHOT[:60], len(SNAPSHOT), 0), 0)
    send = one.poll(0)
    one.answered(send.number, part_of(b"", 0, 0, error=ErrorCode.FENCED_LEADER_EPOCH, leader=2, epoch=2), 0)
    send = one.poll(0)
    (part,) = send.request.topics[0].partitions
    assert (send.to, part.snapshot_id, part.position, part.current_leader_epoch) == (B, (50, 1), 60, 2)
    answer = part_of(SNAPSHOT[60:], len(SNAPSHOT), 60, leader=2, epoch=2)
    assert one.answered(send.number, answer, 0).after.position == Position(49, 1)


# ---- what ends it


def test_controllers_that_have_lost_what_was_committed():
    one = led(observer())
    answer(one, fetched(batch_of([TOPIC, m.NoOpRecord()], 0), 2))
    _, _, number = ask(one)
    with pytest.raises(MetadataError, match=r"up to offset 1 of epoch 1, and epoch 1 ends at offset 1 in their log"):
        one.answered(number, fetched(diverging_epoch=m.FetchResponse.EpochEndOffset(1, 1)), 0)
    _, _, number = ask(one)
    with pytest.raises(MetadataError, match="they offer a snapshot that ends at offset 2"):
        one.answered(number, fetched(snapshot_id=m.FetchResponse.SnapshotId(2, 1)), 0)


def test_controllers_of_another_cluster():
    one = observer()
    _, _, number = ask(one)
    with pytest.raises(MetadataError, match="a:9093 is a controller of another cluster"):
        one.answered(number, m.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), 0)


def test_a_record_that_is_not_known_ends_it_when_it_is_committed():
    one = led(observer())
    data = batch_of([TOPIC], 0) + batch_of_values([b"\1\x7f\0"], 1)
    answer(one, fetched(data, 1))
    assert one.image.position.offset == 0
    _, _, number = ask(one)
    with pytest.raises(UnknownRecordError, match="unknown type, 127"):
        one.answered(number, fetched(data, 2), 0)
    assert one.image.position.offset == 0
