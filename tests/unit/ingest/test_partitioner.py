"""Which partition a record goes to."""

from __future__ import annotations

import json
from array import array
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_peer import peer_murmur2

from pyspark_log.errors import InvalidRecordError
from pyspark_log.storage.ingest.partitioner import Partitioner, group, murmur2
from tests.paths import KAFKA_JAVA

GOLDEN = json.loads((KAFKA_JAVA / "coordinator-records.json").read_text(encoding="utf-8"))["murmur2"]
VECTORS = [(bytes.fromhex(v["keyHex"]) if "keyHex" in v else v["key"].encode(), v) for v in GOLDEN]
BIG = 1 << 30


@pytest.mark.parametrize(("key", "vector"), VECTORS)
def test_hash_and_partition_are_kafkas(key, vector):
    assert murmur2(key) == vector["murmur2"]
    for partitions in (3, 12, 50):
        assigned = Partitioner(partitions, BIG, 0).assign(pa.array([key]), None, None, 1)
        assert list(assigned) == [vector[f"p{partitions}"]]


@given(st.binary(max_size=40))
def test_hash_equals_kafka_pythons(key):
    assert murmur2(key) & 0xFFFFFFFF == peer_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.string_view()], ids=str)
def test_keys_of_any_layout_and_slices_of_them(kind):
    keys = pa.array(["ab", "a", None, "abc"]).cast(kind)
    assert list(Partitioner(12, BIG, 0).assign(keys[1:], None, None, 3))[::2] == [4, 3]


def test_a_given_partition_wins_over_the_key():
    keys, given_ = pa.array([b"a", b"a", b"a"]), pa.array([2, None, 0], pa.int32())
    assert list(Partitioner(3, BIG, 0).assign(keys, None, given_, 3)) == [2, 1, 0]
    assert list(Partitioner(3, BIG, 0).assign(keys[1:], None, given_[1:], 2)) == [1, 0]


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1])
def test_partition_that_is_not_there(bad):
    with pytest.raises(InvalidRecordError, match=f"row 1 names partition {bad}, but .* 0 to 2"):
        Partitioner(3, BIG, 0).assign(None, None, pa.array([0, bad], pa.int32()), 2)


@pytest.mark.parametrize(
    "columns",
    [
        (pa.array([1]), None, None),
        (None, pa.array([1]), None),
        (None, None, pa.array([1], pa.int64())),
        (pa.array([b"a", b"b"]), None, None),
    ],
)
def test_columns_of_other_types_or_lengths(columns):
    with pytest.raises(InvalidRecordError):
        Partitioner(3, BIG, 0).assign(*columns, 1)


def test_empty_key_is_hashed_and_null_key_is_not():
    def partitions_of(keys: pa.Array) -> set[int]:
        return {Partitioner(12, BIG, seed).assign(keys, None, None, 1)[0] for seed in range(50)}

    assert partitions_of(pa.array([b""])) == {9}
    assert len(partitions_of(pa.array([None]))) > 5


def test_keyless_rows_stick_until_a_batch_is_full():
    values = pa.array([bytes(93)] * 10_000)  # 100 bytes with what a record takes besides
    parts = list(Partitioner(4, 1000, 5).assign(None, values, None, 10_000))
    assert all(len(set(parts[i : i + 10])) == 1 for i in range(0, 10_000, 10))
    shares = Counter(parts)
    assert set(shares) == {0, 1, 2, 3}
    assert max(shares.values()) < 2 * min(shares.values())


def test_the_sticky_partition_lasts_into_the_next_call():
    values = pa.array([bytes(93)] * 100)
    whole = list(Partitioner(50, 1000, 3).assign(None, values, None, 100))
    partitioner = Partitioner(50, 1000, 3)
    halves = [p for _ in range(20) for p in partitioner.assign(None, values[:5], None, 5)]
    assert halves == whole
    assert len(set(whole)) > 3


def test_keyed_rows_do_not_count_for_sticking():
    keys = pa.array([None] + [b"k"] * 100 + [None])
    parts = Partitioner(1000, 100, 1).assign(keys, pa.array([bytes(50)] * 102), None, 102)
    assert parts[0] == parts[101]


def test_a_topic_has_partitions():
    with pytest.raises(ValueError, match="0 partitions"):
        Partitioner(0, 1, 0)


@given(st.lists(st.integers(0, 6)))
def test_groups_are_in_the_order_of_rows(assignment):
    rows, bounds = group(array("i", assignment), 7)
    assert len(bounds) == 8
    for partition in range(7):
        expected = [row for row, assigned in enumerate(assignment) if assigned == partition]
        assert list(rows[bounds[partition] : bounds[partition + 1]]) == expected


@pytest.mark.parametrize("bad", [-1, 2])
def test_groups_that_are_not_there(bad):
    with pytest.raises(ValueError, match=f"row 1 has partition {bad} of 2"):
        group(array("i", [0, bad]), 2)


def test_groups_want_32_bit_numbers():
    with pytest.raises(TypeError):
        group(array("h", [0]), 2)
