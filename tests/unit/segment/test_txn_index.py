"""The index of aborted transactions: Kafka's bytes, the search in it, and files that are damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import searched

from pyspark_log.errors import SideFileError
from pyspark_log.storage.segment.txn_index import (
    AbortedTransaction,
    TxnIndex,
    collect,
    collect_all,
    decode_entries,
    read_entries,
)

A = AbortedTransaction(0, 0, 10, 11)
B = AbortedTransaction(1, 5, 15, 13)
C = AbortedTransaction(2, 18, 35, 25)
D = AbortedTransaction(3, 32, 50, 40)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / f"{0:020d}.txnindex")


@pytest.fixture
def index(path):
    index = TxnIndex(path, 0)
    for entry in (A, B, C, D):
        index.append(entry)
    yield index
    index.close()


def test_an_entry_has_kafkas_bytes(path, tmp_path):
    index = TxnIndex(path, 0)
    assert not list(tmp_path.iterdir())
    index.append(AbortedTransaction(1001, 2, 10, 0))
    index.sync()
    index.close()
    with open(path, "rb") as file:
        assert file.read().hex() == "000000000000000003e90000000000000002000000000000000a0000000000000000"


@pytest.mark.parametrize(
    ("fetch_offset", "upper", "found", "complete"),
    [
        (0, 100, [A, B, C, D], False),
        (0, 32, [A, B, C], True),
        (0, 35, [A, B, C, D], True),
        (10, 35, [A, B, C, D], True),
        (11, 35, [B, C, D], True),
        (20, 41, [C, D], False),
    ],
)
def test_what_reaches_into_a_range_is_found(index, path, fetch_offset, upper, found, complete):
    assert collect(read_entries(path, 0), fetch_offset, upper) == (found, complete)


def test_later_segments_are_read_no_further_than_needed():
    def segments():
        yield [A, B]
        yield []
        yield [C, D]
        raise AssertionError("read too far")

    assert collect_all(segments(), 11, 40) == [B, C, D]
    assert collect_all([[A], [B]], 0, 100) == [A, B]


def test_markers_must_come_in_order(index):
    with pytest.raises(ValueError, match="50"):
        index.append(D)


def test_a_cut_keeps_the_markers_below_it(index, path):
    index.cut(51)
    assert read_entries(path, 0) == [A, B, C, D]
    index.cut(50)
    assert read_entries(path, 0) == [A, B, C]
    index.append(D)
    index.cut(11)
    assert read_entries(path, 0) == [A]
    index.cut(0)
    assert read_entries(path, 0) == []


def test_entries_are_there_after_opening_again(index, path):
    index.close()
    again = TxnIndex(path, 0)
    with pytest.raises(ValueError, match="not after 50"):
        again.append(C)
    later = AbortedTransaction(4, 51, 60, 61)
    again.append(later)
    again.close()
    assert read_entries(path, 0) == [A, B, C, D, later]


def test_an_entry_that_is_half_written_does_not_count_and_is_written_over(index, path):
    with open(path, "r+b") as file:
        file.truncate(34 * 3 + 20)
    assert read_entries(path, 0) == [A, B, C]
    again = TxnIndex(path, 0)
    again.cut(100)
    again.append(D)
    again.close()
    assert read_entries(path, 0) == [A, B, C, D]


def test_a_cut_of_nothing_makes_no_file(path, tmp_path):
    TxnIndex(path, 0).cut(0)
    assert not list(tmp_path.iterdir())
    assert read_entries(path, 0) == []


@pytest.mark.parametrize(
    ("entries", "base"), [([A], 11), ([B, A], 0), ([A, A], 0)], ids=["below the base", "falling", "twice"]
)
def test_a_file_out_of_order_is_refused(path, entries, base):
    with open(path, "wb") as file:
        for entry in entries:
            file.write(bytes(2) + b"".join(field.to_bytes(8, "big") for field in entry))
    for open_it in (read_entries, TxnIndex):
        with pytest.raises(SideFileError, match="txnindex, entry"):
            open_it(path, base)


def test_a_later_version_is_refused(index, path):
    with open(path, "r+b") as file:
        file.write(b"\x00\x01")
    with pytest.raises(SideFileError, match="version 1"):
        read_entries(path, 0)


@searched
@given(st.binary(max_size=140))
def test_any_bytes_give_entries_or_the_error(data):
    try:
        entries = decode_entries(data, 0, "x")
    except SideFileError:
        return
    assert len(entries) == len(data) // 34
    collect(entries, 0, 100)
