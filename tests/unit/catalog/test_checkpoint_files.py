"""Kafka's small text files: read as Kafka wrote them, written as Kafka reads them, refused by file and line."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import searched

from pyspark_log.errors import SideFileError
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.catalog.kafka_files import MetaProperties
from pyspark_log.types import TopicPartition
from tests.paths import LOGDIR

TOPIC_ID = "ESIzRFVmd4iZqrvM3e7_AA"

names = st.text("abcXYZ019._-", min_size=1, max_size=20)
numbers = st.integers(0, 2**31 - 1)
long_numbers = st.integers(0, 2**63 - 1)


# ---- checkpoints


@pytest.mark.parametrize("name", [kafka_files.RECOVERY_POINT, kafka_files.HIGH_WATERMARK])
def test_kafkas_offset_checkpoints_are_read_and_written_alike(name, tmp_path):
    offsets = kafka_files.read_offsets(str(LOGDIR / name))
    assert offsets == {TopicPartition("orders", 0): 79, TopicPartition("txn", 0): 29}
    kafka_files.write_offsets(str(tmp_path / name), offsets)
    assert (tmp_path / name).read_bytes() == (LOGDIR / name).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", [kafka_files.LOG_START, kafka_files.CLEANER])
def test_kafkas_empty_checkpoints_are_read(name):
    assert kafka_files.read_offsets(str(LOGDIR / name)) == {}


def test_a_missing_or_empty_checkpoint_has_no_entries(tmp_path):
    assert kafka_files.read_offsets(str(tmp_path / "none")) == {}
    assert kafka_files.decode_epochs(b"", "c") == []
    assert kafka_files.decode_epochs(b"0\n", "c") == []


@searched
@given(st.dictionaries(st.builds(TopicPartition, names, numbers), long_numbers, max_size=5))
def test_offsets_come_back_as_they_were_written(offsets):
    rows = [(key.topic, key.partition, offset) for key, offset in offsets.items()]
    assert kafka_files.decode_offsets(kafka_files.encode_checkpoint(rows), "c") == offsets


@searched
@given(st.lists(st.tuples(numbers, long_numbers), max_size=5))
def test_epochs_come_back_as_they_were_written(epochs):
    assert kafka_files.decode_epochs(kafka_files.encode_checkpoint(epochs), "c") == epochs


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b"1\n0\n", 1, "version 1"),
        (b"x\n0\n", 1, "'x'"),
        (b"\n", 1, "''"),
        (b"0\n\n", 2, "''"),
        (b"0\n-1\n", 2, "'-1'"),
        (b"0\n2\na 0 0\n", 2, "2 entries should follow and 1 do"),
        (b"0\n0\na 0 0\n", 2, "0 entries should follow and 1 do"),
        (b"0\n1\na 0\n", 3, "2 fields"),
        (b"0\n1\na  0 0\n", 3, "4 fields"),
        (b"0\n1\na 0 x\n", 3, "'x'"),
        (b"0\n1\na 0 9223372036854775808\n", 3, "9223372036854775808"),
        (b"0\n1\na 2147483648 0\n", 3, "2147483648"),
        (b"0\n1\n 0 0\n", 3, "without a name"),
        (b"0\n2\na 0 0\na 0 1\n", 4, "second entry for a-0"),
        (b"0\n2\na 0 0\n\xff 0 1\n", 4, "UTF-8"),
        (b"0\n1\na 0 \xd9\xa3\n", 3, "number"),
    ],
)
def test_a_wrong_checkpoint_is_refused_by_file_and_line(tmp_path, text, line, reason):
    path = tmp_path / "checkpoint"
    path.write_bytes(text)
    with pytest.raises(SideFileError, match=rf"checkpoint, line {line}: .*{reason}"):
        kafka_files.read_offsets(str(path))


# ---- partition.metadata


def test_kafkas_partition_metadata_is_read_and_written_alike(tmp_path):
    golden = LOGDIR / "orders-0" / "partition.metadata"
    assert kafka_files.read_partition_metadata(str(golden)) == TOPIC_ID
    kafka_files.write_partition_metadata(str(tmp_path / "partition.metadata"), TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_bytes() == golden.read_bytes()
    assert kafka_files.read_partition_metadata(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        (f"version: 1\ntopic_id: {TOPIC_ID}", 1),
        ("version: 0\n", 2),
        (f"version: 0\ntopic: {TOPIC_ID}", 2),
        (f"version: 0\ntopic_id: {TOPIC_ID}=", 2),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
        (f"version: 0\ntopic_id: {TOPIC_ID}\nmore", 2),
    ],
)
def test_a_wrong_partition_metadata_is_refused_by_line(text, line):
    with pytest.raises(SideFileError, match=f"p, line {line}:"):
        kafka_files.decode_partition_metadata(text.encode(), "p")


# ---- meta.properties


def test_kafkas_meta_properties_are_read():
    found = kafka_files.read_meta_properties(str(LOGDIR / "meta.properties"))
    assert found == MetaProperties("AAAAAAAAAAAAAAAAAAAAAA", 1, TOPIC_ID)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("version=0\nbroker.id=7\ncluster.id=abc\n", MetaProperties("abc", 7)),
        ("broker.id=7\n", MetaProperties(None, 7)),
        ("", MetaProperties(None, None)),
        (
            "# no\r\n  ! no\r\n\r\nversion : 1\r\nnode.id\t2\r\ncluster.id = a\\:\\u00e9\\ud83d\\ude00=b\r\nother=x",
            MetaProperties("a:\u00e9\U0001f600=b", 2),
        ),
    ],
)
def test_both_versions_and_javas_ways_of_writing_are_read(text, found):
    assert kafka_files.decode_meta_properties(text.encode(), "m") == found


@searched
@given(st.builds(MetaProperties, st.text(), numbers, st.none() | st.text("abcXYZ019_-", min_size=22, max_size=22)))
def test_meta_properties_come_back_as_they_were_written(properties):
    data = kafka_files.encode_meta_properties(properties)
    assert data.isascii()
    assert kafka_files.decode_meta_properties(data, "m") == properties


def test_meta_properties_are_written_in_version_1(tmp_path):
    text = f"version=1\ncluster.id=c-1_x.y\nnode.id=3\ndirectory.id={TOPIC_ID}\n"
    assert kafka_files.encode_meta_properties(MetaProperties("c-1_x.y", 3, TOPIC_ID)) == text.encode()
    assert kafka_files.read_meta_properties(str(tmp_path / "none")) is None
    with pytest.raises(ValueError, match="cluster id and a node id"):
        kafka_files.encode_meta_properties(MetaProperties(None, 3))


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("version=2\n", 1, "version 2"),
        ("#\nversion=1\ncluster.id=a\n", 2, "node.id"),
        ("#\nversion=1\nnode.id=1\n", 2, "cluster.id"),
        ("version=0\nbroker.id=-1\n", 2, "'-1'"),
        ("version=0\ndirectory.id=short\n", 2, "directory.id"),
        ("cluster.id=a\\\n", 1, "escape"),
        ("cluster.id=\\u12\n", 1, "escape"),
        ("cluster.id=\\ud800\n", 1, "half of a character"),
        ("=x\n", 1, "no property"),
    ],
)
def test_wrong_meta_properties_are_refused_by_file_and_line(text, line, reason):
    with pytest.raises(SideFileError, match=rf"m, line {line}: .*{reason}"):
        kafka_files.decode_meta_properties(text.encode(), "m")


near_misses = st.text("01 a\n:=\\u_-.\u00e9", max_size=40).map(str.encode)
LIKE = b"version=1\nnode.id=1\ncluster.id=", b"version: 0\ntopic_id: ", b"0\n1\n", b""


@searched
@given(st.sampled_from(LIKE), st.binary(max_size=60) | near_misses)
def test_any_bytes_give_a_value_or_the_error(start, rest):
    for decode in (
        kafka_files.decode_offsets,
        kafka_files.decode_epochs,
        kafka_files.decode_partition_metadata,
        kafka_files.decode_meta_properties,
    ):
        with contextlib.suppress(SideFileError):
            decode(start + rest, "x")
