"""`pylog doctor`: a healthy folder passes, and each check fails where what it tests is missing."""

from __future__ import annotations

import errno
import fcntl
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pyspark_log.cli.maintenance.doctor import doctor
from pyspark_log.storage.fs import files, mounts
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.maintenance.doctor import checks, environment, examination, mount_options, peer, second_process
from pyspark_log.storage.maintenance.doctor.check import Bench, conduct
from pyspark_log.storage.maintenance.doctor.checks import ONE_HOST
from pyspark_log.storage.maintenance.doctor.examination import examine
from pyspark_log.storage.maintenance.doctor.findings import Verdict
from pyspark_log.storage.maintenance.doctor.operations import Operations
from pyspark_log.storage.maintenance.doctor.second_process import SecondProcess
from pyspark_log.storage.store import Store

CHECKS = {check.name: check for check in ONE_HOST}
COMMAND = "from pyspark_log.cli.maintenance.doctor import doctor; doctor()"
#: The same with few of the checks of one host.
QUICK = f"from pyspark_log.storage.maintenance.doctor import examination as e; e.ONE_HOST = e.ONE_HOST[:1]; {COMMAND}"


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """The machine may have much else to do; a test in which something never comes sets less."""
    monkeypatch.setattr(checks, "PATIENCE_SECONDS", 60.0)
    for module, name in (
        (checks, "RELEASE_SECONDS"),
        (second_process, "START_SECONDS"),
        (second_process, "ANSWER_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 240.0)


@pytest.fixture
def bench(tmp_path):
    mine = Operations(str(tmp_path))
    with SecondProcess(str(tmp_path)) as other:
        yield Bench(str(tmp_path), mine, other)
    mine.close()


def spawn(program, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def by_name(findings):
    return {finding.name: finding for finding in findings}


# --- the whole


@pytest.mark.slow
def test_a_healthy_folder_has_no_failure_and_is_left_as_it_was(tmp_path):
    findings = by_name(examine(str(tmp_path)))
    assert [finding for finding in findings.values() if finding.verdict is Verdict.FAILED] == []
    assert set(CHECKS) <= set(findings)
    assert findings["pyarrow"].measured.startswith(importlib.metadata.version("pyarrow"))
    assert findings["write permission"].verdict is Verdict.OK
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_the_command_prints_a_line_a_finding(tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "ONE_HOST", ONE_HOST[:2])
    result = CliRunner().invoke(doctor, [str(tmp_path)])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["CHECK", "VERDICT", "MEASURED", "MEANING"]
    assert len(lines) == 1 + len(list(examine(str(tmp_path))))
    assert any(line.startswith("lock between processes  ok ") for line in lines)


def test_the_command_ends_with_1_and_names_what_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "link", _refuse(errno.EPERM))
    monkeypatch.setattr(examination, "ONE_HOST", [CHECKS["hard link"], CHECKS["state slots"]])
    result = CliRunner().invoke(doctor, [str(tmp_path), "--json"])
    assert result.exit_code == 1
    failed = [finding for finding in json.loads(result.stdout) if finding["verdict"] == "failed"]
    assert {finding["name"] for finding in failed} == {"hard link", "state slots"}
    assert "Operation not permitted" in failed[0]["measured"]
    assert re.search(r"2 of \d+ checks failed", result.stderr)
    assert os.listdir(tmp_path) == []


def test_pyspark_is_not_imported(tmp_path):
    program = """
        import sys
        from pyspark_log.storage.maintenance.doctor import examination
        examination.ONE_HOST = examination.ONE_HOST[:1]
        list(examination.examine(sys.argv[1]))
        sys.exit("pyspark" in sys.modules)
    """
    run = spawn(textwrap.dedent(program), tmp_path)
    _, errors = run.communicate(timeout=240)
    assert (run.returncode, errors) == (0, b"")


# --- a folder that cannot be written to


def _doctor_on_read_only(folder):
    """The findings of a run that cannot write to `folder`. Root can write anywhere but on a read-only mount."""
    if os.geteuid() != 0:
        os.chmod(folder, 0o555)
        try:
            return {finding["name"]: finding for finding in _json_of(spawn(COMMAND, folder, "--json"))}
        finally:
            os.chmod(folder, 0o755)
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 99; exec "$2" -c "$3" "$1" --json'
    try:
        run = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", mount, "sh", str(folder), sys.executable, COMMAND],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except FileNotFoundError:
        pytest.skip("root, and no unshare(1) to make a read-only mount with")
    out, err = run.communicate(timeout=240)
    if run.returncode == 99 or err.startswith(b"unshare"):
        pytest.skip(f"root, and no read-only mount can be made: {err.decode().strip()}")
    return {finding["name"]: finding for finding in json.loads(out)}


def _json_of(run):
    out, _ = run.communicate(timeout=240)
    return json.loads(out)


def test_a_read_only_store_can_be_read(tmp_path):
    Store.create(tmp_path / "store")
    finding = _doctor_on_read_only(tmp_path / "store")
    assert finding["write permission"]["verdict"] == "warning"
    assert "can be read" in finding["write permission"]["meaning"]
    assert finding["store"]["verdict"] == "ok"
    assert "file sync" not in finding


def test_a_read_only_folder_without_a_store_is_of_no_use(tmp_path):
    finding = _doctor_on_read_only(tmp_path)
    assert finding["write permission"]["verdict"] == "failed"


# --- each check can fail: one primitive is spoilt in this process


def _refuse(number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    return refuse


def _rename_by_copy(path, target):
    with open(path, "rb") as source:
        data = source.read()
    with open(target, "wb") as file:
        time.sleep(0.02)  # nearly all the time it is so
        file.write(data)
    os.unlink(path)


def _rename_by_removal(path, target, rename=os.rename):
    os.unlink(target)
    time.sleep(0.02)
    rename(path, target)


def _link_over(path, target):
    with open(target, "wb"), open(path, "rb"):
        pass


def _create_over(path):
    return files.File(path, os.open(path, os.O_RDWR | os.O_CREAT, 0o666))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "place", "primitive", "spoilt", "seen"),
    [
        ("lock between processes", fcntl, "flock", lambda *_: None, "two processes held one exclusive lock"),
        ("lock between processes", fcntl, "flock", _refuse(errno.ENOSYS), "Function not implemented"),
        ("lock between two opens", fcntl, "flock", fcntl.lockf, "two openings of a file in one process"),
        ("lock after a kill", SecondProcess, "kill", lambda _: None, "still locked"),
        ("rename over a file", files, "rename", _rename_by_copy, "the file was not whole in"),
        ("rename over a file", files, "rename", _rename_by_removal, "the file was missing in"),
        ("exclusive create", files, "create", _create_over, "two processes made the same name"),
        ("hard link", files, "link", _link_over, "two processes linked the same name"),
        ("hard link", files, "link", _refuse(errno.EPERM), "Operation not permitted"),
        ("file sync", files, "_sync", _refuse(errno.EIO), "Input/output error"),
        ("folder sync", os, "fsync", _refuse(errno.EIO), "Input/output error"),
        ("visibility", os, "pwrite", lambda _fd, data, _at: len(data), "not seen by the next holder"),
        ("state slots", state_file, "decode_body", lambda *_: PartitionState(next_offset=5), "made of two"),
        ("truncation", os, "ftruncate", lambda *_: None, "a cut was not seen"),
        ("file mode", files, "create", _refuse(errno.EACCES), "Permission denied"),
    ],
)
def test_each_check_can_fail(bench, monkeypatch, name, place, primitive, spoilt, seen):
    monkeypatch.setattr(checks, "RELEASE_SECONDS", 0.1)
    monkeypatch.setattr(place, primitive, spoilt)
    finding = conduct(CHECKS[name], bench)
    monkeypatch.undo()
    assert finding.verdict is Verdict.FAILED
    assert seen in finding.measured
    assert finding.meaning == CHECKS[name].bad


def test_every_check_is_among_those_that_can_fail():
    (marked,) = (mark for mark in test_each_check_can_fail.pytestmark if mark.name == "parametrize")
    assert {case[0] for case in marked.args[1]} == set(CHECKS)


def test_a_link_that_is_a_copy_is_seen(bench, monkeypatch):
    monkeypatch.setattr(os.path, "samefile", lambda *_: False)
    assert "is a copy" in conduct(CHECKS["hard link"], bench).measured


def test_a_full_disk_is_not_taken_for_a_bad_one(bench, monkeypatch):
    monkeypatch.setattr(files, "link", _refuse(errno.ENOSPC))
    finding = conduct(CHECKS["hard link"], bench)
    assert (finding.verdict, finding.measured) == (Verdict.WARNING, "No space left on device")
    assert finding.meaning.startswith("not checked")


@pytest.mark.parametrize(
    ("has_started", "limit", "said"),
    [(True, "ANSWER_SECONDS", "a call did not return"), (False, "START_SECONDS", "has not started")],
)
def test_a_second_process_that_hangs_does_not_hang_the_doctor(bench, monkeypatch, has_started, limit, said):
    if has_started:
        bench.other.ask("create_all", [])
    monkeypatch.setattr(second_process, limit, 0.2)
    os.kill(bench.other.pid, signal.SIGSTOP)
    finding = conduct(CHECKS["lock between processes"], bench)
    assert finding.verdict is Verdict.FAILED
    assert said in finding.measured


def test_two_processes_that_have_no_turn_at_once_are_no_failure(bench, monkeypatch):
    """For longer than each works while the other one does; a busy machine is like that."""
    rename, turns = files.rename, iter([0.5])

    def late(path, target):
        time.sleep(next(turns, 0))
        rename(path, target)

    monkeypatch.setattr(files, "rename", late)
    assert conduct(CHECKS["rename over a file"], bench).verdict is Verdict.OK


def test_a_second_process_that_dies_is_a_failure(bench):
    bench.other.kill()
    assert conduct(CHECKS["truncation"], bench).verdict is Verdict.FAILED


class CachingClient:
    """The other side as an NFS client: without a lock it shows a file as it was when it was locked last."""

    def __init__(self, side):
        self._side = side
        self._locked = False
        self._cache = {}

    def ask(self, operation, *arguments):
        if operation == "read" and not self._locked:
            return self._cache.get(arguments, "")
        result = self._side.ask(operation, *arguments)
        if operation == "read":
            self._cache[arguments] = result
        elif operation in ("try_lock", "unlock"):
            self._locked = operation == "try_lock" and result
        return result


def test_bytes_that_readers_never_see_are_a_failure(bench, monkeypatch):
    monkeypatch.setattr(checks, "SEEN_SECONDS", 0.05)
    finding = conduct(CHECKS["visibility"], bench._replace(other=CachingClient(bench.other)))
    assert finding.verdict is Verdict.FAILED
    assert "not seen by another process within" in finding.measured


def test_bytes_that_readers_see_late_are_a_warning(bench, monkeypatch):
    monkeypatch.setattr(checks, "_SLOW_SIGHT_MS", 0.0)
    finding = conduct(CHECKS["visibility"], bench)
    assert (finding.verdict, "NFS" in finding.meaning) == (Verdict.WARNING, True)


def test_slow_syncs_are_a_warning(bench, monkeypatch):
    monkeypatch.setattr(files, "_sync", lambda _: time.sleep(0.035))
    finding = conduct(CHECKS["file sync"], bench)
    assert (finding.verdict, finding.meaning.split(":")[0]) == (Verdict.WARNING, "slow")


def test_a_file_system_that_does_not_sync_folders_is_a_warning(bench, monkeypatch):
    monkeypatch.setattr(os, "fsync", _refuse(errno.EINVAL))
    finding = conduct(CHECKS["folder sync"], bench)
    assert (finding.verdict, finding.measured) == (Verdict.WARNING, "not supported")


@pytest.mark.parametrize(("umask", "verdict", "mode"), [(0o002, Verdict.OK, "0664"), (0o022, Verdict.WARNING, "0644")])
def test_the_mode_of_files_follows_the_umask(bench, umask, verdict, mode):
    before = os.umask(umask)
    finding = conduct(CHECKS["file mode"], bench)
    os.umask(before)
    assert (finding.verdict, finding.measured) == (verdict, mode)


# --- surroundings


@pytest.mark.parametrize(
    ("blocks", "free", "verdict"),
    [(1 << 20, 1 << 19, Verdict.OK), (1 << 20, 1 << 17, Verdict.WARNING), (0, 0, Verdict.OK)],
)
def test_free_space(monkeypatch, tmp_path, blocks, free, verdict):
    status = SimpleNamespace(f_blocks=blocks, f_bavail=free, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: status)
    assert environment.free_space(str(tmp_path)).verdict is verdict


def test_checksums_in_software_are_a_warning(monkeypatch):
    monkeypatch.setattr(environment.crc32c, "hardware_based", False)
    finding = by_name(environment.versions())["crc32c"]
    assert finding.verdict is Verdict.WARNING
    assert finding.measured.endswith(", software")


def test_pyspark_may_be_missing(monkeypatch):
    def version(package, really=importlib.metadata.version):
        if package == "pyspark":
            raise importlib.metadata.PackageNotFoundError(package)
        return really(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    finding = by_name(environment.versions())["pyspark"]
    assert (finding.verdict, finding.measured) == (Verdict.OK, "not installed")


def test_a_store_is_described(tmp_path):
    store = Store.create(tmp_path / "store")
    store.create_topic("one")
    store.create_topic("two")
    finding = environment.store(store.path)
    assert finding.verdict is Verdict.OK
    assert finding.measured == f"format version 2, cluster id {store.cluster_id}, 2 topic(s)"


@pytest.mark.parametrize(
    ("content", "seen"), [('{"version": 99}', "format version 99"), ("{", "is not a valid store description")]
)
def test_a_store_that_cannot_be_opened_is_a_failure(tmp_path, content, seen):
    (tmp_path / "store.json").write_text(content)
    finding = environment.store(str(tmp_path))
    assert finding.verdict is Verdict.FAILED
    assert seen in finding.measured


# --- mounts


MOUNTINFO = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
50 27 0:40 / /mnt/three rw,relatime shared:1 - nfs srv:/a rw,vers=3,hard,nolock,proto=tcp,local_lock=all,addr=10.0.0.1
51 27 0:41 / /mnt/four rw,relatime shared:2 master:1 - nfs4 srv:/b rw,vers=4.2,hard,local_lock=none
52 27 0:42 / /mnt/four/flock rw,relatime - nfs4 srv:/c rw,vers=4.2,hard,local_lock=flock
53 27 0:43 / /mnt/soft rw,relatime - nfs4 srv:/d rw,vers=4.2,soft,local_lock=none
54 27 0:44 / /mnt/lustre\040local rw,relatime - lustre mgs@tcp:/fs rw,localflock,lazystatfs
55 27 0:45 / /mnt/lustre rw,relatime - lustre mgs@tcp:/fs rw,flock,lazystatfs
56 27 0:46 / /mnt/none rw,relatime - lustre mgs@tcp:/fs rw,noflock
57 27 0:47 / /mnt/smb rw,relatime - cifs //srv/x rw,nobrl
58 27 0:48 / /mnt/juice rw,relatime - fuse.juicefs JuiceFS:x rw,user_id=0
59 27 0:49 / /mnt/tmp rw - tmpfs tmpfs rw
60 59 0:50 / /mnt/tmp rw - xfs /dev/vdb rw,nobarrier
61 27 0:51 / /mnt/layer rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
""".strip()


@pytest.mark.parametrize(
    ("folder", "verdict", "measured", "meaning"),
    [
        ("/home", Verdict.OK, "ext4 on /", "local file system"),
        ("/mnt/three/store", Verdict.FAILED, "nfs on /mnt/three with local_lock=all,nolock", "this host only"),
        ("/mnt/four/store", Verdict.WARNING, "nfs4 on /mnt/four", "--peer"),
        ("/mnt/fourth", Verdict.OK, "ext4 on /", "local file system"),
        ("/mnt/four/flock", Verdict.FAILED, "nfs4 on /mnt/four/flock with local_lock=flock", "this host only"),
        ("/mnt/soft", Verdict.WARNING, "nfs4 on /mnt/soft with soft", "-o hard"),
        ("/mnt/lustre local/a", Verdict.FAILED, "lustre on /mnt/lustre local with localflock", "-o flock"),
        ("/mnt/lustre", Verdict.WARNING, "lustre on /mnt/lustre", "--peer"),
        ("/mnt/none", Verdict.FAILED, "lustre on /mnt/none with noflock", "-o flock"),
        ("/mnt/smb", Verdict.FAILED, "cifs on /mnt/smb with nobrl", "this host only"),
        ("/mnt/juice", Verdict.WARNING, "fuse.juicefs on /mnt/juice", "FUSE"),
        ("/mnt/tmp", Verdict.WARNING, "xfs on /mnt/tmp with nobarrier", "power"),
        ("/mnt/layer", Verdict.WARNING, "overlay on /mnt/layer", "volume"),
    ],
)
def test_mount_options_are_judged(monkeypatch, tmp_path, folder, verdict, measured, meaning):
    listed = tmp_path / "mountinfo"
    listed.write_text(MOUNTINFO)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(mounts, "_MOUNTINFO", str(listed))
    monkeypatch.setattr(mount_options, "_RECOVER_LOST_LOCKS", str(tmp_path / "missing"))
    finding = mount_options.examine_mount(folder)
    assert (finding.verdict, finding.measured) == (verdict, measured)
    assert meaning in finding.meaning


def test_an_nfs_client_that_recovers_lost_locks_is_refused(monkeypatch, tmp_path):
    listed, parameter = tmp_path / "mountinfo", tmp_path / "recover_lost_locks"
    listed.write_text(MOUNTINFO)
    parameter.write_text("Y\n")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(mounts, "_MOUNTINFO", str(listed))
    monkeypatch.setattr(mount_options, "_RECOVER_LOST_LOCKS", str(parameter))
    finding = mount_options.examine_mount("/mnt/four")
    assert finding.verdict is Verdict.FAILED
    assert "recover_lost_locks" in finding.meaning


def test_an_unreadable_list_of_mounts_is_a_warning(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(mounts, "_MOUNTINFO", str(tmp_path / "missing"))
    assert mount_options.examine_mount("/").verdict is Verdict.WARNING


def test_the_mounts_of_macos_are_read():
    text = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "srv:/x on /Volumes/my disk (1) (nfs, nodev, nosuid, mounted by me)\nmap auto_home on /home (autofs)\n"
    )
    root, shared, _ = mounts.parse_mount_command(text)
    assert (root.point, root.type, "sealed" in root.options) == ("/", "apfs", True)
    assert (shared.point, shared.type) == ("/Volumes/my disk (1)", "nfs")
    assert mount_options.assess(shared).verdict is Verdict.WARNING


# --- two runs


def _two_runs(first, second):
    findings = []
    for run in (first, second):
        out, err = run.communicate(timeout=400)
        assert b"Traceback" not in err, err
        findings.append({finding["name"]: finding for finding in json.loads(out)})
    return findings


@pytest.mark.slow
def test_two_runs_test_what_is_between_them(tmp_path):
    runs = [spawn(QUICK, tmp_path, "--peer", "--json") for _ in range(2)]
    here, there = _two_runs(*runs)
    assert [run.returncode for run in runs] == [0, 0]
    for name in ("second run", "lock between hosts", "visibility between hosts"):
        assert here[name] == there[name]
    assert here["second run"]["verdict"] == "warning"  # one machine
    assert all(f"(process {run.pid})" in here["second run"]["measured"] for run in runs)
    assert here["lock between hosts"]["verdict"] == "ok"
    # On a busy machine they are slow to see something, which is a warning.
    assert here["visibility between hosts"]["verdict"] != "failed"
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_host_whose_locks_do_not_reach_the_other_is_found_out(tmp_path):
    # Locks of its own, as on NFS with nolock: it sees none of the other host's.
    deaf = f"import fcntl; fcntl.flock = lambda *_: None; {QUICK}"
    runs = [spawn(QUICK, tmp_path, "--peer", "--json"), spawn(deaf, tmp_path, "--peer", "--json")]
    here, there = _two_runs(*runs)
    assert here["lock between processes"]["verdict"] == "ok"
    assert here["lock between hosts"] == there["lock between hosts"]
    assert here["lock between hosts"]["verdict"] == "failed"
    assert "two processes held one exclusive lock at once" in here["lock between hosts"]["measured"]
    assert [run.returncode for run in runs] == [1, 1]


def test_a_second_run_on_another_machine_is_recognized():
    def introduction(boot):
        return {"host": "same-name", "pid": 1, "boot": boot}

    assert peer._second_run(introduction("01" * 8), introduction("02" * 8)).verdict is Verdict.OK
    assert peer._second_run(introduction("01" * 8), introduction("01" * 8)).verdict is Verdict.WARNING
    assert peer._second_run(introduction("00" * 8), introduction("00" * 8)).verdict is Verdict.WARNING


def test_no_peer_comes_and_leftovers_are_not_taken_for_one(tmp_path):
    place = str(tmp_path / ".pylog-doctor-peer")
    os.mkdir(place)
    peer._Line(place, "0" * 16)._send({"beat": 7, "introduction": {}})
    (finding,) = peer.examine_with_peer(str(tmp_path), wait=1.0)
    assert (finding.verdict, finding.name) == (Verdict.FAILED, "second run")
    assert "no second run" in finding.measured
    assert os.listdir(tmp_path) == []


def test_a_second_run_that_gives_up_is_noticed(tmp_path):
    program = """
        import sys
        from pyspark_log.storage.maintenance.doctor import peer
        def leave(*_): raise OSError("had enough")
        peer._lead = peer._follow = leave
        print(peer.examine_with_peer(sys.argv[1], wait=120))
    """
    run = spawn(textwrap.dedent(program), tmp_path)
    (finding,) = peer.examine_with_peer(str(tmp_path), wait=120)
    out, _ = run.communicate(timeout=240)
    assert b"had enough" in out
    assert "the second run has given up" in finding.measured


def test_a_message_that_is_being_written_is_not_read(tmp_path):
    line = peer._Line(str(tmp_path), "a")
    line._send({"beat": 1, "introduction": {}})
    whole = (tmp_path / "a.mailbox").read_bytes()
    assert line._receive("a") == {"beat": 1, "introduction": {}, "with": ""}
    for torn in (b"", whole[:5], whole[:-1], whole[:-1] + b"!"):
        (tmp_path / "a.mailbox").write_bytes(torn)
        assert line._receive("a") is None
