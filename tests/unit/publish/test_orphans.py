"""What a dead process has staged is deleted within minutes; what may still be published stays."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.errors import StagedOutputError
from pyspark_log.storage.fs.processes import Process
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan, staged_writer
from pyspark_log.storage.publish.staging.staged_file import Job, is_staged_name, job_of
from pyspark_log.storage.store import Store
from tests.processes import started, wait_for_the_end
from tests.store_tools import decided_only, new_store, publish

pytestmark = pytest.mark.skipif(not Process.here().birth, reason="this system does not tell processes apart")

MINUTE = 60
# Opens a store, stages a value in a file, and says so; then it waits until it is ended.
_STAGE = """
import sys
import pyarrow as pa
from pyspark_log.storage.publish.staging import staged_writer
from pyspark_log.storage.store import Store
staged_writer.INLINE_LIMIT = 0
store = Store.open(sys.argv[1])
writer = staged_writer.StagedWriter(store.logs, staged_writer.StagingPlan.make(store.logs, ["t"]))
writer.append("t", pa.record_batch({"value": [b"staged"]}))
print(writer.finish()[0].file, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(clock, tmp_path, monkeypatch):
    monkeypatch.setattr("pyspark_log.storage.publish.staging.staged_writer.INLINE_LIMIT", 0)
    store = new_store(tmp_path)
    return store


def _stage(connection, path):
    """Opens a store, stages a value in a file, and says so; then it waits until it is ended."""
    staged_writer.INLINE_LIMIT = 0
    connection.send(stage(Store.open(path))[0].file)
    wait_for_the_end(connection)


@contextlib.contextmanager
def driver(store):
    """Another process that stages, until the block ends; and the name of its file."""
    with started(_stage, store.path) as (process, name):
        assert is_staged_name(name)
        yield process, name
        process.kill()


def killed_driver(store):
    """The number of such a process, which has been killed, and the name of its file."""
    with driver(store) as (process, name):
        return process.pid, name


def stage(store, owner=None):
    writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["t"], owner=owner))
    writer.append("t", pa.record_batch({"value": [b"staged"]}))
    return writer.finish()


def age(store, minutes):
    for path in Path(store.path, "staging").iterdir():
        os.utime(path, (store.logs.clock() / 1000 - minutes * MINUTE,) * 2)


def left(store):
    janitor.sweep_staging(Store.open(store.path))
    return sorted(name for name in os.listdir(f"{store.path}/staging") if not name.endswith(".manifest"))


def test_what_a_killed_process_has_staged_goes_after_minutes(store):
    with driver(store) as (_, name):
        age(store, 11)
        assert left(store) == [name]
    age(store, 9)
    assert left(store) == [name]
    age(store, 11)
    assert left(store) == []


def test_the_time_is_a_setting_and_never_more_than_that_of_others(tmp_path, store):
    for orphans, all_others, minutes in ((3_600_000, 604_800_000, 61), (604_800_000, 3_600_000, 61)):
        settings = {"staged.output.orphan.expiration.ms": str(orphans), "staged.output.expiration.ms": str(all_others)}
        other = Store.create(tmp_path / f"{orphans}", settings)
        other.create_topic("t", 1)
        _, name = killed_driver(other)
        age(other, 59)
        assert left(other) == [name]
        age(other, minutes)
        assert left(other) == []


def test_a_live_process_loses_nothing_before_a_week(store):
    parts = stage(store)
    age(store, 6.9 * 24 * 60)
    assert left(store) == [parts[0].file]
    publish(store.decisions, "q", 0, parts)


def test_a_number_that_was_given_out_again_is_not_the_dead_process(store):
    """The files of the process that had the number before go, those of the process that has it now stay."""
    here = Process.here()
    machine, _, start = here.birth.partition("-")
    before = Process(here.number, f"{machine}-{int(start, 16) - 1:x}")
    gone, stays = stage(store, before), stage(store, here)
    age(store, 11)
    assert gone[0].file != stays[0].file
    assert left(store) == [stays[0].file]


@pytest.mark.parametrize("birth", ["", f"{'0' * 16}-1"])
def test_a_process_on_another_host_is_never_known_to_be_dead(store, birth):
    """One of another host, of another boot, or of a container; or of a system that does not say."""
    number, _ = killed_driver(store)
    parts = stage(store, Process(number, birth))
    age(store, 11)
    assert left(store) == [parts[0].file]


@pytest.mark.slow
def test_containers_do_not_judge_each_others_processes(store):
    """The same host and boot, and numbers of their own."""
    space = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if not shutil.which(space[0]) or subprocess.run([*space, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may make no namespace of process ids")
    command = [*space, sys.executable, "-c", _STAGE, store.path]
    inside = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    of_inside = inside.stdout.readline().strip()
    assert is_staged_name(of_inside)
    with driver(store) as (_, of_outside):
        births = {job_of(name).owner.birth.partition("-")[0] for name in (of_inside, of_outside)}
        assert len(births) == 2
        age(store, 11)
        sweep = (
            "import sys; from pyspark_log.storage.maintenance import janitor; "
            "from pyspark_log.storage.store import Store; print(janitor.sweep_staging(Store.open(sys.argv[1])))"
        )
        command = [*space, sys.executable, "-c", sweep, store.path]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert run.stdout == "0\n"
        inside.kill()
        inside.communicate()
    assert left(store) == [of_inside]


def test_what_a_dead_process_has_decided_stays_until_it_is_applied(store):
    _, name = killed_driver(store)
    parts = stage(store, job_of(name).owner)
    with decided_only():
        publish(store.decisions, "q", 0, parts)
    age(store, 60)
    assert left(store) == [parts[0].file]
    help_apply(store.decisions)
    assert left(store) == []
    assert [value for batch in store.read("t", 0) for value in batch["value"].to_pylist()] == [b"staged"]


def test_orphan_tasks_keep_their_job_until_they_write_no_more(store):
    _, name = killed_driver(store)
    plan = StagingPlan.make(store.logs, ["t"], owner=job_of(name).owner)
    task = StagedWriter(store.logs, plan)
    task.append("t", pa.record_batch({"value": [b"first"]}))
    task.finish()
    age(store, 11)
    late = StagedWriter(store.logs, plan)
    late.append("t", pa.record_batch({"value": [b"late"]}))
    (part,) = late.finish()
    assert part.file in left(store)
    assert len(left(store)) == 2
    age(store, 11)
    assert left(store) == []
    with pytest.raises(StagedOutputError, match="is missing"):
        publish(store.decisions, "q", 0, [part])


def test_verify_reports_whether_its_process_runs(store):
    number, _ = killed_driver(store)
    stage(store)
    told = [finding.what for finding in verify(store.path).findings]
    assert any(f"process {number} of this host, which runs no more" in message for message in told)
    assert any(f"process {os.getpid()} of this host, which runs" in message for message in told)


def test_names_contain_the_job_and_older_ones_still_do():
    job = Job.new()
    assert job_of(job.new_name()) == job
    assert job_of(f"a.b.7.0000000f.{'0' * 24}.staged") == Job("a.b", Process(7), "0000000f")
    assert job_of(f"{'0' * 32}.staged") is None
    assert not is_staged_name(f"a.7.{'0' * 16}-/.0000000f.{'0' * 24}.staged")


# ---- whose job it is when Spark plans it

_DAEMON = """
import os, sys
sys.modules["__main__"].__spec__ = type("Spec", (), {"name": "pyspark.daemon"})
from pyspark_log.spark_connector.writing.writer import driver_process
if sys.argv[1] == "forked":
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
print(driver_process().number, flush=True)
"""


@pytest.mark.parametrize("between", ["", "sh -c 'true; \"$@\"; true' wrapper "], ids=["python", "a script"])
@pytest.mark.parametrize("how", ["forked", "started"])
def test_a_process_that_spark_started_plans_for_the_jvm(tmp_path, how, between):
    """Here the JVM is a shell of the name of one; a script may take the place of Python."""
    java = shutil.copy(os.path.realpath(shutil.which("sh")), tmp_path / "java")
    (tmp_path / "daemon.py").write_text(_DAEMON)
    script = f"echo $$; {between}{sys.executable} {tmp_path}/daemon.py {how}; true"
    shell = subprocess.run([java, "-c", script], capture_output=True, text=True, check=True)
    jvm, told = shell.stdout.split()
    assert jvm == told


def test_without_a_jvm_no_process_is_taken_for_dead(tmp_path):
    (tmp_path / "daemon.py").write_text(_DAEMON.replace("driver_process().number", "driver_process()"))
    command = [sys.executable, tmp_path / "daemon.py", "started"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip().endswith("birth='')")
