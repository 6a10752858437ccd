"""`repair` makes a copy that has all that was whole and can be used: repair, reopen, append, reopen, count."""

import json
import os
import shutil

import pyarrow as pa
import pytest
from click.testing import CliRunner
from damage import DAMAGES, RECORDS, build, headers, log, records, rows, stage, tree
from record_tools import Record
from record_tools import build as build_batch

from pyspark_log.cli.maintenance.repair import repair as command
from pyspark_log.cli.target import Target
from pyspark_log.errors import LogDamagedError, StoreExistsError, StoreNotFoundError
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.log_manager.append import append_rows
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish import claims, pending
from pyspark_log.storage.record.layout import HEADER_SIZE
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.stops import run_until, stop_before
from tests.store_tools import faults, flip, overwrite, publish


@pytest.fixture
def path(tmp_path):
    build(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy"


def stop_publish(path, *, before):
    """Publishes ten records as number 3, up to a change to files of which `before` says that it comes no more."""
    store = Store.open(path)
    parts = stage(store, 10, large=True)
    assert run_until(lambda: publish(store.decisions, "query", 3, parts, run="run"), stop_before(before))


def state_of(path, topic="t", partition=0):
    file = path / "state" / f"{Store.open(path).describe_topic(topic).topic_id}-{partition}"
    return file, state_file.read(str(file))


def assert_clean(copy):
    found = faults(copy)
    assert found == []


def assert_usable(copy, topic="t", partition=0):
    """Appends, publishes, and reads all of it in a store that is opened afresh."""
    before = records(copy, topic, partition)
    store = Store.open(copy)
    end = store.latest_offset(topic, partition)
    store.append(topic, rows(9000, 7), partition=partition)
    number = claims.last_number(store.decisions, "query")
    publish(store.decisions, "query", 0 if number is None else number + 1, stage(store, 10, topic), run="run")
    after = records(copy, topic, partition)
    assert {offset: after[offset] for offset in before} == before
    assert [after[end + number] for number in range(7)] == [b"record %06d" % (9000 + number) for number in range(7)]
    assert_clean(copy)


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_is_undamaged_survives_at_its_offsets(path, copy, kind):
    whole = records(path)
    hits = DAMAGES[kind](path)
    before = tree(path)
    report = repair(path, copy)
    assert tree(path) == before
    lost = {offset for hit in hits if hit.lost for offset in range(hit.first_offset, hit.next_offset)}
    assert records(copy) == {offset: value for offset, value in whole.items() if offset not in lost}
    assert {offset for loss in report.losses for offset in range(loss.first_offset, loss.next_offset)} == lost
    assert Store.open(copy).earliest_offset("t", 0) == 0
    assert Store.open(copy).latest_offset("t", 0) == RECORDS
    assert records(copy, "p", 0) == records(path, "p", 0)
    assert_clean(copy)
    assert_usable(copy)


@pytest.mark.parametrize("kind", ["records", "length", "zeros", "two segments swapped"])
def test_damaged_bytes_are_kept(path, copy, kind):
    DAMAGES[kind](path)
    for loss in repair(path, copy).losses:
        kept = (copy / loss.evidence).read_bytes()
        assert kept == (path / loss.file).read_bytes()[loss.position : loss.position + loss.size]
        assert loss.evidence == f"cut/t-0/{loss.file[-24:-4]}-{loss.position}.bytes"


def test_a_healthy_store_is_copied_whole(path, copy):
    for number, file in enumerate((path / "data" / "t-0").glob("0*.log")):
        os.utime(file, ns=(0, 10**18 + number))
    report = repair(path, copy)
    assert report.complete
    for file in (path / "data" / "t-0").glob("0*"):
        copied = copy / "data" / "t-0" / file.name
        assert copied.read_bytes() == file.read_bytes(), file.name
        # By which records without times are as old as before.
        assert file.suffix != ".log" or copied.stat().st_mtime_ns == file.stat().st_mtime_ns
    assert Store.open(copy).cluster_id == Store.open(path).cluster_id
    assert OffsetsLog(Store.open(copy)).fetch("group")[TopicPartition("t", 0)].offset == 7
    assert claims.last_number(Store.open(copy).decisions, "query") == 2
    assert not (copy / "cut").exists()
    assert_usable(copy)


def test_what_is_beyond_the_end_is_not_copied(path, copy):
    whole = records(path)
    active = log(path, -1)
    with active.open("ab") as file:
        file.write(active.read_bytes()[: headers(active)[0].size])
    assert repair(path, copy).complete
    assert records(copy) == whole
    assert_usable(copy)


# ---- states


@pytest.mark.parametrize("harm", ["lost", "noise"])
def test_a_lost_state_is_made_from_the_log(path, copy, harm):
    pending.tidy(Store.open(path).decisions)
    whole = {topic: records(path, topic) for topic in ("t", "p")}
    for topic in whole:
        file, _ = state_of(path, topic)
        file.unlink() if harm == "lost" else file.write_bytes(b"noise" * 500)
    report = repair(path, copy)
    assert report.complete
    assert {topic: records(copy, topic) for topic in whole} == whole
    assert_usable(copy)
    assert_usable(copy, "p")


def test_a_torn_slot_does_not_take_records_away(path, copy):
    pending.tidy(Store.open(path).decisions)
    whole = records(path)
    file, newest = state_of(path)
    overwrite(file, newest.slot * 512 + 30, b"\xff" * 9)
    with pytest.raises(LogDamagedError, match="is damaged"):
        records(path)
    assert repair(path, copy).complete
    assert records(copy) == whole
    assert_usable(copy)


def test_after_a_restart_no_offset_that_was_shown_is_used_again(path, copy):
    file, loaded = state_of(path)
    state = loaded.state._replace(boot=b"anotherb", reserve=RECORDS + 1000, synced=0)
    file.write_bytes(partition_state.encode_slot(state) + bytes(1792))
    last = headers(log(path, -1))[-1]
    flip(log(path, -1), last.end - 1)
    report = repair(path, copy)
    assert [(loss.first_offset, loss.next_offset) for loss in report.losses] == [
        (last.base_offset, last.base_offset),
        (last.base_offset, RECORDS + 1000),
    ]
    assert Store.open(copy).latest_offset("t", 0) == RECORDS + 1000
    assert_usable(copy)


def test_records_below_the_log_start_stay_hidden(path, copy):
    file, loaded = state_of(path)
    start = int(log(path, 1).stem) + 4
    file.write_bytes(partition_state.encode_slot(loaded.state._replace(log_start=start)) + bytes(1792))
    whole = records(path)
    assert min(whole) == start
    assert repair(path, copy).complete
    assert (records(copy), Store.open(copy).earliest_offset("t", 0)) == (whole, start)
    assert len(list((copy / "data" / "t-0").glob("*.log"))) == len(list((path / "data" / "t-0").glob("*.log"))) - 1
    assert_usable(copy)


@pytest.mark.parametrize("harm", ["records", "state lost"])
def test_an_idempotent_producer_continues_with_the_copy(path, copy, harm):
    pending.tidy(Store.open(path).decisions)

    def batch(sequence):
        return build_batch([Record(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence)

    results = [Store.open(path).append_batch("t", 0, batch(sequence)) for sequence in range(3)]
    if harm == "records":
        DAMAGES["records"](path)
    else:
        state_of(path)[0].unlink()
    repair(path, copy)
    assert Store.open(copy).append_batch("t", 0, batch(2)).base_offset == results[2].base_offset
    assert Store.open(copy).append_batch("t", 0, batch(3)).base_offset == RECORDS + 3
    assert_clean(copy)


# ---- what was published


def test_what_was_decided_is_in_the_copy(path, copy):
    stop_publish(path, before=lambda change: change.kind == "write" and "/data/p-" in change.path)
    assert repair(path, copy).complete
    assert len(records(copy, "p", 0) | {-1 - o: v for o, v in records(copy, "p", 1).items()}) == 40
    assert not (copy / "staging").exists()
    assert_usable(copy)


def test_what_was_applied_in_part_is_there_once(path, copy):
    stop_publish(path, before=lambda change: change.kind == "sync" and "/data/p-1/" in change.path)
    assert repair(path, copy).complete
    assert len(records(copy, "p", 0)) + len(records(copy, "p", 1)) == 40
    assert_usable(copy)


@pytest.mark.parametrize("suffix", [".manifest", ".staged"])
def test_decided_output_that_is_lost_is_reported_and_given_up(path, copy, suffix):
    stop_publish(path, before=lambda change: change.kind == "write" and "/data/p-" in change.path)
    (lost,) = (path / "staging").glob(f"*{suffix}")
    lost.unlink()
    report = repair(path, copy)
    assert {(loss.topic, loss.partition) for loss in report.unpublished} == {("p", 0), ("p", 1)}
    assert all("publisher 'query', number 3" in loss.reason for loss in report.unpublished)
    assert len(records(copy, "p", 0)) + len(records(copy, "p", 1)) == 30
    assert claims.last_number(Store.open(copy).decisions, "query") == 3
    assert_usable(copy)


def test_a_partition_stops_where_its_content_cannot_be_known(path, copy):
    stop_publish(path, before=lambda change: change.kind == "write" and "/data/p-" in change.path)
    state_of(path, "p", 1)[0].unlink()
    report = repair(path, copy)
    (stopped,) = report.stopped
    assert (str(stopped.place), "decision" in stopped.reason) == ("p-1", True)
    assert not report.complete
    with pytest.raises(LogDamagedError):
        Store.open(copy).append("p", rows(0, 1), partition=1)
    assert [f.file for f in verify(copy).findings if f.severity is Severity.DAMAGE] == [
        f"state/{os.path.basename(stopped.place.state_path)}"
    ]
    assert len(records(copy, "p", 0)) > 0
    Store.open(copy).append("t", rows(0, 5), partition=0)
    assert len(records(copy)) == RECORDS + 5


def test_a_damaged_decision_log_gives_no_number_twice(path, copy):
    file = path / "data" / "__pylog_publish-0" / f"{0:020d}.log"
    last = headers(file)[-1]
    flip(file, last.position + HEADER_SIZE + 5)
    applied = state_of(path, "p", 0)[1].state.applied
    assert not repair(path, copy).complete
    assert_clean(copy)
    store = Store.open(copy)
    assert store.latest_offset("__pylog_publish", 0) > applied
    before = len(records(copy, "p", 0)) + len(records(copy, "p", 1))
    publish(store.decisions, "another", 0, stage(store, 10))
    assert len(records(copy, "p", 0)) + len(records(copy, "p", 1)) == before + 10


def test_a_lost_decision_log_gives_no_number_twice(path, copy):
    shutil.rmtree(path / "data" / "__pylog_publish-0")
    state_of(path, "__pylog_publish")[0].unlink()
    assert not repair(path, copy).complete
    assert_usable(copy)
    (path / "topics" / "__pylog_publish.json").unlink()
    with pytest.raises(LogDamagedError, match="restore it first"):
        repair(path, copy.with_name("second"))
    assert not (copy.with_name("second") / "store.json").exists()


@pytest.mark.parametrize("topic", ["__pylog_publish", "__consumer_offsets"])
def test_records_of_the_engine_that_cannot_be_decoded_are_left_out(path, copy, topic):
    data = rows(0, 2).set_column(1, "value", pa.array([b"nothing", b"{}"]))
    append_rows(Store.open(path).logs, topic, data, 0, False)
    assert len(repair(path, copy).losses) == 1
    assert_usable(copy)


# ---- the store


def test_lost_descriptions_are_reported(path, copy):
    (path / "store.json").write_text("{")
    (path / "topics" / "t.json").unlink()
    report = repair(path, copy)
    assert [finding.file for finding in report.findings] == ["store.json", "data/t-0"]
    assert Store.open(copy).topics() == ["p"]
    assert_usable(copy, "p")


def test_where_no_copy_is_made(path, tmp_path):
    for folder in (path, path / "copy", tmp_path):
        with pytest.raises(StoreExistsError):
            repair(path, folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(StoreExistsError, match="not empty"):
        repair(path, tmp_path / "full")
    with pytest.raises(StoreNotFoundError):
        repair(path, tmp_path / "missing" / "copy")
    with pytest.raises(StoreNotFoundError):
        repair(tmp_path / "full", tmp_path / "copy")


def test_the_command(path, copy):
    DAMAGES["records"](path)
    result = CliRunner().invoke(command, ["--into", str(copy)], obj=Target(str(path)))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[1].split()[0] == "t-0"
    assert "cut/t-0/" in lines[1]
    assert "1 losses" in lines[-1]
    healthy = CliRunner().invoke(command, ["--into", f"{copy}2"], obj=Target(str(copy)))
    assert healthy.exit_code == 0
    result = CliRunner().invoke(command, ["--into", f"{copy}3", "--json"], obj=Target(str(path)))
    found = json.loads(result.stdout)
    assert (result.exit_code, found["complete"], found["path"]) == (1, False, f"{copy}3")
    (loss,) = found["losses"]
    assert (loss["topic"], loss["partition"], loss["evidence"].startswith("cut/t-0/")) == ("t", 0, True)
    assert found["partitions"] > 0
    assert found["records"] > 0
