"""Readers of committed records see what transactions have committed, in order, up to the first that is open."""

from __future__ import annotations

import random
import shutil

import pytest
from cli_tools import output
from producer_tools import NOW, end_transaction
from transaction_tools import LEVEL, as_brokers, rows

from pyspark_log import Store
from pyspark_log.errors import InvalidConfigError, OffsetOutOfRangeError, SideFileError
from pyspark_log.storage.log.read import isolation
from pyspark_log.storage.log.read.isolation import LastStableOffset
from pyspark_log.storage.log.state.partition_state import EMPTY
from tests.store_tools import Stopped, observed

pytestmark = pytest.mark.usefixtures("prompt_checkpoints")


def test_an_open_transaction_hides_what_comes_after_it(log):
    log.plain(b"before")
    log.write(1, b"a", b"b")
    log.plain(b"behind")
    assert (log.store.latest_offset("t", 0), log.store.latest_offset("t", 0, **LEVEL)) == (4, 1)
    assert rows(log.store) == [(0, b"before")]
    log.finish(1, commit=True)
    assert log.store.latest_offset("t", 0, **LEVEL) == 5
    assert rows(log.store) == [(0, b"before"), (1, b"a"), (2, b"b"), (3, b"behind")]


def test_what_was_followed_up_to_here_is_near(log, monkeypatch):
    monkeypatch.setattr(isolation, "_FEW_RECORDS", 2)

    def is_near():
        reader = log.store.logs.recovered("t", 0)
        return reader.stable.is_near(reader.state())

    log.write(1, b"a")
    assert not is_near()
    log.store.latest_offset("t", 0, **LEVEL)
    log.plain(b"b", b"c")
    assert is_near()
    log.plain(b"d")
    assert not is_near()
    log.store.latest_offset("t", 0, **LEVEL)
    assert is_near()
    # The active segment is another one.
    log.plain(b"x" * 600)
    log.plain(b"x" * 600)
    assert not is_near()


def test_what_was_aborted_is_left_out(log):
    log.write(1, b"a")
    log.write(2, b"b")
    log.write(1, b"c")
    log.finish(1, commit=False)
    assert rows(log.store) == []
    log.finish(2, commit=True)
    assert rows(log.store) == [(1, b"b")]
    # The same producer once more; and without transactions.
    log.write(1, b"d")
    log.finish(1, commit=True)
    assert rows(log.store) == [(1, b"b"), (5, b"d")]
    uncommitted = [part["value"].to_pylist() for part in log.store.read("t", 0)]
    assert [value for part in uncommitted for value in part] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("seed", range(12))
def test_any_transactions_are_seen_as_they_ended(tmp_path, log, seed, caplog):
    chance = random.Random(seed)
    for number in range(chance.randrange(20, 90)):
        producer = chance.randrange(4)
        values = [b"%d-%d" % (number, one) * chance.randrange(1, 9) for one in range(chance.randrange(1, 4))]
        way = chance.random()
        if way < 0.2:
            log.plain(*values)
        elif way < 0.7:
            log.write(producer, *values, codec=chance.choice(["none", "zstd"]))
        else:
            log.finish(producer, commit=chance.random() < 0.5)
        if chance.random() < 0.3:
            # Followed step by step, as a stream does.
            assert log.store.latest_offset("t", 0, **LEVEL) == log.stable
            assert rows(log.store, 0, log.stable) == log.seen(0, log.stable)
    brokers = as_brokers(log, tmp_path / "logs")
    assert len(log.store.segment_files("t", 0)) > 1
    without = tmp_path / "without"
    shutil.copytree(tmp_path / "logs", without)
    for path in (without / "t-0").glob("*.snapshot"):
        path.unlink()
    for store in (log.store, Store.open(log.store.path), brokers, Store.open(without)):
        assert store.latest_offset("t", 0, **LEVEL) == log.stable
        assert rows(store) == log.seen(0, log.stable)
        for _ in range(10):
            start, end = sorted(chance.choices(range(log.stable + 1), k=2))
            assert rows(store, start, end, max_bytes=1) == log.seen(start, end)
    assert "aborted" not in caplog.text
    # Without the indexes the markers in a broker's log say the same.
    for path in (without / "t-0").glob("*.txnindex"):
        path.unlink()
    store = Store.open(without)
    assert rows(store) == log.seen(0, log.stable)
    for _ in range(10):
        start, end = sorted(chance.choices(range(log.stable + 1), k=2))
        assert rows(store, start, end, max_bytes=1) == log.seen(start, end)


def test_ranges_that_are_read_apart_are_those_read_at_once(log):
    """As tasks do: the marker of a transaction may be far beyond the range that a task reads."""
    for number in range(30):
        log.write(1, b"%d" % number * 20)
    log.finish(1, commit=False)
    log.plain(b"end")
    assert len(log.store.segment_files("t", 0)) > 3
    assert [rows(log.store, start, start + 8) for start in (0, 8, 16, 24)] == [[], [], [], [(31, b"end")]]


def test_a_range_beyond_the_stable_end_is_refused(log):
    log.plain(b"a")
    log.write(1, b"b")
    with pytest.raises(OffsetOutOfRangeError, match="0 to 1"):
        rows(log.store, 0, 2)
    with pytest.raises(InvalidConfigError, match=r"isolation\.level = 'committed'"):
        log.store.latest_offset("t", 0, isolation_level="committed")


def test_a_transaction_whose_begin_was_deleted_does_not_hide_what_is_left(log):
    log.write(1, b"a" * 700)
    log.plain(b"b")
    log.store.delete_records("t", 0, 1)
    assert log.store.latest_offset("t", 0, **LEVEL) == 1
    log.finish(1, commit=True)
    assert rows(log.store) == [(1, b"b")]


def test_damaged_side_files_are_reported_or_done_without(tmp_path, log, caplog):
    for number in range(20):
        log.write(1, b"%d" % number * 20)
        log.finish(1, commit=number % 2 == 0)
    brokers = as_brokers(log, tmp_path / "logs")
    snapshots = sorted((tmp_path / "logs" / "t-0").glob("*.snapshot"))
    assert len(snapshots) > 2
    snapshots[-1].write_bytes(b"\0" * 30)
    assert rows(brokers) == log.seen(0, log.stable)
    assert snapshots[-1].exists()
    index = sorted((tmp_path / "logs" / "t-0").glob("*.txnindex"))[1]
    index.write_bytes(b"\1" * len(index.read_bytes()))
    # In a broker's folder it cannot be rebuilt: the markers in the log say the same.
    assert rows(brokers) == log.seen(0, log.stable)
    assert f"{index.name}, entry 0" in caplog.text


def test_the_command(log):
    log.write(1, b"aborted")
    log.finish(1, commit=False)
    log.plain(b"plain")
    log.write(2, b"open")

    def consume(*more):
        return output(log.store, "consume", "t", *more).split()

    assert consume() == ["aborted", "plain", "open"]
    assert consume("--isolation-level", "read_committed") == ["plain"]
    assert consume("--isolation-level", "read_committed", "--timestamp", str(NOW)) == ["plain"]


def test_what_was_deleted_is_not_asked_for_where_no_snapshot_has_it(tmp_path):
    """The log has started over since the last read; a broker's reader has no second try."""
    asked = []
    stable = LastStableOffset()
    for first, end in [(0, 2), (2, 4), (7, 9)]:
        state = EMPTY._replace(active_base=first, log_start=first, next_offset=end, high_watermark=end)
        assert stable.follow(str(tmp_path), state, first, lambda offset: asked.append(offset) or iter(())) == end
    assert asked == [0, 2, 7]


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename"])
def test_an_index_is_rebuilt_as_a_whole(tmp_path, log, kind):
    log.write(1, b"aborted")
    log.finish(1, commit=False)
    log.write(1, b"good")
    log.finish(1, commit=True)
    log.store.close()
    (path,) = (tmp_path / "store" / "data" / "t-0").glob("*.txnindex")
    path.write_bytes(b"\x7f" + path.read_bytes()[1:])
    seen = []

    def observe(change):
        try:
            seen.append(rows(Store.open(tmp_path / "store")))
        except SideFileError:
            seen.append(None)
        if change.kind == kind and not change.path.endswith(".log") and "/data/t-0/" in change.path:
            raise Stopped

    log.store = Store.open(tmp_path / "store")
    log.write(2, b"open")
    with observed(observe), pytest.raises(Stopped):
        log.finish(2, commit=False)
    # Readers beside it got the error about the damage, or saw what was committed.
    assert all(found in (None, [(2, b"good")]) for found in seen)
    end_transaction(log.store, False, producer=2)
    log.store.close()
    assert rows(Store.open(tmp_path / "store")) == [(2, b"good")]
