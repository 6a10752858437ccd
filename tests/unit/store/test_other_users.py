"""A store of several users: some may only read it, and those of one group may also write."""

import multiprocessing
import os
import resource
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from damage import RECORDS, build, rows, stage, tree

from pyspark_log.cli import main as cli
from pyspark_log.errors import OffsetOutOfRangeError, PublishFailedError, PublishPendingError
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.maintenance.doctor import examination  # noqa: F401  (another user may not be able to import it later)
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish.claims import last_number
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.store_tools import decided_only, publish

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

_PROCESSES = multiprocessing.get_context("fork")
_GROUP = 54_320
# Users that no system has.
_USERS = (54_321, 54_322)


@pytest.fixture
def folder():
    """A folder that other users can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        yield Path(made)


def _child(user, umask, action, answers):
    os.umask(umask)
    if user is not None:
        os.setgroups([])
        os.setgid(_GROUP)
        os.setuid(user)
    try:
        answers.put((action(), None))
    except BaseException as error:  # noqa: BLE001  (raised again in the test)
        answers.put((None, f"{type(error).__name__}: {error}"))


def in_process_of(user, action, umask=0o022):
    """What an action gives in a process of its own, as that user (None: as this one)."""
    answers = _PROCESSES.Queue()
    process = _PROCESSES.Process(target=_child, args=(user, umask, action, answers), daemon=True)
    process.start()
    found, error = answers.get(timeout=240)
    process.join()
    assert error is None, error
    return found


def who_may_not_write(path):
    """Takes the right to write from the store's files; a user that has none (None: this one)."""
    for one in (path, *path.rglob("*")):
        os.chmod(one, os.stat(one).st_mode & 0o555)
    return _USERS[0] if os.geteuid() == 0 else None


def may_write_again(path):
    for one in (path, *path.rglob("*")):
        os.chmod(one, os.stat(one).st_mode | 0o200)


def see(path):
    """All that can be read of the store that `build` makes."""
    store = Store.open(path)
    found = {
        (topic, partition): [
            store.earliest_offset(topic, partition),
            store.latest_offset(topic, partition),
            store.size(topic, partition),
            store.offset_of_max_timestamp(topic, partition),
            store.offset_for_timestamp(topic, partition, 1_000_005),
            [row for batch in store.read(topic, partition, headers=True) for row in batch.to_pylist()],
        ]
        for topic in store.topics()
        for partition in range(store.describe_topic(topic).partitions)
    }
    with pytest.raises(OffsetOutOfRangeError):
        next(store.read("t", 0, RECORDS + 1))
    return (
        found,
        OffsetsLog(store).fetch("group"),
        last_number(store.decisions, "query"),
        help_apply(store.decisions),
        store.writable,
    )


COMMANDS = (
    ("topics", "list"), ("topics", "describe", "t"), ("offsets", "t"), ("groups", "list"),
    ("groups", "describe", "group"), ("consume", "t", "--from-beginning", "--max-messages", "3"), ("verify",),
    ("recover", "--dry-run"), ("dump", "--topic", "t", "--partition", "0"),
)  # fmt: skip


def run_commands(path):
    """How each command ends that only reads."""
    return {
        words: (result := CliRunner().invoke(cli.main, ["--store", str(path), *words])).exit_code or result.stderr
        for words in COMMANDS
    }


def test_a_command_says_which_user_may_not_write(folder):
    path = folder / "store"
    Store.create(path).create_topic("t")

    def produce():
        return CliRunner().invoke(cli.main, ["--store", str(path), "topics", "create", "u"]).stderr

    said = in_process_of(_USERS[0], produce)
    assert said == (
        f"Error: [PYLOG_IO_ERROR] user {_USERS[0]} may not write to {path}/state/topics.lock, of the store {path}: see "
        "docs/guides/troubleshooting.md#several-users\n"
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_all_of_a_store_can_be_read_without_the_right_to_write(folder, restarted, monkeypatch):
    path = folder / "store"
    build(path)
    wanted, before = see(path), tree(path)
    assert wanted[-1] is True
    if restarted:
        monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    user = who_may_not_write(path)
    try:
        assert in_process_of(user, lambda: see(path)) == (*wanted[:-1], False)
        assert in_process_of(user, lambda: run_commands(path)) == dict.fromkeys(COMMANDS, "")
        found = in_process_of(user, lambda: verify(path).findings)
        assert [finding for finding in found if finding.severity is not Severity.NOTE] == []
        assert tree(path) == before
    finally:
        may_write_again(path)


def test_a_topic_can_be_exported_without_the_right_to_write(folder):
    path, out = folder / "store", folder / "out"
    build(path)
    out.mkdir()
    out.chmod(0o777)
    before, user = tree(path), who_may_not_write(path)
    words = ("export-kafka", "t", str(out / "kafka"), "--topic-id", Store.open(path).describe_topic("t").topic_id)

    def export():
        result = CliRunner().invoke(cli.main, ["--store", str(path), *words])
        return result.exit_code, result.stderr, see_records(out / "kafka")

    try:
        assert in_process_of(user, export) == (0, "", see_records(path))
        assert tree(path) == before
    finally:
        may_write_again(path)


def see_records(path):
    return [row for batch in Store.open(path).read("t", 0, headers=True) for row in batch.to_pylist()]


def test_a_user_that_may_not_write_gets_an_error_and_changes_nothing(folder):
    path = folder / "store"
    build(path)
    before, user = tree(path), who_may_not_write(path)

    def refused():
        store = Store.open(path)
        for change in (
            lambda: store.append("t", rows(0, 1)),
            lambda: store.create_topic("new", 1),
            lambda: store.delete_topic("t"),
            lambda: store.delete_records("t", 0, 3),
            lambda: store.alter_configs("t", {"retention.ms": "1"}),
            lambda: stage(store, 40, large=True),
            lambda: publish(store.decisions, "query", 3, stage(store, 1), run="run"),
            lambda: publish(store.decisions, "query", 2, stage(store, 10), run="another run"),
            lambda: OffsetsLog(store).commit("group", {TopicPartition("t", 0): 8}),
        ):
            with pytest.raises((PermissionError, PublishFailedError, PublishPendingError), match=str(path)):
                change()
        return True

    try:
        assert in_process_of(user, refused)
        assert tree(path) == before
    finally:
        may_write_again(path)


def test_a_user_that_may_not_write_sees_a_decision_only_once_it_is_applied(folder):
    """The reader can read what is there; the next process that may write makes the rest visible."""
    path = folder / "store"
    store = build(path)
    with decided_only():
        publish(store.decisions, "query", 3, stage(store, 10), run="run")
    user = who_may_not_write(path)

    def look():
        opened = Store.open(path)
        command = CliRunner().invoke(cli.main, ["--store", str(path), "consume", "p"])
        records = sum(read.num_rows for number in range(2) for read in opened.read("p", number))
        return records, command.exit_code, command.output.count("record")

    try:
        assert in_process_of(user, look) == (30, 0, 30)
    finally:
        may_write_again(path)
    assert in_process_of(None, look) == (40, 0, 40)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_users_of_one_group_write_to_one_store(folder):
    """Each makes files that the other one uses: segments, staged files that become segments, descriptions."""
    os.chown(folder, 0, _GROUP)
    os.chmod(folder, 0o2775)
    path = folder / "store"

    def begin():
        store = Store.create(path, {"offsets.topic.num.partitions": "2"})
        sizes = {"index.interval.bytes": "300", "retention.ms": "-1", "file.delete.delay.ms": "0"}
        store.create_topic("t", 2, {"segment.bytes": "2000", **sizes})
        store.create_topic("p", 2, {"segment.bytes": "2000000", **sizes})

    def work(turn):
        def resume():
            with Store.open(path) as store:
                for number in range(20):
                    store.append("t", rows(100 * turn + number, 3))
                publish(store.decisions, "query", turn, stage(store, 40, large=True), run="run")
                OffsetsLog(store).commit("group", {TopicPartition("t", 0): turn})
                store.alter_configs("t", {"retention.bytes": str(10_000 + turn)})
                store.delete_records("p", 0, store.latest_offset("p", 0) // 2)
                store.create_topic(f"of-{turn}", 1)
                store.append(f"of-{turn}", rows(0, 1))
                if turn:
                    store.delete_topic(f"of-{turn - 1}")
                store.clean()
                return store.latest_offset("p", 0) + store.latest_offset("p", 1)

        return resume

    in_process_of(_USERS[0], begin, umask=0o002)
    for turn in range(4):
        assert in_process_of(_USERS[turn % 2], work(turn), umask=0o002) == 40 * (turn + 1)
    owners = {os.stat(one).st_uid for one in path.rglob("*")}
    assert owners == set(_USERS)
    report = verify(path)
    assert [finding for finding in report.findings if finding.severity is not Severity.NOTE] == []
    shutil.rmtree(path)


def test_a_user_that_may_start_no_more_threads_appends_publishes_and_verifies(folder):
    os.chmod(folder, 0o777)

    def work(path):
        store = Store.create(path)
        store.create_topic("t", 4)
        for _ in range(200):  # Enough for the lock to be kept.
            store.append("t", rows(0, 8))
        publish(store.decisions, "q", 0, stage(store, 40, "t"))
        findings = [found.severity for found in verify(path).findings]
        return findings, sum(batch.num_rows for at in range(4) for batch in store.read("t", at))

    def work_alone():
        before = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, before[1]))
        try:
            with pytest.raises(RuntimeError, match="start new thread"):
                threading.Thread(target=int).start()
            return work(folder / "alone")
        finally:
            resource.setrlimit(resource.RLIMIT_NPROC, before)

    expected = work(folder / "first")  # Another user may not be able to import later what this needs.
    assert in_process_of(_USERS[0] if os.geteuid() == 0 else None, work_alone) == expected
