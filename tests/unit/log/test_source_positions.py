"""Topics with `source.position.header`: of each source a record is written once, however often it is sent."""

import errno
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_tools import Record, build

from pyspark_log.errors import InvalidRecordError
from pyspark_log.storage.log import Turnstile, source_positions
from pyspark_log.storage.store import Store
from tests.store_tools import cut_log, faults, new_store, publish, roll_log, stage, store_with, values

NOW = time.time_ns() // 1_000_000
CONFIG = {"source.position.header": "from", "segment.bytes": "1000", "retention.ms": "-1"}

store = store_with(CONFIG)


def batch(*positions, codec="none", header="from", **fields):
    """A batch with a record for each position, whose value it is too; one without position has no header."""
    records = [
        Record(b"k", one or b"-", NOW, (("other", None), (header, one), ("from", b"no")) if one else ())
        for one in positions
    ]
    return build(records, codec, **fields)


def send(store, *positions, **how):
    result = store.append_batch("t", 0, batch(*positions, **how))
    return result.base_offset, result.next_offset, result.duplicate


def again(store):
    return Store.open(store.path)


def files_of(store):
    return sorted(path.name for path in Path(store.path, "data/t-0").glob("*.positions"))


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
def test_what_the_log_has_is_left_out_and_keeps_its_offsets(store, codec):
    assert send(store, b"q/0/5/0", b"q/0/5/1", None, b"q/1/5/0", codec=codec) == (0, 4, False)
    # The middle is new; then nothing is; then records of both sources in turn.
    assert send(store, b"q/0/5/0", b"q/0/6/0", None, b"q/1/4/9", codec=codec) == (4, 8, False)
    assert send(store, b"q/0/6/0", codec=codec) == (8, 9, False)
    assert send(store, b"q/1/6/0", b"q/0/7/0", b"q/1/6/0"[:-1] + b"1", b"q/0/2/0", codec=codec) == (9, 13, False)
    new = [b"q/0/5/0", b"q/0/5/1", b"-", b"q/1/5/0", b"q/0/6/0", b"-", b"q/1/6/0", b"q/0/7/0", b"q/1/6/1"]
    assert values(store) == new
    [rows] = store.read("t", 0)
    assert rows["offset"].to_pylist() == [0, 1, 2, 3, 5, 6, 9, 10, 11]
    assert faults(store.path) == []


def test_other_processes_know_it(store):
    send(store, b"q/0/1/0")
    roll_log(store)
    other = again(store)
    send(other, b"q/0/1/0", b"q/0/2/0")
    send(store, b"q/0/2/0", b"q/0/3/0")
    send(again(store), b"q/0/3/0")
    assert values(store) == [b"q/0/1/0", b"q/0/2/0", b"q/0/3/0"]
    # As is what did not come by a client: a publish, or rows that were appended.
    headers = pa.array(
        [[{"key": "from", "value": b"q/0/4/0"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    store.append("t", pa.record_batch({"value": pa.array([b"q/0/4/0"], pa.binary()), "headers": headers}))
    send(other, b"q/0/4/0")
    assert values(store) == [b"q/0/1/0", b"q/0/2/0", b"q/0/3/0", b"q/0/4/0"]


def test_what_it_keeps_outlives_the_records(store):
    send(store, b"q/0/1/0", b"q/1/9/0")
    roll_log(store)
    store.delete_records("t", 0, 2)
    roll_log(store)
    assert len(files_of(store)) == len(store.segment_files("t", 0))
    send(again(store), b"q/0/1/0", b"q/1/9/0", b"q/1/10/0")
    assert values(store) == [b"q/1/10/0"]
    assert faults(store.path) == []


@pytest.mark.parametrize("damage", [b"", b"{", b"00000000 []", None])
def test_a_damaged_file_costs_time_alone(store, damage):
    send(store, b"q/0/1/0")
    roll_log(store)
    send(store, b"q/0/2/0")
    roll_log(store)
    for name in files_of(store)[1:]:
        path = Path(store.path, "data/t-0", name)
        path.unlink() if damage is None else path.write_bytes(damage)
    send(again(store), b"q/0/1/0", b"q/0/2/0", b"q/0/3/0")
    assert values(store) == [b"q/0/1/0", b"q/0/2/0", b"q/0/3/0"]


def test_what_was_cut_off_is_written_again(store):
    send(store, b"q/0/1/0")
    send(store, b"q/0/2/0")
    cut_log(store, 1)
    send(store, b"q/0/1/0", b"q/0/2/0")
    assert values(store) == [b"q/0/1/0", b"q/0/2/0"]


def test_a_failed_append_leaves_no_trace(store, monkeypatch):
    send(store, b"q/0/1/0")

    pwrite = os.pwrite

    def fail(file, data, at):
        if os.readlink(f"/proc/self/fd/{file}").endswith(".log"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(file, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        with pytest.raises(OSError, match="No space"):
            store.append_batch("t", 0, batch(b"q/0/2/0"))
    send(store, b"q/0/2/0")
    assert values(store) == [b"q/0/1/0", b"q/0/2/0"]


def test_a_numbered_batch_sent_again_gets_its_first_offsets(store):
    numbered = {"producer_id": 7, "producer_epoch": 0}
    assert send(store, b"q/0/1/0", b"q/0/2/0", base_sequence=0, **numbered) == (0, 2, False)
    assert send(store, b"q/0/1/0", b"q/0/2/0", base_sequence=0, **numbered) == (0, 2, True)
    # A batch without records takes its sequence numbers all the same.
    assert send(store, b"q/0/1/0", base_sequence=2, **numbered) == (2, 3, False)
    assert send(store, b"q/0/3/0", base_sequence=3, **numbered) == (3, 4, False)
    assert values(again(store)) == [b"q/0/1/0", b"q/0/2/0", b"q/0/3/0"]
    assert faults(store.path) == []


def test_several_batches_at_once(store):
    sent = [batch(b"q/0/1/0"), batch(b"q/0/1/0", b"q/0/2/0"), batch(b"q/0"), batch(b"q/0/3/0")]
    found = store.append_batches("t", 0, sent)
    assert [getattr(one, "next_offset", type(one)) for one in found] == [1, 3, InvalidRecordError, 4]
    assert values(store) == [b"q/0/1/0", b"q/0/2/0", b"q/0/3/0"]


@pytest.mark.parametrize("at_once", [False, True])
def test_two_records_of_one_position_are_refused_and_not_lost(store, at_once, monkeypatch):
    """What makes two records of one without numbers would lose the second."""
    numbered = {"producer_id": 7, "producer_epoch": 0}
    send(store, None)
    send(store, None)
    if at_once:  # as a server appends what it need not wait for
        in_turn = Turnstile.append_in_turn
        monkeypatch.setattr(
            Turnstile,
            "append_in_turn",
            lambda self, batches, *, sync: self.append_at_once(batches) or in_turn(self, batches, sync=sync),
        )
    with pytest.raises(InvalidRecordError, match="t-0: two records have the source position q/0/1/0"):
        send(store, b"q/0/1/0", b"q/0/1/0")
    send(store, b"q/0/1/0", base_sequence=0, **numbered)
    with pytest.raises(InvalidRecordError, match="must number them"):
        send(store, b"q/0/1/0", base_sequence=1, **numbered)
    # It may have been a repetition by the same producer. Then it comes again, and nothing is missing.
    assert send(store, b"q/0/1/0", b"q/0/2/0", base_sequence=1, **numbered) == (3, 5, False)
    # One that has begun further back is a repetition.
    send(store, b"q/0/1/0", b"q/0/2/0", base_sequence=3, **numbered)
    assert values(store) == [b"-", b"-", b"q/0/1/0", b"q/0/2/0"]


@pytest.mark.parametrize(
    "position", [b"", b"q", b"q/1", b"1/2", b"/1/", b"q/1/x", b"q/-1/0", b"q/1/2/", b"q/" + b"1" * 19 + b"/0"]
)
def test_a_header_that_is_no_position_is_refused(store, position):
    record = Record(b"k", b"v", NOW, (("from", position),))
    with pytest.raises(
        InvalidRecordError, match="t-0: record 1: its header 'from' is not SOURCE/OFFSET/ORDINAL"
    ) as refused:
        store.append_batch("t", 0, build([Record(b"k", b"v", NOW), record]))
    assert refused.value.records == (1,)
    assert values(store) == []


def test_the_largest_numbers_and_names_of_any_bytes(store):
    most = b"9" * 18
    sent = [b"//%s/0" % most, b"//%s/%s" % (most, most), b"\xff\x00/0/0", b"/0/0"]
    send(store, *sent)
    send(again(store), *sent)
    assert values(store) == sent


def test_too_many_sources_and_names_are_refused(store, monkeypatch):
    monkeypatch.setattr(source_positions, "MAX_NAME", 3)
    with pytest.raises(InvalidRecordError, match="names of 3 bytes at most"):
        send(store, b"xxxx/0/0")
    monkeypatch.setattr(source_positions, "MAX_SOURCES", 2)
    send(store, b"a/0/0", b"b/0/0")
    with pytest.raises(InvalidRecordError, match="positions of 2 sources"):
        send(store, b"a/1/0", b"c/0/0")
    assert values(store) == [b"a/0/0", b"b/0/0"]


def test_transactions_are_left_alone(store):
    """What is aborted was not written, and what is committed is there once by itself."""
    numbered = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    send(store, b"q/0/1/0", base_sequence=0, **numbered)
    assert send(store, b"q/0/1/0", base_sequence=1, **numbered) == (1, 2, False)
    send(store, b"q/0/1/0")
    assert values(store) == [b"q/0/1/0"] * 3


def test_other_topics_have_none_of_this(tmp_path):
    store = new_store(tmp_path)
    send(store, b"q/0/1/0")
    send(store, b"q/0/1/0", b"q")
    assert len(values(store)) == 3
    assert files_of(store) == []


@settings(max_examples=min(settings().max_examples, 60))
@given(st.data())
def test_any_order_of_sending_again_writes_each_once(tmp_path_factory, data):
    """Sources send from any place that they have reached; processes, segments and files change meanwhile."""
    store = new_store(tmp_path_factory.mktemp("any"), CONFIG)
    written_of, model = dict.fromkeys((b"a/0", b"a/1", b"b/0"), -1), []
    for _ in range(data.draw(st.integers(1, 12))):
        sent = []
        for source in data.draw(st.permutations(sorted(written_of)))[: data.draw(st.integers(1, 3))]:
            first = data.draw(st.integers(0, written_of[source] + 1))
            sent += [(source, offset) for offset in range(first, first + data.draw(st.integers(1, 4)))]
        for source, offset in sent:
            if offset > written_of[source]:
                written_of[source] = offset
                model.append(b"%s/%d/0" % (source, offset))
        send(store, *(b"%s/%d/0" % one for one in sent), codec=data.draw(st.sampled_from(["none", "zstd"])))
        event = data.draw(st.sampled_from(["", "", "process", "roll", "publish", "torn", "file"]))
        if event == "process":
            store = again(store)
        elif event == "roll":
            roll_log(store)
        elif event == "publish":
            model.append(b".")
            publish(store.decisions, f"p{len(model)}", 0, stage(store, pa.record_batch({"value": [b"."]})))
        elif event == "torn":
            with open(store.segment_files("t", 0)[-1], "ab") as log:
                log.write(b"torn")
        elif event == "file" and files_of(store):
            Path(store.path, "data/t-0", files_of(store)[-1]).unlink()
    assert values(store) == model
    assert faults(store.path) == []
