"""Several log dirs: where partitions go, and what a folder that fails takes out, and what it does not."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from cli_tools import pylog
from log_dir_tools import FAILURES, empty, folders, gone, read_only

from pyspark_log.errors import (
    DescriptionError,
    InvalidConfigError,
    LogDamagedError,
    LogDirOfflineError,
    PublishFailedError,
    PublishPendingError,
    StoreExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.catalog.kafka_files import HIGH_WATERMARK, read_offsets
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.maintenance.doctor import environment
from pyspark_log.storage.maintenance.doctor.findings import Verdict
from pyspark_log.storage.maintenance.repair.store import repair
from pyspark_log.storage.maintenance.transfer.kafka_export import export_kafka
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.recovery import recover
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.store_tools import damages, in_partitions, new_store, publish, rows, values
from tests.store_tools import stage as stage_rows

PARTITIONS = 4


@pytest.fixture
def store(tmp_path):
    """Two log dirs, the second one outside of the store; the partitions 1 and 3 of "t" are in that."""
    store = new_store(tmp_path, partitions=PARTITIONS, settings={"log.dirs": f"data,{tmp_path}/second"})
    for partition in range(PARTITIONS):
        store.append("t", rows(b"first"), partition=partition, sync=True)
    return Store.open(store.path)


def stage(store, *values, partitions=range(PARTITIONS), topic="t"):
    return stage_rows(store, in_partitions(rows(*values), partitions), topic)


# ---- what a store says of them


def test_partitions_go_where_the_fewest_are(store, tmp_path):
    assert folders(f"{store.path}/data") == ["t-0", "t-2"]
    assert folders(tmp_path / "second") == ["t-1", "t-3"]
    store.create_topic("u", 2)
    # By what is there, not in turn.
    shutil.rmtree(tmp_path / "second" / "t-3")
    store.append("u", rows(b"x"), partition=0)
    store.append("u", rows(b"x"), partition=1)
    assert folders(tmp_path / "second") == ["t-1", "u-0"]
    assert folders(f"{store.path}/data") == ["t-0", "t-2", "u-1"]


def test_partitions_that_a_publish_makes_are_spread_too(store, tmp_path):
    store.create_topic("many", 20)
    publish(store.decisions, "q", 0, stage(store, b"x", partitions=range(20), topic="many"))
    # One partition is that of the decisions.
    assert abs(len(folders(tmp_path / "second")) - len(folders(f"{store.path}/data"))) <= 1
    # Partitions are counted, too, that no writer has written to yet.
    store.create_topic("begun", 8)
    for partition in range(8):
        store.logs.writer("begun", partition)
    numbers = [state_file.read(store.logs.place("begun", number).state_path).state.log_dir for number in range(8)]
    assert sorted(numbers) == [0] * 4 + [1] * 4


def test_the_store_lists_them_with_their_ids(store, tmp_path):
    content = json.loads(Path(store.path, "store.json").read_bytes())
    paths = {number: one["path"] for number, one in content["log_dirs"].items()}
    assert paths == {"0": "data", "1": f"{tmp_path}/second"}
    assert len({one["directory_id"] for one in content["log_dirs"].values()}) == 2
    assert content["next_log_dir"] == 2
    # A store without this setting is as it always was.
    content = json.loads(Path(Store.create(tmp_path / "one").path, "store.json").read_bytes())
    assert content["log_dirs"] == {"0": {"path": "data", "directory_id": None}}


@pytest.mark.parametrize(
    "content",
    [
        [], {}, {"0": "data"}, {"0": {"path": "data"}}, {"0": {"path": "", "directory_id": "A" * 22}},
        {"0": {"path": "b", "directory_id": None}}, {"0": {"path": "b", "directory_id": "x"}},
        {"00": {"path": "b", "directory_id": "A" * 22}}, {"2": {"path": "b", "directory_id": "A" * 22}},
        {"0": {"path": "a", "directory_id": "A" * 22}, "1": {"path": "b", "directory_id": "A" * 22}},
    ],
)  # fmt: skip
def test_a_list_that_makes_no_sense_is_damage(store, content):
    path = Path(store.path, "store.json")
    good = json.loads(path.read_bytes())
    path.write_text(json.dumps(good | {"log_dirs": content}))
    with pytest.raises(DescriptionError):
        Store.open(store.path)
    assert verify(store.path).damaged


@pytest.mark.parametrize(
    "dirs",
    [
        "",
        "a,a",
        "a,./a",
        "topics",
        "state",
        "a/b",
        "..",
        ".",
        "{store}",
        "{store}/x",
        "/no/x",
        "{tmp}",
        "{tmp}/x,{tmp}/x/y",
    ],
)
def test_folders_that_would_mix_logs_with_other_files_are_refused(tmp_path, dirs):
    (tmp_path / "x").mkdir()
    dirs = dirs.format(tmp=tmp_path, store=tmp_path / "store")
    with pytest.raises(InvalidConfigError, match=r"log\.dirs|log dir"):
        Store.create(tmp_path / "store", {"log.dirs": dirs})
    assert not (tmp_path / "store" / "store.json").exists()


def test_a_folder_that_holds_something_is_refused(store, tmp_path):
    with pytest.raises(InvalidConfigError, match="not empty"):
        Store.create(tmp_path / "other", {"log.dirs": f"data,{tmp_path}/second"})
    # What was made of it does not get in the way.
    other = Store.create(tmp_path / "other", {"log.dirs": "data,more"})
    assert [os.path.basename(folder.path) for folder in other.logs.log_dirs] == ["data", "more"]
    with pytest.raises(StoreExistsError):
        Store.create(tmp_path / "other", {"log.dirs": "data,more"})


def test_a_listed_folder_is_not_listed_by_another_name_too(store, tmp_path):
    """A clean-up would take its partitions, by the one name, for what a move has left."""
    store.add_log_dir(f"{tmp_path}/third")
    before = Path(store.path, "store.json").read_bytes()
    os.rename(tmp_path / "third", tmp_path / "elsewhere")
    with pytest.raises(InvalidConfigError, match="change its path in"):
        store.add_log_dir(f"{tmp_path}/elsewhere")
    assert Path(store.path, "store.json").read_bytes() == before


def test_an_added_folder_is_seen_by_processes_that_have_the_store_open(tmp_path):
    store, other = Store.create(tmp_path / "store"), Store.open(tmp_path / "store")
    store.create_topic("t", 3)
    other.append("t", rows(b"x"), partition=0)
    store.add_log_dir(f"{tmp_path}/second")
    other.append("t", rows(b"x"), partition=1)
    assert folders(tmp_path / "second") == ["t-1"]
    for one in (store, other, Store.open(store.path)):
        assert values(one, 1) == [b"x"]
    with pytest.raises(InvalidConfigError, match="log dir"):
        store.add_log_dir(f"{tmp_path}/second")
    # A folder that was prepared, and not listed before the process was killed, is used when it is added again.
    before = Path(store.path, "store.json").read_bytes()
    store.add_log_dir("third")
    Path(store.path, "store.json").write_bytes(before)
    store.add_log_dir("third")
    assert not verify(store.path).findings


def test_the_checkpoints_of_each_folder_name_its_partitions(store, tmp_path, monkeypatch):
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    store.flush()
    for folder, partitions in ((f"{store.path}/data", {0, 2}), (f"{tmp_path}/second", {1, 3})):
        assert read_offsets(f"{folder}/{HIGH_WATERMARK}") == {TopicPartition("t", number): 1 for number in partitions}
    assert not verify(store.path).findings


# ---- a folder that fails


@pytest.fixture(params=[*FAILURES, read_only], ids=lambda fail: fail.__name__)
def failed(request, store, tmp_path, monkeypatch):
    """The second folder has failed; repairs it."""
    mend = request.param(monkeypatch, str(tmp_path / "second"))
    undone = []

    def once():
        if not undone:
            undone.append(True)
            mend()

    yield once
    once()


OFFLINE = r"^t-[13]: the log dir .*/second has failed: .*(missing|directory\.id|error|Read-only|denied)"


def test_only_its_partitions_are_out(store, failed, tmp_path, request):
    readable = "read_only" in request.node.name
    for one in (store, Store.open(store.path)):
        for partition in (0, 2):
            one.append("t", rows(b"more"), partition=partition, sync=True)
            assert values(one, partition)[:2] == [b"first", b"more"]
        for partition in (1, 3):
            with pytest.raises(LogDirOfflineError, match=OFFLINE):
                one.append("t", rows(b"lost"), partition=partition)
            # Where the log ends is in the store itself.
            assert one.latest_offset("t", partition) == 1
            if readable:
                assert values(one, partition) == [b"first"]
                continue
            with pytest.raises(LogDirOfflineError, match=OFFLINE):
                values(one, partition)
            with pytest.raises(LogDirOfflineError, match=OFFLINE):
                one.offset_for_timestamp("t", partition, 0)
        if not readable:
            with pytest.raises(LogDirOfflineError, match=OFFLINE):
                export_kafka(one, "t", tmp_path / "exported", one.cluster_id)
        for call in (one.clean, one.flush, one.close):
            one.append("t", rows(b"unsynced"), partition=2)
            with pytest.raises(LogDirOfflineError):
                call()
            state = one.logs.reader("t", 2).state()
            assert call == one.clean or state.synced == state.position
    # New partitions go elsewhere.
    store.create_topic("new", 2)
    for partition in (0, 1):
        store.append("new", rows(b"x"), partition=partition)
        assert values(store, partition, "new") == [b"x"]
    report = verify(store.path)
    bad = {finding.partition for finding in report.findings if finding.severity is Severity.DAMAGE}
    assert bad == (set() if readable else {-1, 1, 3})
    failed()
    assert not folders(tmp_path / "second")[2:]
    for partition in range(PARTITIONS):
        store.append("t", rows(b"after"), partition=partition)
        assert values(store, partition)[:: len(values(store, partition)) - 1] == [b"first", b"after"]
    assert not Store.open(store.path).flush()
    assert not damages(store.path)


def test_a_publish_for_it_is_refused_before_it_is_decided(store, failed):
    parts = stage(store, b"published")
    with pytest.raises(PublishFailedError, match=OFFLINE[1:]):
        publish(store.decisions, "q", 0, parts, run="r")
    assert recover(store.decisions) == []
    staged = {part.file for part in parts} - {""}
    assert set(os.listdir(f"{store.path}/staging") if os.path.isdir(f"{store.path}/staging") else ()) == staged
    publish(store.decisions, "other", 0, stage(store, b"other", partitions=[0, 2]))
    failed()
    assert not publish(store.decisions, "q", 0, parts, run="r").replayed
    assert [values(store, partition) for partition in range(PARTITIONS)] == [
        [b"first", b"other", b"published"],
        [b"first", b"published"],
    ] * 2


def test_if_it_fails_after_the_decision_the_rest_is_applied_and_the_decision_waits(store, failed, monkeypatch):
    parts = stage(store, b"published")
    with monkeypatch.context() as patched:
        patched.setattr(type(store.logs), "check_log_dirs", lambda *_: None)
        with pytest.raises(PublishPendingError, match=rf"number 0 of publisher 'q' is decided.*{OFFLINE[1:]}"):
            publish(store.decisions, "q", 0, parts, run="r")
    assert values(store, 0) == values(store, 2) == [b"first", b"published"]
    with pytest.raises(LogDirOfflineError, match=OFFLINE):
        help_apply(store.decisions)
    # Other publishers continue where they need none of its partitions; the same publisher cannot, its decision comes
    # first.
    for number in range(3):
        publish(store.decisions, "other", number, stage(store, b"other", partitions=[0, 2]))
    with pytest.raises(PublishFailedError, match=OFFLINE[1:]):
        publish(store.decisions, "q", 1, stage(store, b"next", partitions=[0]), run="r")
    (waiting,) = recover(store.decisions)
    assert "has failed" in waiting.problem
    assert {place.partition for place in waiting.places} == {1, 3}
    failed()
    (waiting,) = recover(Store.open(store.path).decisions)
    assert waiting.problem == ""
    assert values(store, 1) == values(store, 3) == [b"first", b"published"]
    assert values(store, 0) == [b"first", b"published", *[b"other"] * 3]
    assert not publish(store.decisions, "q", 1, stage(store, b"next", partitions=[0]), run="r").replayed
    assert recover(store.decisions) == []


def test_a_topic_is_deleted_though_a_folder_has_failed(store, failed, tmp_path, request):
    store.alter_configs("t", {"file.delete.delay.ms": "0"})
    store.delete_topic("t")
    with pytest.raises(UnknownTopicError):
        store.append("t", rows(b"x"), partition=1)
    store.create_topic("t", PARTITIONS, {"file.delete.delay.ms": "0"})
    for partition in range(PARTITIONS):
        store.append("t", rows(b"again"), partition=partition)
    store.clean()
    failed()
    assert [values(store, partition) for partition in range(PARTITIONS)] == [[b"again"]] * PARTITIONS
    store.clean()
    assert folders(f"{store.path}/data") == [f"t-{partition}" for partition in range(PARTITIONS)]
    assert folders(tmp_path / "second") == []
    assert folders(f"{store.path}/topics/deleted") == os.listdir(f"{store.path}/topics/deleted") == []
    assert not verify(store.path).findings


def test_a_new_partition_is_not_put_where_a_deleted_one_of_its_name_is(store, tmp_path, monkeypatch):
    mend = gone(monkeypatch, str(tmp_path / "second"))
    store.delete_topic("t")
    store.create_topic("t", PARTITIONS)
    mend()
    for partition in range(PARTITIONS):
        store.append("t", rows(b"again"), partition=partition)
        assert values(store, partition) == [b"again"]
    assert {"t-1", "t-3"} < set(folders(f"{store.path}/data"))
    assert folders(tmp_path / "second") == ["t-1", "t-3"]


def test_nothing_is_written_where_a_disk_should_be_mounted(store, tmp_path, monkeypatch):
    """Not the checkpoints either, of which something was noted before."""
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    with store.logs.writer("t", 1).hold() as writer:
        writer.log.note_offsets()
    mount = empty(monkeypatch, str(tmp_path / "second"))
    for call in (store.flush, store.close, lambda: store.append("t", rows(b"x"), partition=3)):
        with pytest.raises(LogDirOfflineError):
            call()
    store.create_topic("u", 4)
    store.append("u", pa.record_batch({"value": [b"x"] * 8}))
    assert os.listdir(tmp_path / "second") == []
    mount()
    store.flush()


def test_a_lost_partition_in_a_sound_folder_is_damage(store, tmp_path):
    shutil.rmtree(tmp_path / "second" / "t-1")
    for look in (lambda: values(store, 1), lambda: store.append("t", rows(b"x"), partition=1)):
        with pytest.raises(LogDamagedError, match="t-1: "):
            look()
    assert not (tmp_path / "second" / "t-1").exists()


def test_a_state_that_names_an_unlisted_folder_is_reported(store):
    path = store.logs.place("t", 0).state_path
    os.unlink(path)
    state_file.create(path, partition_state.EMPTY._replace(log_dir=7))
    with pytest.raises(LogDirOfflineError, match=r"t-0: .*log-dir-7 has failed: store\.json does not list it"):
        store.append("t", rows(b"x"), partition=0)
    findings = damages(store.path)
    assert {finding.partition for finding in findings} == {0}


def test_a_copy_is_repaired_with_and_without_the_folder(store, tmp_path):
    assert repair(store.path, tmp_path / "copy").complete
    copy = Store.open(tmp_path / "copy")
    assert [values(copy, partition) for partition in range(PARTITIONS)] == [[b"first"]] * PARTITIONS
    assert len(copy.logs.log_dirs) == 1
    os.rename(tmp_path / "second", tmp_path / "away")
    report = repair(store.path, tmp_path / "rest")
    assert {(loss.partition, loss.first_offset, loss.next_offset) for loss in report.losses} == {(1, 0, 1), (3, 0, 1)}
    assert values(Store.open(tmp_path / "rest"), 0) == [b"first"]


# ---- the ways to list them


def test_the_command_lists_them(store, tmp_path):
    found = json.loads(pylog(store, "log-dirs", "list", "--json").output)
    assert [(one["path"], one["online"], one["problem"]) for one in found] == [
        (f"{store.path}/data", True, ""),
        (f"{tmp_path}/second", True, ""),
    ]
    size = store.size("t", 1)
    assert found[1]["partitions"] == [{"topic": "t", "partition": at, "size": size} for at in (1, 3)]
    assert found[1]["size"] == 2 * size
    assert 0 < found[1]["free"] <= found[1]["total"]
    os.rename(tmp_path / "second", tmp_path / "away")
    found = json.loads(pylog(store, "log-dirs", "list", "--json").output)
    assert found[1]["online"] is False
    assert "not mounted" in found[1]["problem"]
    assert [one["size"] for one in found[1]["partitions"]] == [-1, -1]
    _, data, second = pylog(store, "log-dirs", "list").output.splitlines()
    assert data.split()[:2] == [f"{store.path}/data", "2"]
    assert data.split()[-1] == "-"
    assert "not mounted" in second


def test_the_command_adds_one_and_moves_partitions(store, tmp_path):
    added = pylog(store, "log-dirs", "add", f"{tmp_path}/third")
    assert (added.exit_code, added.output) == (0, f"added {tmp_path}/third\n")
    assert pylog(store, "log-dirs", "add", "inside").output == f"added {store.path}/inside\n"
    done = pylog(store, "log-dirs", "move", "t", "0", f"{tmp_path}/third")
    assert (done.exit_code, done.output.split()[-1]) == (0, "copied")
    assert folders(tmp_path / "third") == ["t-0"]
    assert values(store, 0) == [b"first"]
    refused = pylog(store, "log-dirs", "move", "t", "0", "fourth")
    assert refused.exit_code == 1
    assert "[PYLOG_INVALID_CONFIG] 'fourth' is not a log dir of the store" in refused.output


def test_other_commands_work_where_a_log_dir_has_failed(store, tmp_path):
    os.rename(tmp_path / "second", tmp_path / "away")
    for words in ("topics list", "topics describe t", "offsets t", "consume t --partition 0"):
        assert pylog(store, *words.split()).exit_code == 0, words
    out = pylog(store, "consume", "t", "--partition", "1")
    assert out.exit_code == 1
    assert "[PYLOG_LOG_DIR_OFFLINE] t-1: the log dir" in out.output


def test_the_doctor_looks_at_each(store, tmp_path):
    def found():
        findings = environment.log_dirs(store.path)
        return [(finding.verdict, finding.measured.partition(",")[0]) for finding in findings]

    both = [f"{store.path}/data", f"{tmp_path}/second"]
    assert {path for _, path in found()} == set(both)
    os.rename(tmp_path / "second", tmp_path / "away")
    assert found()[1] == (Verdict.FAILED, both[1])


def test_an_error_keeps_what_it_says_on_its_way_to_another_process(store, tmp_path):
    os.rename(tmp_path / "second", tmp_path / "away")
    with pytest.raises(LogDirOfflineError) as raised:
        values(store, 1)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (type(copy), str(copy), copy.errno, copy.filename) == (
        LogDirOfflineError,
        str(raised.value),
        5,
        f"{tmp_path}/second",
    )


def test_a_folder_that_is_mounted_read_only(store, tmp_path):
    """Another mount of it, in a name space of its own; root can write to everything else."""
    second = f"{tmp_path}/second"
    script = (
        f"mount --bind {second} {second} && mount -o remount,bind,ro {second} && exec {sys.executable} -c "
        f"'import test_log_dirs as t; t.read_only_mount({store.path!r})'"
    ).replace(repr(store.path), f'"{store.path}"')
    if not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("this user can make no name space for mounts here")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    subprocess.run(["unshare", "-m", "sh", "-c", script], check=True, env=environ, timeout=240)
    assert values(store, 1) == [b"first"]
    store.append("t", rows(b"after"), partition=1)


def read_only_mount(path):
    """What one sees inside of that."""
    store = Store.open(path)
    with pytest.raises(LogDirOfflineError, match=r"t-1: the log dir .*Read-only file system"):
        store.append("t", rows(b"x"), partition=1)
    with pytest.raises(PublishFailedError, match=r"Read-only file system"):
        publish(store.decisions, "q", 0, stage(store, b"x"))
    assert recover(store.decisions) == []
    store.append("t", rows(b"x"), partition=0)
    assert (values(store, 0), values(store, 1)) == ([b"first", b"x"], [b"first"])
    assert [bool(one.problem) for one in store.describe_log_dirs()] == [False, True]


# ---- copies of a store that list the folders of the original


@pytest.fixture
def copy(store, tmp_path):
    """A copy of the store's own folder; "second" stays where it is."""
    store.close()
    return Store.open(shutil.copytree(store.path, tmp_path / "copy"))


def test_a_copy_changes_nothing_in_the_folders_of_the_original(store, copy, tmp_path):
    store.append("t", rows(b"second"), partition=1, sync=True)
    before = sorted(os.listdir(tmp_path / "second"))
    parts = stage(copy, b"staged")
    for change in (
        lambda: copy.append("t", rows(b"other"), partition=1),
        lambda: copy.delete_records("t", 1, 1),
        lambda: copy.clean("t"),
        lambda: copy.move_partition("t", 1, "data"),
        lambda: copy.move_partition("t", 0, str(tmp_path / "second")),
        lambda: publish(copy.decisions, "p", 0, parts),
    ):
        with pytest.raises((LogDirOfflineError, PublishFailedError), match="this store is a copy of that one"):
            change()
    copy.append("t", rows(b"other"), partition=0)
    assert any("this store is a copy" in finding.what for finding in verify(copy.path).findings)
    copy.delete_topic("t")
    copy.clean()
    assert sorted(os.listdir(tmp_path / "second")) == before
    assert values(store, 0) == [b"first"]
    assert values(store, 1) == [b"first", b"second"]
    store.append("t", rows(b"third"), partition=1, sync=True)
    assert not verify(store.path).findings


def test_a_copy_with_logs_of_its_own_is_a_store_of_its_own(store, copy, tmp_path):
    shutil.copytree(tmp_path / "second", tmp_path / "third")
    listed = Path(copy.path, "store.json")
    listed.write_text(listed.read_text().replace(f"{tmp_path}/second", f"{tmp_path}/third"))
    copy = Store.open(copy.path)
    copy.append("t", rows(b"other"), partition=1, sync=True)
    copy.close()
    assert values(store, 1) == [b"first"]
    assert values(Store.open(copy.path), 1) == [b"first", b"other"]
    assert not verify(copy.path).findings


def test_a_store_that_was_moved_keeps_its_folders_to_itself(store, tmp_path, monkeypatch):
    store.close()
    monkeypatch.setattr(log_dirs, "INTERVAL", 0.0)
    moved = Store.open(os.rename(store.path, tmp_path / "moved") or tmp_path / "moved")
    moved.append("t", rows(b"second"), partition=1, sync=True)
    moved.close()
    copy = Store.open(shutil.copytree(moved.path, tmp_path / "copy"))
    with pytest.raises(LogDirOfflineError, match=f"belongs to the store in {moved.path},"):
        copy.append("t", rows(b"other"), partition=1)
    assert values(Store.open(moved.path), 1) == [b"first", b"second"]


def test_a_store_seen_at_two_places_is_one(store, tmp_path):
    (tmp_path / "link").symlink_to(store.path)
    linked = Store.open(tmp_path / "link")
    linked.append("t", rows(b"second"), partition=1)
    assert values(store, 1) == [b"first", b"second"]


def test_a_copy_does_not_take_an_empty_folder_that_the_original_has_been_given_since(store, copy, tmp_path):
    store.add_log_dir(tmp_path / "third")
    with pytest.raises(InvalidConfigError, match="this store is a copy of that one"):
        copy.add_log_dir(tmp_path / "third")
    store.create_topic("u", 4)
    for partition in range(4):
        store.append("u", rows(b"x"), partition=partition)
    assert "u-0" in os.listdir(tmp_path / "third")


def test_the_note_may_be_removed_when_the_original_is_given_up(store, copy, tmp_path):
    (tmp_path / "second" / "pylog-store.json").unlink()
    copy.append("t", rows(b"other"), partition=1, sync=True)
    copy.close()
    assert values(Store.open(copy.path), 1) == [b"first", b"other"]


# ---- the folder that is searched for partitions without a state


@pytest.mark.parametrize("fail", [*FAILURES[::3], read_only], ids=lambda fail: fail.__name__)
def test_the_first_log_dir_fails_and_the_others_stay_in_use(tmp_path, monkeypatch, fail):
    store = new_store(tmp_path, partitions=PARTITIONS, settings={"log.dirs": f"{tmp_path}/first,{tmp_path}/second"})
    for partition in (0, 1):
        store.append("t", rows(b"first"), partition=partition, sync=True)
    mend = fail(monkeypatch, str(tmp_path / "first"))
    try:
        for one in (store, Store.open(store.path)):
            assert one.latest_offset("t", 3) == 0
            assert values(one, 3) == []
            assert one.offset_for_timestamp("t", 3, 0) is None
        store.append("t", rows(b"new"), partition=2)
        assert values(store, 2) == [b"new"]
        publish(store.decisions, "p", 0, stage(store, b"published", partitions=[1, 3]))
        assert [values(store, partition) for partition in (1, 3)] == [[b"first", b"published"], [b"published"]]
        verify(store.path)
        store.create_topic("u", 1)
        store.delete_topic("u")
        assert len(store.describe_log_dirs()) == 2
    finally:
        mend()
    assert values(store, 0) == [b"first"]
