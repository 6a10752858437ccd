"""A log dir is taken off the store's list, if nothing is in it; and nothing ever gets there afterwards."""

import json
import os
import threading
import time
from pathlib import Path

import pytest
from cli_tools import pylog
from log_dir_tools import FAILURES, folders, read_only

from pyspark_log.errors import DescriptionError, InvalidConfigError, LogDamagedError, UnknownTopicError
from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.catalog.log_dirs import LogDirs
from pyspark_log.storage.catalog.store_json import describe
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log_manager import partition_move
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.store import Store
from tests.processes import run_at_once
from tests.store_tools import damages, new_store, rows, values


@pytest.fixture
def second(tmp_path):
    return f"{tmp_path}/second"


@pytest.fixture
def store(tmp_path, second):
    """Two log dirs, the second one outside of the store; t-1 is in that."""
    store = new_store(tmp_path, {"file.delete.delay.ms": "0"}, partitions=2, settings={"log.dirs": f"data,{second}"})
    for partition in (0, 1):
        store.append("t", rows(b"first"), partition=partition, sync=True)
    return Store.open(store.path)


def listed(store):
    """The names by their numbers; "" for a removed log dir."""
    known = describe(store.path)
    numbers = range(known.next_log_dir)
    return [known.log_dirs[number].name if number in known.log_dirs else "" for number in numbers]


def empty_second(store):
    store.move_partition("t", 1, "data")
    store.clean()


def number_of(store, partition, topic="t"):
    return state_file.read(store.logs.place(topic, partition).state_path).state.log_dir


def tree(path):
    return {str(one): one.read_bytes() if one.is_file() else None for one in sorted(Path(path).rglob("*"))}


def test_an_empty_one_goes_and_its_number_is_not_given_again(store, second, monkeypatch):
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    other = Store.open(store.path)
    store.flush()
    empty_second(store)
    assert store.remove_log_dir(second) == ""
    assert listed(store) == ["data", ""]
    assert os.listdir(second) == []
    store.add_log_dir(second)
    assert listed(store) == ["data", "", second]
    store.move_partition("t", 0, second)
    assert (number_of(store, 0), number_of(store, 1)) == (2, 0)
    for one in (store, other, Store.open(store.path)):
        one.append("t", rows(b"more"), partition=0)
        assert values(one, 0)[:2] == [b"first", b"more"]
    assert [one.path for one in other.describe_log_dirs()] == [f"{store.path}/data", second]
    store.clean()
    assert not verify(store.path).findings


def test_the_first_one_goes_and_partitions_begin_elsewhere(tmp_path, second):
    store = new_store(tmp_path, {"file.delete.delay.ms": "0"}, partitions=2)
    store.append("t", rows(b"first"), partition=0)
    # This one does not know yet that the first one has an id.
    other = Store.open(store.path)
    assert values(other, 0) == [b"first"]
    store.add_log_dir(second)
    store.move_partition("t", 0, second)
    store.clean()
    assert store.remove_log_dir("data") == ""
    for number, one in enumerate((other, store, Store.open(store.path))):
        one.create_topic(f"u{number}", 2)
        assert values(one, 1, f"u{number}") == []
        assert one.offset_for_timestamp(f"u{number}", 1, 0) is None
        assert one.size(f"u{number}", 1) == one.latest_offset(f"u{number}", 1) == 0
        one.append(f"u{number}", rows(b"x"), partition=0)
        assert values(one, 0, f"u{number}") == [b"x"]
        one.append("t", rows(b"more"), partition=0)
        one.flush()
        # Where it would be, if there were something of it.
        assert os.path.dirname(one.logs.place(f"u{number}", 1).folder) == second
    assert not os.path.exists(f"{store.path}/data")
    assert folders(second) == ["t-0", "u0-0", "u1-0", "u2-0"]
    assert not verify(store.path).findings


def test_one_that_holds_partitions_stays(store, second):
    before = Path(store.path, "store.json").read_bytes()
    store.create_topic("u", 30, {"file.delete.delay.ms": str(7 * 24 * 3_600_000)})
    for partition in range(30):
        store.append("u", rows(b"x"), partition=partition)
    with pytest.raises(InvalidConfigError, match=r"/second holds 16 partitions: .* and 6 more; move them"):
        store.remove_log_dir(second)
    with pytest.raises(InvalidConfigError, match="not a log dir"):
        store.remove_log_dir("third")
    # It is unknown where a partition is whose state is damaged.
    empty_second(store)
    store.delete_topic("u")
    path = Path(store.logs.place("t", 0).state_path)
    state = path.read_bytes()
    path.write_bytes(bytes(len(state)))
    with pytest.raises(LogDamagedError, match="t-0: its log dir is unknown"):
        store.remove_log_dir(second)
    path.write_bytes(state)
    # What goes later.
    with pytest.raises(InvalidConfigError, match=r"/second still has u-\d+\.[0-9a-f]{32}-delete, .* and 5 more"):
        store.remove_log_dir(second)
    assert Path(store.path, "store.json").read_bytes() == before


def test_the_log_of_a_partition_that_has_lost_its_state_is_not_forgotten(store, second, tmp_path):
    os.rename(store.logs.place("t", 1).state_path, tmp_path / "lost")
    with pytest.raises(InvalidConfigError, match=r"/second still has t-1\. .*pylog verify"):
        store.remove_log_dir(second)


def test_the_only_one_stays(tmp_path):
    store = Store.create(tmp_path / "store")
    with pytest.raises(InvalidConfigError, match="the only log dir"):
        store.remove_log_dir("data")
    store.add_log_dir("more")
    store.remove_log_dir("data")
    with pytest.raises(InvalidConfigError, match="the only log dir"):
        store.remove_log_dir("more")
    assert listed(store) == ["", "more"]


def test_numbers_run_out(store, tmp_path):
    path = Path(store.path, "store.json")
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"next_log_dir": 65535}))
    store.add_log_dir("last")
    with pytest.raises(InvalidConfigError, match="not given again"):
        store.add_log_dir("more")
    store.move_partition("t", 0, "last")
    assert number_of(store, 0) == 65535
    assert values(Store.open(store.path), 0) == [b"first"]


@pytest.mark.parametrize(
    "change", [{"log_dirs": {}}, {"next_log_dir": 1}, {"next_log_dir": 65537}, {"log_dirs": {"x": {"path": "data"}}}]
)
def test_a_list_with_gaps_that_makes_no_sense_is_damage(store, change):
    path = Path(store.path, "store.json")
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(DescriptionError):
        Store.open(store.path)


@pytest.mark.parametrize("fail", [*FAILURES, read_only], ids=lambda fail: fail.__name__)
def test_a_failed_one_goes_untouched_when_nothing_is_in_it(store, second, monkeypatch, fail):
    inside = tree(second)
    mend = fail(monkeypatch, second)
    try:
        with pytest.raises(InvalidConfigError, match=r"holds 1 partition: t-1; as it has failed \(.*delete their"):
            store.remove_log_dir(second)
        assert listed(store) == ["data", second]
        store.delete_topic("t")
        before = tree(second) if os.path.isdir(second) and fail in FAILURES[:3] else None
        assert store.remove_log_dir(second)
        assert before is None or tree(second) == before
        assert listed(store) == ["data", ""]
        # What the deleted topic had there is not waited for.
        store.clean()
        assert os.listdir(f"{store.path}/topics/deleted") == []
        store.create_topic("t", 4)
        for partition in range(4):
            store.append("t", rows(b"again"), partition=partition)
    finally:
        mend()
    assert tree(second) == inside
    assert [values(Store.open(store.path), partition) for partition in range(4)] == [[b"again"]] * 4
    with pytest.raises(InvalidConfigError, match="not empty"):
        store.add_log_dir(second)
    assert not verify(store.path).findings


def test_one_that_was_emptied_and_failed_comes_back_under_another_number(store, second, tmp_path):
    empty_second(store)
    os.rename(second, tmp_path / "away")
    assert "not mounted" in store.remove_log_dir(second)
    os.rename(tmp_path / "away", second)
    for name in [name for name in os.listdir(second) if name.endswith("-checkpoint")]:
        os.unlink(f"{second}/{name}")
    store.add_log_dir(second)
    assert listed(store) == ["data", "", second]
    store.move_partition("t", 1, second)
    assert (number_of(store, 1), values(Store.open(store.path), 1)) == (2, [b"first"])


def test_what_is_not_the_stores_stays_in_it(store, second):
    empty_second(store)
    Path(second, "notes").write_text("mine")
    assert store.remove_log_dir(second) == "it has notes"
    assert os.listdir(second) == ["notes"]


# ---- others at the same time


def test_a_process_with_the_old_list_creates_nothing_there(store, second, monkeypatch):
    stale, blind = Store.open(store.path), Store.open(store.path)
    for one in (stale, blind):
        one.describe_log_dirs()
    empty_second(store)
    store.create_topic("u", 2)
    store.remove_log_dir(second)
    # A process that cannot list them must not rely on those that it knows.
    with monkeypatch.context() as patched:
        read = files.read_whole

        def unreadable(path, limit):
            if path.endswith("/store.json"):
                raise OSError(24, os.strerror(24), path)
            return read(path, limit)

        patched.setattr(files, "read_whole", unreadable)
        for change in (
            lambda: blind.append("u", rows(b"x"), partition=0),
            lambda: blind.move_partition("t", 0, second),
        ):
            with pytest.raises(OSError, match="Too many open files"):
                change()
    with pytest.raises(InvalidConfigError, match="not a log dir"):
        stale.move_partition("t", 0, second)
    for partition in (0, 1):
        stale.append("u", rows(b"x"), partition=partition)
    assert {number_of(store, partition, "u") for partition in (0, 1)} == {0}
    assert os.listdir(second) == []


def test_a_process_about_to_write_checkpoints_writes_none_there(store, second, monkeypatch):
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    stale = Store.open(store.path)
    with stale.logs.writer("t", 1).hold() as writer:
        writer.log.note_offsets()
    empty_second(store)
    folder = stale.logs.log_dirs.at(1)
    looked = folder.problem

    def then_it_goes():
        monkeypatch.setattr(folder, "problem", looked)
        found = looked()
        assert store.remove_log_dir(second) == ""
        return found

    monkeypatch.setattr(folder, "problem", then_it_goes)
    folder.write_due()
    assert listed(store) == ["data", ""]
    assert os.listdir(second) == []


@pytest.mark.parametrize("change", ["move", "create"])
def test_a_process_creating_a_partition_there_comes_first(store, second, monkeypatch, change):
    empty_second(store)
    store.create_topic("u", 1)
    other, begun, resume, outcome = Store.open(store.path), threading.Event(), threading.Event(), []

    def then_wait(real):
        def call(*args):
            found = real(*args)
            begun.set()
            assert resume.wait(240)
            return found

        return call

    def remove():
        try:
            outcome.append(Store.open(store.path).remove_log_dir(second))
        except InvalidConfigError as error:
            outcome.append(str(error))

    if change == "move":
        monkeypatch.setattr(partition_move._Move, "_make_room", then_wait(partition_move._Move._make_room))
        work, moved = (lambda: other.move_partition("t", 0, second)), "t"
    else:
        monkeypatch.setattr(LogDirs, "choose", then_wait(LogDirs.choose))
        work, moved = (lambda: other.append("u", rows(b"first"), partition=0)), "u"
    threads = [threading.Thread(target=work), threading.Thread(target=remove)]
    threads[0].start()
    assert begun.wait(240)
    threads[1].start()
    time.sleep(0.2)
    assert not outcome
    resume.set()
    for thread in threads:
        thread.join()
    assert f"holds 1 partition: {moved}-0" in outcome[0]
    assert values(store, 0, moved) == [b"first"]


def test_a_topic_that_is_deleted_while_it_is_moved(store, second, monkeypatch):
    store.create_topic("gone", 1, {"file.delete.delay.ms": "0"})
    store.append("gone", rows(b"x"), partition=0)
    lock_for = cleaner_checkpoint.lock_for

    def deleted_before(path):
        Store.open(store.path).delete_topic("gone")
        return lock_for(path)

    monkeypatch.setattr(cleaner_checkpoint, "lock_for", deleted_before)
    with pytest.raises(UnknownTopicError):
        store.move_partition("gone", 0, second)


def test_partitions_come_and_go_while_it_is_removed_and_added(store, second):
    empty_second(store)
    ends, problems, made, rounds = time.monotonic() + 1.5, [], [], []

    def runs_on():
        """Whether a worker is to continue: until `ends`, and on a slow machine until the folder was removed twice."""
        return time.monotonic() < ends or (len(rounds) < 2 and not problems and time.monotonic() < ends + 240)

    def run(work):
        one, count = Store.open(store.path), 0
        while runs_on():
            count += 1
            try:
                work(one, count)
            except (InvalidConfigError, UnknownTopicError):
                pass  # What it is about has just gone.
            except BaseException as error:
                problems.append(error)
                raise

    def create(one, count):
        time.sleep(count % 4 * 0.05)
        name = f"{threading.get_ident()}-{count}"
        one.create_topic(name, 1, {"file.delete.delay.ms": "0"})
        one.append(name, rows(b"x"), partition=0)
        made.append(name)
        if count % 2:
            one.move_partition(name, 0, second)
            one.move_partition(name, 0, "data")
        if count % 3:
            one.delete_topic(name)
            made.remove(name)

    def remove(one, count):
        for topic in one.topics():
            one.move_partition(topic, 0, "data")
        one.clean()
        one.remove_log_dir(second)
        rounds.append(count)
        time.sleep(0.01)
        one.add_log_dir(second)

    threads = [threading.Thread(target=run, args=(work,)) for work in (create, create, remove)]
    run_at_once(threads)
    assert not problems
    assert len(rounds) > 1
    found = Store.open(store.path)
    names = listed(found)
    for name in made:
        assert names[number_of(found, 0, name)]
        assert values(found, 0, name) == [b"x"]
    assert damages(store.path) == []


# ---- the command


def test_the_command(store, second, tmp_path):
    refused = pylog(store, "log-dirs", "remove", second)
    assert refused.exit_code == 1
    assert "[PYLOG_INVALID_CONFIG] log dir" in refused.output
    assert "pylog log-dirs move TOPIC PARTITION FOLDER" in refused.output
    empty_second(store)
    done = pylog(store, "log-dirs", "remove", second)
    assert (done.exit_code, done.output) == (0, f"removed {second}\n")
    store.add_log_dir(second)
    os.rename(second, tmp_path / "away")
    done = pylog(store, "log-dirs", "remove", second)
    assert done.exit_code == 0
    assert done.output.startswith(f"removed {second}; it may still hold files of the store: it has no meta")
