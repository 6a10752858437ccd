"""Markers inside control batches, against Kafka's bytes and against any bytes."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_tools import Record, build
from searching import searched

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker, decode_end_txn_marker
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.record.layout import CODECS, HEADER_SIZE
from tests.paths import KAFKA_JAVA

GOLDEN = KAFKA_JAVA / "19_control_commit.json"


def batch(key, value, codec="none"):
    data = build([Record(bytes.fromhex(key), bytes.fromhex(value))], codec, control=True, transactional=True)
    return data, scan(data, 0, len(data))[0]


def test_kafkas_commit_marker_is_read():
    data = bytes.fromhex(json.loads(GOLDEN.read_text(encoding="utf-8"))["hex"])
    assert decode_end_txn_marker(data, scan(data, 0, len(data))[0]) == EndTxnMarker(commit=True, coordinator_epoch=9)


@pytest.mark.parametrize("codec", CODECS)
def test_an_abort_is_read_with_what_later_versions_add(codec):
    assert decode_end_txn_marker(*batch("00010000ff", "000100000003ffff", codec)) == EndTxnMarker(False, 3)


def test_other_control_records_and_emptied_batches_are_none():
    assert decode_end_txn_marker(*batch("00000002", "0000")) is None
    data, header = batch("00000001", "000000000000")
    assert decode_end_txn_marker(data[:HEADER_SIZE], header._replace(count=0)) is None


@pytest.mark.parametrize(("key", "value"), [("0000", "000000000000"), ("00000001", "0000"), ("", "")])
def test_a_record_that_is_too_short_is_corrupt(key, value):
    with pytest.raises(CorruptRecordError, match="not a valid control record"):
        decode_end_txn_marker(*batch(key, value))


@searched
@given(st.binary(max_size=60), st.integers(0, 7))
def test_any_bytes_give_a_marker_none_or_the_error(body, codec):
    data, header = batch("00000001", "000000000000")
    header = header._replace(attributes=0x30 | codec, size=HEADER_SIZE + len(body))
    with contextlib.suppress(CorruptRecordError):
        decode_end_txn_marker(data[:HEADER_SIZE] + body, header)
