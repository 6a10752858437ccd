"""Tasks, workers, executors and drivers fail during writes: in the end all output is there, once and in order.

tests/spark/failing_sinks.py makes them fail where it is said. How a commit survives a stop before any of its changes to
files is shown by test_commit_steps.py.
"""

import multiprocessing
import os
import re
import shutil
import signal
import socket
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from drivers import Driver, copy_events, make_session
from failing_sinks import STEPS, register
from spark_tools import fails, fill, values_in

from pyspark_log import Store
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.publish.staging.staged_file import job_of

TOPIC = "t"
# Of each task's output a file is made.
COUNT = 40_000

on_linux = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc, which Linux has")


@pytest.fixture(scope="module")
def failing(spark):
    """The session of all tests, with the sink that fails."""
    register(spark)
    return spark


@pytest.fixture
def target(store):
    """A store with a topic to write to."""
    store.create_topic(TOPIC, 2)
    return store


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def wanted(count):
    """What the partitions hold after `write`."""
    return [[f"{number:020}" for number in range(partition, count, 2)] for partition in range(2)]


def write(spark, path, fault, marks, count, **options):
    """Writes the even numbers to partition 0, the odd ones to 1; in two tasks, each with one half of the range."""
    rows = spark.range(0, count, 1, 2).selectExpr("lpad(id, 20, '0') value", "int(id % 2) partition")
    options = {"topic": TOPIC, "fault": fault, "marks": str(marks), **options}
    rows.write.format("pylog_failing").mode("append").options(**options).save(path)


def staged_files(store):
    folder = Path(store.path, "staging")
    return list(folder.iterdir()) if folder.exists() else []


def sweep(store):
    """What the janitor leaves when the time of all that was staged has come."""
    for path in staged_files(store):
        os.utime(path, (0, 0))
    janitor.sweep_staging(store)
    return staged_files(store)


# ---- one process of a local session


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("task fails when it has staged", "this attempt fails"),
        ("worker killed when it has staged", "exited unexpectedly"),
    ],
)
def test_a_batch_write_that_fails_leaves_nothing_and_can_be_repeated(failing, target, marks, fault, error):
    with fails(error):
        write(failing, target.path, fault, marks, COUNT)
    assert values_in(target, TOPIC) == [[], []]
    (owner,) = {job_of(path.name).owner for path in staged_files(target)}
    # Not a Python process, which Spark ends and restarts beside the driver.
    assert Path(f"/proc/{owner.number}/comm").read_text() == "java\n"
    assert not owner.is_dead()
    write(failing, target.path, fault, marks, COUNT)
    assert values_in(target, TOPIC) == wanted(COUNT)
    assert sweep(target) == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_named_batch_write_killed_in_its_commit_is_repeated(failing, target, marks, step):
    fault, name = f"worker killed before {step}", {"publishId": "nightly", "publishNumber": 20261121}
    with fails("exited unexpectedly"):
        write(failing, target.path, fault, marks, 400, **name)
    write(failing, target.path, fault, marks, 400, **name)
    assert values_in(target, TOPIC) == wanted(400)
    assert sweep(target) == []


# ---- a cluster


@pytest.fixture(scope="module")
def on_cluster(cluster):
    """Runs functions in a driver of the cluster, which tries again what fails."""
    settings = {
        "spark.cores.max": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "200ms",
    }
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(start_session, cluster.master, settings).result()
        yield lambda function, *arguments: pool.submit(function, *arguments).result()
        pool.submit(stop_session).result()


def start_session(master, settings):
    global session  # noqa: PLW0603  (what the functions use that are called in this process later)
    session = make_session(master, **settings)


def stop_session():
    session.stop()


def write_there(*arguments, **options):
    write(session, *arguments, **options)


tried_again = pytest.mark.parametrize(
    "fault",
    [
        "task fails when it has staged",
        "worker killed while it stages",
        "worker killed when it has staged",
        "two attempts at once",
        "executor killed when a task has staged",
    ],
)


@on_linux
@pytest.mark.slow
@pytest.mark.long
@tried_again
def test_a_task_that_is_tried_again_on_a_cluster_is_published_once(on_cluster, target, marks, fault):
    on_cluster(write_there, target.path, fault, marks, COUNT)
    happened = {path.name for path in marks.iterdir()}
    assert happened == ({"attempt 0", "attempt 1"} if fault == "two attempts at once" else {"struck"})
    assert values_in(target, TOPIC) == wanted(COUNT)
    assert sweep(target) == []


@on_linux
@pytest.mark.slow
@pytest.mark.long
@tried_again
def test_a_task_that_is_tried_again_is_published_once_in_an_object_store(
    on_cluster, object_url, object_server, marks, fault
):
    store = Store.create(object_url)
    store.create_topic(TOPIC, 2)
    options = {f"storage.{name}": value for name, value in object_server.options.items()}
    on_cluster(partial(write_there, **options), store.path, fault, marks, COUNT)
    happened = {path.name for path in marks.iterdir()}
    assert happened == ({"attempt 0", "attempt 1"} if fault == "two attempts at once" else {"struck"})
    assert values_in(store, TOPIC) == wanted(COUNT)
    # What the attempts that did not count have left is deleted with the other staged output of dead processes.
    assert len(list(store.log.objects.list("log"))) == 2


# ---- drivers


def fill_events(store, start, count):
    fill(store, "events", range(start, start + count, 2), range(start + 1, start + count, 2))


def catch_up(spark, store, checkpoint):
    copy_events(spark, store.path, checkpoint, TOPIC).trigger(availableNow=True).start().awaitTermination()


@on_linux
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("step", ["the decision is synced", "the output is synced"])
def test_a_killed_driver_is_made_good_by_the_next_one(failing, target, marks, tmp_path, step):
    fill_events(target, 0, 300)
    fault, checkpoint = f"driver killed before {step}", tmp_path / "checkpoint"
    with Driver(target, checkpoint, TOPIC, fault, marks, tmp_path / "log") as driver:
        assert driver.process.wait(400) == -signal.SIGKILL, driver.said()
    catch_up(failing, target, checkpoint)
    assert values_in(target, TOPIC) == values_in(target, "events")


@on_linux
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("successor", ["on the checkpoint", "on a copy of the checkpoint"])
def test_a_driver_that_comes_back_is_fenced_by_its_successor(failing, target, marks, tmp_path, successor):
    fill_events(target, 0, 400)
    checkpoint = tmp_path / "checkpoint"
    with Driver(target, checkpoint, TOPIC, "driver stopped in its third batch", marks, tmp_path / "log") as driver:
        driver.wait_until_stopped()
        assert (marks / "struck").exists(), driver.said()
        if successor == "on a copy of the checkpoint":
            checkpoint = shutil.copytree(checkpoint, tmp_path / "copy")
        catch_up(failing, target, checkpoint)
        assert values_in(target, TOPIC) == values_in(target, "events")
        fill_events(target, 400, 10)
        driver.resume()
        assert driver.process.wait(400) == 0, driver.said()
        holder = rf"\(process \d+ on {re.escape(socket.gethostname())}, since \d{{4}}-\d\d-\d\dT.*\)"
        assert re.search(rf"PYLOG_PUBLISHER_FENCED.* was replaced by run .* {holder}", driver.said())
    catch_up(failing, target, checkpoint)
    assert values_in(target, TOPIC) == values_in(target, "events")
