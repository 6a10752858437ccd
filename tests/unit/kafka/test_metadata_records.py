"""`pyspark_log/kafka/records.py`: records of a cluster's metadata to bytes and back, and what is refused."""

import pytest

from pyspark_log.kafka import MessageError, messages
from pyspark_log.kafka.errors import UnknownRecordError
from pyspark_log.kafka.records import MetadataRecord, decode_record, encode_record
from pyspark_log.kafka.schemas import api, message, metadata_record
from tests.message_values import Values, all_records

RECORDS = all_records()


@pytest.mark.parametrize(("name", "version"), RECORDS)
def test_what_is_written_is_read_back_and_every_cut_is_an_error(name, version):
    values = Values(name, version)
    for value in (values.default(), *(values.any() for _ in range(5))):
        data = encode_record(value, version)
        assert decode_record(data) == MetadataRecord(name, version, value)
        assert decode_record(memoryview(data)).value == value
        for end in range(0, len(data), 1 + len(data) // 200):
            with pytest.raises(MessageError):
                decode_record(data[:end])
        with pytest.raises(MessageError, match=f"{name} version {version}: 1 bytes too many"):
            decode_record(data + b"\0")


def test_a_records_type_is_no_key_of_an_api():
    assert metadata_record(3).name == "PartitionRecord"
    assert metadata_record(3).api_key is None
    assert api(3)[0].name == "MetadataRequest"
    assert {api(key)[0].record_type for key in (0, 3, 18, 58)} == {None}
    for value in (messages.MetadataRequest(), messages.RequestHeader()):
        with pytest.raises(TypeError, match="is no record of a cluster's metadata"):
            encode_record(value, 0)


def test_each_type_is_known_once():
    found = [message(name).record_type for name in {name for name, _ in RECORDS}]
    assert sorted(found) == sorted({*range(29)} - {6, 13, 16})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\2\3\0", "frame version 2, expected 1"),
        (b"\0\3\0", "frame version 0, expected 1"),
        (b"\1\6\0", "unknown type, 6"),
        (b"\1\xe8\7\0", "unknown type, 1000"),
        (b"\1\3\3" + bytes(40), "PartitionRecord of version 3, and version 2 is the newest that is known"),
    ],
)
def test_a_record_that_is_not_known(data, why):
    with pytest.raises(UnknownRecordError, match=why):
        decode_record(data)


@pytest.mark.parametrize("data", [b"", b"\1", b"\1\3", b"\xff\xff\xff\xff\xff\0", b"\1\3\2\0"])
def test_what_is_no_record(data):
    with pytest.raises(MessageError) as raised:
        decode_record(data)
    assert not isinstance(raised.value, UnknownRecordError)


def test_a_value_that_does_not_fit():
    with pytest.raises(MessageError, match="leader: "):
        encode_record(messages.PartitionRecord(leader=1 << 40), 2)
    with pytest.raises(MessageError, match="cordoned_log_dirs is not in this version"):
        encode_record(messages.RegisterBrokerRecord(cordoned_log_dirs=[bytes(16)]), 3)
