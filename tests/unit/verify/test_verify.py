"""`verify` finds every kind of damage with its place, and none where there is none."""

import errno
import json
import os
import shutil
import threading
import time

import pyarrow as pa
import pytest
from click.testing import CliRunner
from damage import DAMAGES, RECORDS, build, headers, log, rows, stage
from producer_tools import ending, ready
from record_tools import Record, patched
from record_tools import build as build_batch

from pyspark_log.cli.maintenance.verify import verify as command
from pyspark_log.cli.target import Target
from pyspark_log.errors import StoreNotFoundError, StoreVersionError, UnknownTopicError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.log_manager.append import append_rows
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.log.partition import PartitionCheck
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish import pending
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.record.layout import MAX_TIMESTAMP_AT
from pyspark_log.storage.store import Store
from tests.amounts import few_or_many
from tests.stops import StopBefore, run_until, stop_before
from tests.store_tools import flip, new_store, observed, publish


@pytest.fixture
def path(tmp_path):
    build(tmp_path / "store")
    return tmp_path / "store"


def damage_in(path, severity=Severity.DAMAGE, **arguments):
    return [finding for finding in verify(path, **arguments).findings if finding.severity is severity]


def state_path(path, topic="t", partition=0):
    return path / "state" / f"{Store.open(path).describe_topic(topic).topic_id}-{partition}"


# ---- nothing wrong


def test_a_healthy_store_has_no_damage_and_is_not_changed(path):
    told = []
    with observed(stop_before(lambda _: True)):
        report = verify(path, progress=lambda done, total: told.append((done, total)))
    assert {finding.severity for finding in report.findings} <= {Severity.NOTE}
    assert report.totals.records >= RECORDS + 30 + 3 + 1
    assert report.totals.bytes == sum(file.stat().st_size for file in path.rglob("*.log"))
    assert told[-1] == (report.totals.bytes, report.totals.bytes)
    assert report.partitions == 1 + 2 + 1 + 1
    assert not report.damaged


def test_an_empty_store_has_nothing(tmp_path):
    Store.create(tmp_path / "store").create_topic("t", 3)
    report = verify(tmp_path / "store")
    assert (report.findings, report.totals.segments) == ([], 0)


def test_whatever_a_killed_writer_leaves_is_no_damage(tmp_path):
    def program():
        store = Store.create(tmp_path / "store")
        store.create_topic("p", 2, {"segment.bytes": "700", "index.interval.bytes": "100", "retention.ms": "-1"})
        for number in range(4):
            store.append("p", rows(number, 5), sync=number == 2)
            publish(store.decisions, "query", number, stage(store, 4))

    tried = 0
    while run_until(program, StopBefore(tried * 11)):
        if (tmp_path / "store" / "store.json").exists():
            assert not damage_in(tmp_path / "store"), f"stopped before change {tried * 11}"
            help_apply(Store.open(tmp_path / "store").decisions)
            assert not damage_in(tmp_path / "store")
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        tried += 1
    assert tried > 12


@pytest.mark.parametrize("seconds", few_or_many(1, 4))
def test_a_store_that_is_changed_in_every_way_meanwhile_has_no_findings(tmp_path, seconds):
    store = new_store(tmp_path, {
        "segment.bytes": "1500", "index.interval.bytes": "200", "file.delete.delay.ms": "0",
        "retention.ms": "-1", "retention.bytes": "6000",
    }, partitions=2)  # fmt: skip
    done = threading.Event()
    failed = []
    now = time.time_ns() // 1_000_000

    def change(number):
        store.append("t", rows(number, 4))
        if number % 7 == 0:
            publish(store.decisions, "query", number // 7, stage(store, 5, "t"))
        if number % 20 == 0:
            store.delete_records("t", 0, max(store.latest_offset("t", 0) - 5, 0))
        if number % 30 == 0:
            with store.logs.writer("t", 1).hold() as writer:
                truncate(writer.log, max(writer.state.next_offset - 3, writer.state.log_start))
        if number % 3 == 0:
            store.append_batch("t", 1, ready(0, b"part", producer=number, transactional=True, timestamp=now))
            with store.logs.writer("t", 1).hold() as writer:
                writer.append(bytearray(ending(number % 2, producer=number, timestamp=now)), sync=False)
        if number % 40 == 0:
            store.create_topic("short", 2)
            store.append("short", rows(0, 50))
            store.delete_topic("short")

    def write():
        number = 0
        try:
            while not done.is_set():
                change(number)
                number += 1
        except Exception as error:  # noqa: BLE001  (reported below, in the thread of the test)
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    reports = []
    try:
        begun = time.monotonic()
        # Long enough to meet every change, and on a slow machine until there is something to check.
        while not failed and (
            time.monotonic() < begun + seconds
            or (max((report.totals.segments for report in reports), default=0) <= 4 and time.monotonic() < begun + 300)
        ):
            reports.append(verify(tmp_path / "store"))
    finally:
        done.set()
        thread.join()
    assert failed == []
    assert [f for report in reports for f in report.findings if f.severity is not Severity.NOTE] == []
    assert max(report.totals.segments for report in reports) > 4


# ---- records


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_records_are_found_with_their_place(path, kind):
    hits = DAMAGES[kind](path)
    found = damage_in(path, topic="t")
    assert [(f.file, f.position, f.first_offset, f.next_offset) for f in found] == [
        (str(hit.file.relative_to(path)), hit.position, hit.first_offset, hit.next_offset) for hit in hits
    ]
    assert all(f.topic == "t" and f.partition == 0 and f.what and f.advice for f in found)
    assert damage_in(path, Severity.INDEX) == []


def test_damage_is_found_in_several_partitions_at_once(path):
    DAMAGES["records"](path)
    flip(path / "data" / "p-1" / f"{0:020d}.log", 70)
    for jobs in (1, 4):
        assert [(f.topic, f.partition) for f in damage_in(path, jobs=jobs)] == [("p", 1), ("t", 0)]
    assert [f.topic for f in damage_in(path, topic="p")] == ["p"]


def test_partitions_are_looked_at_side_by_side(path, monkeypatch):
    both = threading.Barrier(2)

    class Meeting(PartitionCheck):
        def run(self):
            both.wait(120)
            return super().run()

    monkeypatch.setattr("pyspark_log.storage.maintenance.verify.store.PartitionCheck", Meeting)
    assert verify(path, topic="p", jobs=2).partitions == 2


def test_bytes_that_the_disk_does_not_give_are_damage_and_the_rest_is_looked_at(path, monkeypatch):
    store = Store.open(path)
    store.create_topic("big", 1)
    for _ in range(4):
        store.append("big", pa.record_batch({"value": [os.urandom(9000)]}), partition=0)
    bad = headers(path / "data" / "big-0" / f"{0:020d}.log")[1]
    page = (bad.position // 4096 + 1) * 4096
    whole = files.File.pread_into

    def failing(self, buffer, position):
        if "big-0" in self.path and position < page + 4096 and position + len(buffer) > page:
            raise OSError(errno.EIO, "Input/output error")
        return whole(self, buffer, position)

    monkeypatch.setattr(files.File, "pread_into", failing)
    (found,) = damage_in(path, topic="big")
    assert (found.position, found.first_offset, found.next_offset) == (bad.position, 1, 2)
    assert "Input/output error" in found.what


def test_a_wrong_largest_time_is_reported(path):
    """Under a right CRC, as a faulty writer would make it."""
    store = Store.open(path)
    store.create_topic("late", 1)
    data = build_batch([Record(b"k", b"v", 5), Record(b"k", b"v", 9)])
    with store.logs.writer("late", 0).hold() as writer:
        writer.append(bytearray(patched(data, MAX_TIMESTAMP_AT, 8, 7)), sync=False)
    (found,) = damage_in(path, Severity.INDEX, topic="late")
    assert "9 ms" in found.what


# ---- indexes

INDEX_DAMAGES = {
    "index missing": lambda index, times: index.unlink(),
    "time index missing": lambda index, times: times.unlink(),
    "index empty": lambda index, times: index.write_bytes(b""),
    "time index empty": lambda index, times: times.write_bytes(b""),
    "index of zeros": lambda index, times: index.write_bytes(bytes(index.stat().st_size)),
    "time index of zeros": lambda index, times: times.write_bytes(bytes(times.stat().st_size)),
    "noise": lambda index, times: index.write_bytes(bytes((i * 37 + 11) % 251 for i in range(600))),
    "a position": lambda index, times: flip(index, 15),
    "an offset": lambda index, times: flip(index, 11),
    "a time": lambda index, times: flip(times, 7),
    "an offset of a time": lambda index, times: flip(times, 11),
    "last entry lost": lambda index, times: index.write_bytes(index.read_bytes()[:-8]),
    "middle entry lost": lambda index, times: index.write_bytes(index.read_bytes()[:8] + index.read_bytes()[16:]),
    "all entries lost": lambda index, times: index.write_bytes(b""),
    "closing time lost": lambda index, times: times.write_bytes(times.read_bytes()[:-12]),
    "a part of an entry": lambda index, times: index.write_bytes(index.read_bytes() + b"\0\0\0"),
}


@pytest.mark.parametrize("kind", INDEX_DAMAGES)
def test_wrong_indexes_are_found(path, kind):
    first = log(path, 0)
    index, times = first.with_suffix(".index"), first.with_suffix(".timeindex")
    assert index.stat().st_size >= 24
    INDEX_DAMAGES[kind](index, times)
    report = verify(path)
    found = [f for f in report.findings if f.severity is Severity.INDEX]
    assert {f.file for f in found} == {f"data/t-0/{(times if 'time' in kind else index).name}"}
    assert not report.damaged


def test_indexes_of_another_interval_are_right(path):
    topic = path / "topics" / "t.json"
    for interval in ("1", "400", "500", "700", "1000"):
        content = json.loads(topic.read_text())
        content["configs"]["index.interval.bytes"] = interval
        topic.write_text(json.dumps(content))
        assert damage_in(path, Severity.INDEX) == []


def test_an_interval_that_was_lowered_leaves_no_findings(tmp_path):
    configs = {"index.interval.bytes": "500", "segment.bytes": "3000", "retention.ms": "-1"}
    store = new_store(tmp_path, configs)
    for number in range(60):
        store.append("t", rows(number, 3))
    assert len(store.segment_files("t", 0)) > 2
    store.alter_configs("t", {"index.interval.bytes": "100"})
    assert damage_in(tmp_path / "store", Severity.INDEX) == []
    # In the active segment the entries get closer to each other.
    for number in range(4):
        store.append("t", rows(number, 3))
    assert damage_in(tmp_path / "store", Severity.INDEX) == []
    for number, lost in ((0, 8), (1, 16)):
        index = log(tmp_path / "store", number).with_suffix(".index")
        index.write_bytes(index.read_bytes()[:-lost])
    assert [f.file for f in damage_in(tmp_path / "store", Severity.INDEX)] == [
        f"data/t-0/{log(tmp_path / 'store', number).with_suffix('.index').name}" for number in (0, 1)
    ]


def test_entries_that_a_writer_is_about_to_add_are_not_missing(tmp_path):
    """A writer adds them after it has moved the log end."""
    store = new_store(tmp_path, {"index.interval.bytes": "100"})
    for number in range(9):
        store.append("t", rows(number, 3))
    index = log(tmp_path / "store", -1).with_suffix(".index")
    entries = index.read_bytes()
    index.write_bytes(entries[:-8])
    (found,) = damage_in(tmp_path / "store", Severity.INDEX)
    assert found.what.startswith("1 entries are missing")
    check = PartitionCheck(
        store.logs.place("t", 0), store.topic_config("t"), store.path, lambda _done: index.write_bytes(entries)
    )
    assert check.run().findings == []


# ---- states


def overwrite(file, at, data):
    with file.open("r+b") as open_file:
        open_file.seek(at)
        open_file.write(data)


def newest_slot(file):
    loaded = state_file.read(str(file))
    return loaded.slot, loaded.state


def test_a_lost_state_file_is_damage_and_the_log_is_looked_at_all_the_same(path):
    file = state_path(path)
    DAMAGES["records"](path)
    file.unlink()
    found = damage_in(path)
    assert [f.file for f in found] == [f"state/{file.name}", f"data/t-0/{log(path, 1).name}"]


@pytest.mark.parametrize("content", [b"", b"noise" * 500, bytes(2048)])
def test_a_state_file_without_a_valid_slot_is_damage(path, content):
    state_path(path).write_bytes(content)
    assert "no slot" in damage_in(path)[0].what


def test_a_torn_slot_that_hides_records_is_damage(path):
    file = state_path(path)
    slot, state = newest_slot(file)
    overwrite(file, slot * 512 + 40, b"\xff" * 20)
    found = damage_in(path)[0]
    assert (found.file, found.position) == (f"state/{file.name}", slot * 512)
    assert found.first_offset < state.next_offset


def test_nothing_is_wrong_with_a_store_that_is_new(tmp_path):
    store = Store.create(tmp_path / "new")
    assert not verify(store.path).findings
    store.create_topic("t", 2)
    assert not verify(store.path).findings


def test_a_slot_that_a_power_loss_has_torn_is_a_note(path, monkeypatch):
    file = state_path(path)
    older = (newest_slot(file)[0] + 1) % 2
    overwrite(file, older * 512 + 40, b"\xff" * 20)
    monkeypatch.setattr(state_file, "this_boot", lambda: b"next one")
    assert damage_in(path) == []
    assert any("torn" in f.what for f in damage_in(path, Severity.NOTE))


def test_a_state_that_contradicts_itself_or_the_log_is_damage(path):
    file = state_path(path)
    _, state = newest_slot(file)
    for changed in (
        state._replace(log_start=state.next_offset + 1),
        state._replace(next_offset=state.next_offset + 5),
        state._replace(position=state.position + 5),
        state._replace(next_offset=state.next_offset - 1),
        state._replace(active_base=state.active_base + 1),
        state._replace(log_start=-4),
    ):
        file.write_bytes(partition_state.encode_slot(changed) + bytes(1792))
        assert damage_in(path), changed
    file.write_bytes(partition_state.encode_slot(state) + bytes(1792))
    assert damage_in(path) == []


def test_what_is_beyond_the_end_and_what_does_not_belong_there_are_notes(path):
    with log(path, -1).open("ab") as file:
        file.write(b"leftover")
    folder = path / "data" / "t-0"
    (folder / f"{5000:020d}.log").write_bytes(b"")
    names = {f"data/t-0/{log(path, -2).name}", f"data/t-0/{5000:020d}.log"}
    for name in ("data/t-0/readme", "data/other", "holiday.jpg", "topics/x y.json", "staging/x", "state/y"):
        (path / name).write_bytes(b"alien")
        names.add(name)
    (path / "data" / "gone-3").mkdir()
    names -= {"data/other"}  # a plain file beside the partitions: Kafka keeps its checkpoints there
    names.add("data/gone-3")
    report = verify(path)
    assert not report.damaged
    assert names <= {f.file for f in report.findings}


# ---- the store and its topics


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"version": 2}', '"text"'])
def test_damaged_descriptions_are_found(path, content):
    whole = (path / "topics" / "t.json").read_text()
    (path / "topics" / "t.json").write_text(content)
    assert [(f.topic, f.file) for f in damage_in(path)] == [("t", "topics/t.json")]
    (path / "topics" / "t.json").write_text(whole)
    (path / "store.json").write_text(content)
    assert [f.file for f in damage_in(path)] == ["store.json"]


def test_a_lost_description_is_found_by_the_files_of_its_topic(path):
    (path / "topics" / "t.json").unlink()
    (found,) = damage_in(path)
    assert (found.topic, found.partition, found.file, found.next_offset) == ("t", 0, "data/t-0", RECORDS)


def test_a_description_with_too_few_partitions_or_of_another_topic_is_found(path):
    file = path / "topics" / "p.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"partitions": 1}))
    assert [(f.topic, f.partition) for f in damage_in(path)] == [("p", 1)]
    file.write_text(json.dumps(content))
    shutil.copy(file, path / "topics" / "twin.json")
    assert any("is a copy" in f.what for f in damage_in(path))


def test_a_folder_of_another_topic_is_damage_and_one_of_no_topic_a_note(path):
    metadata = path / "data" / "t-0" / "partition.metadata"
    shutil.copy(path / "data" / "p-0" / "partition.metadata", metadata)
    (found,) = damage_in(path)
    assert (found.file, "earlier topic" in found.what) == ("data/t-0/partition.metadata", True)
    metadata.unlink()
    assert damage_in(path) == []
    assert [f.what for f in damage_in(path, Severity.NOTE) if f.file == found.file] == ["the file is missing"]


def test_what_is_no_store(tmp_path, path):
    with pytest.raises(StoreNotFoundError):
        verify(tmp_path)
    with pytest.raises(UnknownTopicError):
        verify(path, "nothing")
    (path / "store.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(StoreVersionError):
        verify(path)


# ---- what was published


@pytest.fixture
def decided(path):
    """A decision that is not applied, of one staged file for both partitions of p."""
    store = Store.open(path)
    parts = stage(store, 10, large=True)
    assert {bool(part.file) for part in parts} == {True}
    stop = stop_before(lambda change: change.kind == "write" and "/data/p-" in change.path)
    assert run_until(lambda: publish(store.decisions, "query", 3, parts, run="run"), stop)
    return path


def staged(path, suffix):
    (file,) = (path / "staging").glob(f"*{suffix}")
    return file


def test_a_decision_that_is_not_applied_is_a_note(decided):
    assert damage_in(decided) == []
    assert any("not yet applied in p-" in f.what for f in damage_in(decided, Severity.NOTE))
    help_apply(Store.open(decided).decisions)
    assert not any("not yet applied" in f.what for f in damage_in(decided, Severity.NOTE))


@pytest.mark.parametrize("harm", ["lost", "flipped", "cut"])
@pytest.mark.parametrize("suffix", [".manifest", ".staged"])
def test_staged_output_that_a_decision_needs_is_looked_at(decided, suffix, harm):
    file = staged(decided, suffix)
    if harm == "lost":
        file.unlink()
    elif harm == "flipped":
        flip(file, 100)
    else:
        os.truncate(file, 50)
    found = damage_in(decided)
    assert found
    assert {f.file for f in found} == {f"staging/{file.name}"}
    assert all("decision" in f.what for f in found)


def test_a_manifest_that_is_no_longer_needed_may_be_gone(path):
    for file in (path / "staging").iterdir():
        file.unlink()
    assert damage_in(path) == []


def test_staged_files_that_no_decision_names_are_a_note(path):
    stage(Store.open(path), 10, large=True)
    assert any("no decision names" in f.what for f in damage_in(path, Severity.NOTE))


def test_a_partition_of_another_time_than_the_decision_log_is_damage(path):
    file = state_path(path, "p", 0)
    _, state = newest_slot(file)
    file.write_bytes(partition_state.encode_slot(state._replace(applied=50)) + bytes(1792))
    assert ["decision log ends at" in f.what for f in damage_in(path)] == [True]
    file.write_bytes(partition_state.encode_slot(state) + bytes(1792))
    pending.tidy(Store.open(path).decisions)
    file.write_bytes(partition_state.encode_slot(state._replace(applied=0)) + bytes(1792))
    assert [("recorded as done" in f.what, f.topic, f.partition) for f in damage_in(path)] == [(True, "p", 0)]


@pytest.mark.parametrize("topic", ["__pylog_publish", "__consumer_offsets"])
def test_records_of_the_engine_that_cannot_be_decoded_are_damage(path, topic):
    data = pa.record_batch({"key": [b"\0\1\xff\xff\xff"], "value": [b"nothing"]})
    append_rows(Store.open(path).logs, topic, data, 0, False)
    (found,) = damage_in(path)
    assert (found.topic, found.next_offset - found.first_offset) == (topic, 1)


# ---- the command


def test_the_command(path):
    clean = CliRunner().invoke(command, [], obj=Target(str(path)))
    assert clean.exit_code == 0
    assert clean.stdout.splitlines()[-1].startswith("no damage: 5 written partitions")
    DAMAGES["records"](path)
    result = CliRunner().invoke(command, ["--jobs", "2"], obj=Target(str(path)))
    assert result.exit_code == 1
    assert "the header says CRC" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("DAMAGED: ")
    document = json.loads(CliRunner().invoke(command, ["--json", "--topic", "t"], obj=Target(str(path))).stdout)
    assert document["damaged"]
    assert [finding["topic"] for finding in document["findings"]] == ["t"]
    assert CliRunner().invoke(command, [], obj=Target(None)).exit_code == 2
