"""Record batches of clients, as a server takes and refuses them."""

import struct

import pytest
from record_tools import NOW, Record, build, patched, with_crc
from server_requests import (
    LATEST,
    PRODUCE_BY_ID,
    batch,
    each_version,
    fetch,
    id_of,
    list_offset,
    produce,
    produce_request,
    values,
)

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests.server_tools import Peer

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ATTRIBUTES_AT, _CRC_FROM = 21, 21


@each_version(m.ProduceRequest, lowest=3)
def test_each_version(peer, store, topic, version):
    by_id = {"topic_id": id_of(store, topic)} if version >= PRODUCE_BY_ID else {}
    named = "" if by_id else topic
    answers = [produce(peer, named, batch(b"a", b"b"), version, **by_id) for _ in range(2)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 2)]
    assert [answer.log_append_time_ms for answer in answers] == [-1, -1]
    assert values(fetch(peer, topic, 0)) == {0: b"a", 1: b"b", 2: b"a", 3: b"b"}


@pytest.mark.parametrize("codec", _CODECS)
def test_bytes_stay_as_they_were_sent(peer, store, topic, codec):
    sent = batch(b"a" * 100, b"b" * 100, codec=codec)
    produce(peer, topic, sent)
    stored = bytes(fetch(peer, topic, 0).records)
    # The offset, and the leader epoch, are the server's; the checksum begins after both.
    assert (stored[8:12], stored[16:]) == (sent[8:12], sent[16:])
    assert [row["value"] for row in store.read(topic, 0).__next__().to_pylist()] == [b"a" * 100, b"b" * 100]


@pytest.mark.parametrize("acks", [1, -1])
def test_acks(peer, topic, acks):
    assert produce(peer, topic, batch(b"a"), acks=acks).base_offset == 0


def test_acks_0_gets_no_answer(peer, store, topic):
    peer.send(produce_request(topic, batch(b"a"), acks=0), 9)
    # The next answer is that of the next request.
    assert list_offset(peer, topic, LATEST).offset == 1


def test_an_error_with_acks_0_closes_the_connection(server, topic):
    with Peer(server) as other:
        other.send(produce_request("missing", batch(b"a"), acks=0), 9)
        assert other.is_closed_by_server()
    server.wait_for("a batch with acks=0 was refused")


def test_other_acks_are_refused(peer, topic):
    assert produce(peer, topic, batch(b"a"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_several_partitions_have_an_answer_each(peer, store, topic):
    store.add_partitions(topic, 3)
    response = peer.ask(produce_request(topic, batch(b"a"), b"no batch", batch(b"c"), batch(b"d")), 9)
    [answers] = [one.partition_responses for one in response.responses]
    expected = [ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [(one.index, one.error_code) for one in answers] == list(enumerate(expected))
    assert [store.latest_offset(topic, number) for number in range(3)] == [1, 0, 1]


def test_a_large_batch(peer, store, topic):
    store.alter_configs(topic, {"max.message.bytes": "20000000"})
    large = b"x" * 9_000_000
    assert produce(peer, topic, batch(large)).error_code == ErrorCode.NONE
    assert produce(peer, topic, batch(b"a")).base_offset == 1
    assert values(fetch(peer, topic, 0)) == {0: large}


def test_log_append_time(peer, store, topic):
    store.alter_configs(topic, {"message.timestamp.type": "LogAppendTime"})
    answer = produce(peer, topic, batch(b"a", timestamp=1))
    [row] = store.read(topic, 0).__next__().to_pylist()
    assert answer.log_append_time_ms == row["timestamp"].timestamp() * 1000 > 1


def test_the_log_start_is_in_the_answer(peer, store, topic):
    for _ in range(3):
        produce(peer, topic, batch(b"a"))
    store.delete_records(topic, 0, 2)
    assert produce(peer, topic, batch(b"b")).log_start_offset == 2


# ---- idempotent producers


def test_a_repeated_batch_is_stored_once(peer, store, topic):
    sent = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    assert [produce(peer, topic, sent).base_offset for _ in range(2)] == [0, 0]
    assert store.latest_offset(topic, 0) == 2


@pytest.mark.parametrize(
    ("epoch", "sequence", "code"),
    [(1, 7, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (0, 1, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_what_does_not_follow_is_refused(peer, store, topic, epoch, sequence, code):
    produce(peer, topic, batch(b"a", producer_id=6, producer_epoch=1, base_sequence=0))
    wrong = batch(b"b", producer_id=6, producer_epoch=epoch, base_sequence=sequence)
    assert produce(peer, topic, wrong).error_code == code
    assert store.latest_offset(topic, 0) == 1


def test_each_producer_gets_an_id_of_its_own(peer):
    answers = [peer.ask(m.InitProducerIdRequest(None, 1000), version) for version in range(6)]
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    assert len({answer.producer_id for answer in answers}) == 6
    assert {answer.producer_epoch for answer in answers} == {0}


# ---- what is refused


@pytest.mark.parametrize("topic", ["missing", "__consumer_offsets", "__pylog_publish", "not a name"])
def test_topics_that_cannot_be_written(peer, topic):
    known = {"missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert produce(peer, topic, batch(b"a")).error_code == known.get(topic, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_an_unknown_id(peer):
    response = peer.ask(produce_request("", batch(b"a"), topic_id=b"\x01" * 16), PRODUCE_BY_ID)
    [[answer]] = [one.partition_responses for one in response.responses]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_batches_that_the_topic_refuses(peer, store, topic):
    store.alter_configs(topic, {"max.message.bytes": "1000", "message.timestamp.after.max.ms": "1000"})
    cases = {
        ErrorCode.MESSAGE_TOO_LARGE: batch(b"x" * 1000),
        ErrorCode.INVALID_TIMESTAMP: batch(b"a", timestamp=1 << 50),
        ErrorCode.CORRUPT_MESSAGE: batch(b"abc").replace(b"abc", b"abd"),
        ErrorCode.INVALID_RECORD: batch(b"a") + batch(b"b"),
    }
    answers = {code: produce(peer, topic, data) for code, data in cases.items()}
    assert {code: answer.error_code for code, answer in answers.items()} == {code: code for code in cases}
    assert all(answer.error_message for answer in answers.values())
    assert [one.batch_index for one in answers[ErrorCode.INVALID_TIMESTAMP].record_errors] == [0]
    assert all(answer.base_offset == -1 for answer in answers.values())
    assert store.latest_offset(topic, 0) == 0


@pytest.mark.parametrize("data", [None, b"", b"x" * 22])
def test_what_is_no_batch(peer, topic, data):
    assert produce(peer, topic, data).error_code == ErrorCode.INVALID_RECORD


def test_malformed_records_under_a_right_checksum_are_not_sent_again(peer, topic):
    sent = bytearray(batch(b"abc"))
    sent[-3] ^= 0x55  # within the only record
    sent[61] ^= 0x02  # its length
    assert produce(peer, topic, bytes(sent)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert produce(peer, topic, with_crc(bytes(sent))).error_code == ErrorCode.INVALID_RECORD


def test_control_batches_are_refused(peer, topic):
    control = patched(batch(b"a"), _ATTRIBUTES_AT, 2, 1 << 5)
    assert produce(peer, topic, control).error_code == ErrorCode.INVALID_RECORD


def test_a_compacted_topic_refuses_records_without_keys(peer, store, topic):
    store.alter_configs(topic, {"cleanup.policy": "compact"})
    assert produce(peer, topic, batch(b"a", key=b"k")).error_code == ErrorCode.NONE
    answer = produce(peer, topic, build([Record(key, b"v", NOW) for key in (b"k", None, None)]))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in answer.record_errors] == [1, 2]


def test_zstd_needs_a_version_that_knows_it(peer, topic):
    sent = batch(b"a" * 100, codec="zstd")
    assert produce(peer, topic, sent, 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(peer, topic, sent, 7).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(3))
def test_versions_that_kafka_has_removed_close_the_connection(server, version):
    with Peer(server) as other:
        header = struct.pack(">hhih", 0, version, 1, -1)
        other.socket.sendall(struct.pack(">i", len(header)) + header)
        assert other.is_closed_by_server()
    server.wait_for(f"not served: Produce in version {version}; versions 3 to 13 are served")
