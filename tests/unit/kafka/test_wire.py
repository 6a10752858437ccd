"""`pyspark_log/kafka`: messages to bytes and back, what is refused, what is not copied, and what memory it takes."""

import gc
import struct
import sys
import tracemalloc

import pytest

from pyspark_log.kafka import (
    FileRange,
    MessageError,
    UnsupportedVersionError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    messages,
)
from pyspark_log.kafka.schemas import message
from pyspark_log.kafka.wire import decode, encode
from tests.message_values import Values, all_records, all_versions, joined

VERSIONS = [*all_versions(), *all_records()]


def written(value, version):
    return joined(encode(None, None, message(type(value).__name__).plan(version), value))


def read(data, name, version):
    value, end = decode(message(name).plan(version), data, 0)
    assert end == len(data)
    return value


# ---- every version


@pytest.mark.parametrize("name", sorted({name for name, _ in VERSIONS}))
def test_every_cut_is_an_error(name):
    """In each version, at each byte of a short one, and a hundred of a long one."""
    for version in message(name).versions:
        values = Values(name, version, seed=1)
        value = values.any()
        data = written(value, version)
        assert read(data, name, version) == value
        for end in range(0, len(data), 1 + len(data) // 100):
            with pytest.raises(MessageError, match=r"byte \d+: "):
                decode(message(name).plan(version), data[:end], 0)


@pytest.mark.parametrize("count", [2_000_000_000, 50_000_000, 300_000])
def test_an_array_of_an_absurd_count_takes_no_memory(count):
    """Whatever number is where a count may be."""
    for name, version in VERSIONS:
        data = written(message(name).struct(), version)
        for at in range(len(data)):
            for number in (struct.pack(">i", count), varint(count + 1)):
                tracemalloc.start()
                try:
                    decode(message(name).plan(version), data[:at] + number + bytes(200), 0)
                except MessageError:
                    pass
                finally:
                    peak = tracemalloc.get_traced_memory()[1]
                    tracemalloc.stop()
                assert peak < 100_000, (name, version, at)


def varint(number):
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(data + bytes([number]))


# ---- fields


def test_a_field_that_the_version_lacks_has_its_default():
    value = messages.MetadataRequest(topics=None, include_topic_authorized_operations=False)
    assert value.allow_auto_topic_creation is True
    assert read(written(value, 1), "MetadataRequest", 1) == value


def test_a_value_that_the_version_cannot_say_is_refused_unless_it_may_be_dropped():
    may_not = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    with pytest.raises(MessageError, match=r"MetadataRequest\.allow_auto_topic_creation is not in this version"):
        written(may_not, 1)
    may = messages.ProduceResponse(throttle_time_ms=7, responses=[])
    assert read(written(may, 3), "ProduceResponse", 3).throttle_time_ms == 7
    partition = messages.ProduceResponse.PartitionProduceResponse(error_message="why", record_errors=[])
    topic = messages.ProduceResponse.TopicProduceResponse("t", partition_responses=[partition])
    old = read(written(messages.ProduceResponse([topic]), 7), "ProduceResponse", 7)
    assert old.responses[0].partition_responses[0].error_message is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (messages.ProduceRequest(acks=1 << 15), "acks: 32768 does not fit into 2 bytes"),
        (messages.ProduceRequest(acks="1"), "acks: "),
        (messages.ProduceRequest(timeout_ms=1 << 70), "timeout_ms: "),
        (messages.ProduceRequest(topic_data=None), "topic_data: null, where a value must be"),
        (messages.ProduceRequest(topic_data="t"), "topic_data: str is no array"),
        (messages.ProduceRequest(topic_data=["t"]), "topic_data: str is no TopicProduceData"),
        (messages.ProduceRequest(topic_data=[("t",)]), "topic_data: tuple is no TopicProduceData"),
        (messages.ProduceRequest(transactional_id="\ud800"), "transactional_id: "),
        (messages.ProduceRequest(transactional_id=b"x"), "transactional_id: bytes is no string"),
        (messages.ProduceRequest(transactional_id="x" * 40_000), "transactional_id: a length of 40000"),
        (
            messages.ProduceRequest(topic_data=[messages.ProduceRequest.TopicProduceData("t", bytes(16), [(1, "r")])]),
            "topic_data: partition_data: records: ",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(value, why):
    with pytest.raises(MessageError) as raised:
        written(value, 7)
    assert str(raised.value).startswith(why)


def test_a_tagged_value_that_does_not_fit_is_refused_with_its_place():
    with pytest.raises(MessageError, match=r"^cluster_id: int is no string"):
        written(messages.FetchRequest(cluster_id=1), 12)


def test_a_uuid_has_16_bytes():
    with pytest.raises(MessageError, match="is no UUID"):
        written(messages.MetadataRequest([(b"short", None)]), 12)


def test_tags_that_are_not_known_are_skipped():
    request = messages.ApiVersionsRequest("kcat", "1.7.1")
    data = written(request, 3)
    assert data.endswith(b"\0")
    known = data[:-1] + bytes([2, 5, 3]) + b"abc" + bytes([100, 0])
    assert read(known, "ApiVersionsRequest", 3) == request
    for broken in (
        bytes([1, 5, 4]) + b"abc",
        bytes([2, 5, 3]) + b"abc",
        b"\xff\xff\xff\xff\xff",
        b"\xff" * 4 + b"\x0f",
    ):
        with pytest.raises(MessageError):
            read(data[:-1] + broken, "ApiVersionsRequest", 3)


def test_a_tag_must_have_its_size_and_be_there_once():
    response = messages.ApiVersionsResponse(finalized_features_epoch=5)
    data = written(response, 3)
    epoch = bytes([1, 8, 0, 0, 0, 0, 0, 0, 0, 5])
    assert data.endswith(bytes([1]) + epoch)
    for broken in (bytes([2]) + epoch + epoch, bytes([1, 1, 9]) + epoch[2:] + b"\0", bytes([1, 1, 7]) + epoch[2:]):
        with pytest.raises(MessageError):
            read(data[: -len(epoch) - 1] + broken, "ApiVersionsResponse", 3)


def test_what_is_no_utf_8_is_replaced_as_java_does():
    data = written(messages.ApiVersionsRequest("ab", "1"), 3).replace(b"ab", b"a\xff")
    assert read(data, "ApiVersionsRequest", 3).client_software_name == "a\ufffd"


# ---- records


def produced(records):
    partition = messages.ProduceRequest.PartitionProduceData(3, records)
    return messages.ProduceRequest(
        None, -1, 5, [messages.ProduceRequest.TopicProduceData("t", partition_data=[partition])]
    )


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 1_000_000])
def test_records_are_parts_of_what_was_read_and_are_not_copied_when_written(size):
    records = b"r" * size
    chunks = encode_request(produced(records), 9, 1)
    assert any(chunk is records for chunk in chunks) == (size >= 4096)
    frame = joined(chunks)
    found = decode_request(frame)[1].topic_data[0].partition_data[0].records
    assert isinstance(found, memoryview)
    assert found.obj is frame
    assert found == records


def test_records_in_a_file_are_chunks_of_their_own():
    here = FileRange("a file", 7, 5_000_000)
    partitions = [messages.FetchResponse.PartitionData(0, records=records) for records in (here, b"xy", None)]
    topic = messages.FetchResponse.FetchableTopicResponse("t", partitions=partitions)
    chunks = encode_response(messages.FetchResponse(responses=[topic]), 12, 9)
    assert [chunk for chunk in chunks if isinstance(chunk, FileRange)] == [here]
    assert int.from_bytes(chunks[0][:4], "big") == sum(map(len, chunks)) - 4
    frame = b"".join(b"z" * len(chunk) if isinstance(chunk, FileRange) else chunk for chunk in chunks)[4:]
    correlation_id, response = decode_response(1, 12, frame)
    assert correlation_id == 9
    assert [one.records for one in response.responses[0].partitions] == [b"z" * 5_000_000, b"xy", None]


# ---- frames


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_a_response_to_api_versions_has_the_oldest_header_in_each_version(version):
    frame = joined(encode_response(messages.ApiVersionsResponse(35), version, 77))
    assert frame[:6] == struct.pack(">ih", 77, 35)
    assert decode_response(18, version, frame)[1].error_code == 35


def test_a_request_has_its_header():
    header, request = decode_request(joined(encode_request(messages.ListGroupsRequest(["Stable"]), 4, 12, "me")))
    assert header == messages.RequestHeader(16, 4, 12, "me")
    assert request.states_filter == ("Stable",)
    assert decode_request(joined(encode_request(messages.ListGroupsRequest(), 2, 12)))[0].client_id is None


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 99), (0, -1), (999, 0), (-1, 0)])
def test_an_api_or_version_that_is_not_known(key, version):
    with pytest.raises(UnsupportedVersionError) as raised:
        decode_request(struct.pack(">hhi", key, version, 5) + b"anything")
    error = raised.value
    assert (error.api_key, error.api_version, error.correlation_id) == (key, version, 5)


@pytest.mark.parametrize("frame", [b"", b"GET / ", struct.pack(">hhih", 18, 0, 1, 5) + b"x"])
def test_a_frame_that_is_no_request(frame):
    with pytest.raises(MessageError):
        decode_request(frame)


def test_bytes_after_a_request_are_ignored():
    """librdkafka 2.16 sends some, and Kafka takes no notice either."""
    _, request = decode_request(struct.pack(">hhih", 18, 0, 1, -1) + b"x")
    assert request == messages.ApiVersionsRequest()


def test_a_message_that_is_none():
    with pytest.raises(AttributeError):
        messages.NothingRequest  # noqa: B018
    with pytest.raises(TypeError, match="tuple is no message"):
        encode_response((1,), 0, 0)
    with pytest.raises(ValueError, match="has no version 2"):
        message("ProduceRequest").plan(2)


def test_nothing_leaks():
    """The engine counts references itself."""
    request = joined(encode_request(Values("FetchRequest", 12, 3).any(), 12, 1))
    response = Values("MetadataResponse", 12, 5).any()

    def run():
        for _ in range(200):
            decode_request(request)
            encode_response(response, 12, 1)
            for end in (20, 40, 60):
                with pytest.raises(MessageError):
                    decode_request(request[:end])

    def blocks():
        # The errors are in cycles with their tracebacks.
        gc.collect()
        return sys.getallocatedblocks()

    run()
    before = blocks()
    run()
    # What leaks does so in each of the 200 rounds; the interpreter itself keeps some more now and then.
    assert blocks() - before < 200
