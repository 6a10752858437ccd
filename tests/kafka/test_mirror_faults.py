"""`pylog mirror` while brokers are killed and leaders move, after unclean elections, and killed itself."""

import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import mirror_tools as t
import pytest
from kafka_cluster import Cluster
from written import read

from pyspark_log import Store
from pyspark_log.errors import PartitionOwnedError
from pyspark_log.storage.catalog.kafka_files import read_epochs
from tests.store_tools import faults
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

SIZE = 5000
ALL = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


@pytest.fixture(scope="module")
def running(kafka, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def cluster(running):
    """All of its brokers run, also after a test that has failed."""
    yield running
    for number in running.brokers:
        if running[number].process.poll() is None and not running[number].is_running():
            running[number].resume()
    running.start()


@contextlib.contextmanager
def writing(cluster, topic, seed, kind="plain", *, pause=0.02):
    """A producer writes during the block: a plain one, a numbered one, or one with transactions."""
    options = {"numbered": {"enable_idempotence": True}, "ended": {"transactional_id": f"{topic}-{seed}"}}
    writer = t.Writer(cluster, compression_type=t.CODECS[seed % len(t.CODECS)], **options.get(kind, {}))
    partitions, chance, stopping = cluster.partitions_of(topic), random.Random(seed), threading.Event()

    def work():
        while not stopping.wait(pause):
            sent = t.messages(chance.randrange(2**30), 20, partitions, SIZE)
            if kind == "ended":
                writer.transact(topic, sent, commit=chance.random() < 0.6)
            else:
                writer.send(topic, sent)
                writer.flush()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield
        finally:
            stopping.set()
        working.result()


def has_come(cluster, topic, count=200):
    """Waits until each partition has got as many records more, while another thread writes."""
    begin = [t.end_of(cluster, topic, number) for number in range(cluster.partitions_of(topic))]
    for number, end in enumerate(begin):
        wait_until(lambda number=number, end=end: t.end_of(cluster, topic, number) >= end + count, f"{topic} grows")


def in_sync(cluster, topic, assignment=ALL):
    for number, replicas in enumerate(assignment):
        cluster.wait_for_isr(topic, number, set(replicas))


def same_bytes(cluster, path, topic):
    """Also where replicas have other segments, as they append what they fetch at once."""
    t.assert_mirrored(cluster, path, topic, same_segments=False)
    for partition in range(cluster.partitions_of(topic)):
        name = "leader-epoch-checkpoint"
        ours = read_epochs(str(t.of_mirror(path, topic, partition) / name))
        # A leader notes its epoch before it has a batch of it.
        assert set(ours) <= set(read_epochs(str(t.of_leader(cluster, topic, partition) / name)))
    assert faults(path) == []


# --- leaders move -----------------------------------------------------------------------------------


@pytest.mark.parametrize("brokers", [(1,), pytest.param((1, 2), marks=pytest.mark.long)])
def test_a_broker_is_killed(cluster, tmp_path, brokers):
    topic, path = f"killed-{len(brokers)}", tmp_path / "store"
    t.create(cluster, topic, ALL)
    with writing(cluster, topic, 1, "numbered"), t.mirroring(cluster, path, tmp_path, "--topics", topic):
        has_come(cluster, topic)
        for number in brokers:
            cluster[number].kill()
            for partition in range(3):
                cluster.wait_for_leader(topic, partition)
            has_come(cluster, topic)
            cluster[number].start()
            in_sync(cluster, topic)
        has_come(cluster, topic)
    t.mirror_once(cluster, path, tmp_path, "--topics", topic)
    same_bytes(cluster, path, topic)


@pytest.mark.long
def test_leaders_are_moved(cluster, tmp_path):
    """By elections and reassignments, to brokers that had no replica, and with transactions open."""
    t.create(cluster, "moved", [[1, 2], [2, 3]])
    path = tmp_path / "store"
    with (
        writing(cluster, "moved", 2, "ended"), writing(cluster, "moved", 3),
        t.mirroring(cluster, path, tmp_path, "--topics", "moved"),
    ):  # fmt: skip
        has_come(cluster, "moved")
        for replicas in ([2, 1], [3, 2], [1, 3]):
            cluster.reassign("moved", 0, replicas)
            cluster.elect("moved", 0)
            wait_until(lambda leader=replicas[0]: cluster.leader_of("moved", 0) == leader, "the leader is moved")
            has_come(cluster, "moved")
    t.settle(cluster, "moved")
    t.mirror_once(cluster, path, tmp_path, "--topics", "moved")
    same_bytes(cluster, path, "moved")


@pytest.mark.long
def test_a_leader_that_hangs(cluster, tmp_path):
    """It answers nothing while another one leads, and is a follower when it is back."""
    t.create(cluster, "hung", [[3, 1, 2], [1, 2, 3]])
    path = tmp_path / "store"
    with t.mirroring(cluster, path, tmp_path, "--topics", "hung"):
        t.write(cluster, "hung", t.messages(1, 100, 2, SIZE))
        t.wait_for_end(cluster, path, "hung")
        cluster[3].pause()
        assert cluster.wait_for_leader("hung", 0) in {1, 2}
        t.write(cluster, "hung", t.messages(2, 100, 2, SIZE))
        t.wait_for_end(cluster, path, "hung")
        cluster[3].resume()
        in_sync(cluster, "hung", [[1, 2, 3]] * 2)
        cluster.elect("hung", 0)
        cluster.wait_for_leader("hung", 0, other_than=[1, 2])
        t.write(cluster, "hung", t.messages(3, 100, 2, SIZE))
        t.wait_for_end(cluster, path, "hung")
    same_bytes(cluster, path, "hung")


@pytest.mark.long
def test_no_broker_for_a_while(cluster, tmp_path):
    t.create(cluster, "away", ALL)
    path = tmp_path / "store"
    with t.mirroring(cluster, path, tmp_path, "--topics", "away") as run:
        t.write(cluster, "away", t.messages(1, 100, 3, SIZE))
        t.wait_for_end(cluster, path, "away")
        for number in cluster.brokers:
            cluster[number].kill()
        run.wait_for("the source does not answer")
        cluster.start()
        in_sync(cluster, "away")
        t.write(cluster, "away", t.messages(2, 100, 3, SIZE))
        t.wait_for_end(cluster, path, "away")
    same_bytes(cluster, path, "away")


@pytest.mark.long
def test_a_partition_without_a_leader(cluster, tmp_path):
    """The others are mirrored meanwhile."""
    t.create(cluster, "leaderless", [[1], [3]])
    path = tmp_path / "store"
    t.write(cluster, "leaderless", t.messages(1, 100, 2, SIZE))
    cluster[3].kill()
    wait_until(lambda: cluster.leader_of("leaderless", 1) is None, "nothing leads the partition")
    with t.mirroring(cluster, path, tmp_path, "--topics", "leaderless"):
        end = t.end_of(cluster, "leaderless", 0)
        wait_until(lambda: t.has(path, "leaderless", 0, end), "the other partition is mirrored")
        for partition in range(2):
            with pytest.raises(PartitionOwnedError):
                Store.open(path).append("leaderless", [{"value": "ours"}], partition=partition)
        cluster[3].start()
        t.wait_for_end(cluster, path, "leaderless")
    t.assert_mirrored(cluster, path, "leaderless")


# --- unclean elections --------------------------------------------------------------------------------


def diverge(cluster, topic, lost, new, *, mirror):
    """Lets a replica lead that lacks the last records; calls `mirror` before that, when they are there.

    `lost`: how many messages are lost, `new`: how many come after them.
    """
    t.create(cluster, topic, [[1, 2], [3, 1]], unclean_leader_election_enable="true", min_insync_replicas=1)
    t.write(cluster, topic, t.messages(1, 100, 2, SIZE))
    cluster.wait_for_isr(topic, 0, {1, 2})
    t.settle(cluster, topic)
    cluster[2].kill()
    cluster.wait_for_isr(topic, 0, {1})
    t.write(cluster, topic, t.messages(2, lost, 2, SIZE))
    mirror()
    cluster[1].kill()
    cluster[2].start()
    assert cluster.wait_for_leader(topic, 0) == 2
    if new:
        t.write(cluster, topic, t.messages(3, new, 2, SIZE))
    cluster[1].start()
    cluster.wait_for_isr(topic, 0, {1, 2})


def files(path):
    """All segment files of a store's first partitions."""
    return {file: file.read_bytes() for file in path.rglob("*.log") if file.parent.name.endswith("-0")}


@pytest.mark.long
@pytest.mark.parametrize("new", [60, *(pytest.param(new, marks=pytest.mark.long) for new in (0, 20, 200))])
def test_unclean_elections(cluster, tmp_path, new):
    topic, path = f"unclean-{new}", tmp_path / "store"
    diverge(cluster, topic, 60, new, mirror=lambda: t.mirror_once(cluster, path, tmp_path, "--topics", topic))
    before, end = files(path), Store.open(path).latest_offset(topic, 0)
    done, _ = t.mirror_once(cluster, path, tmp_path, "--topics", topic, status=1)
    assert "unclean" in done[f"{topic}-0"]["error"]
    assert files(path) == before
    assert Store.open(path).latest_offset(topic, 0) == end
    # The other partition is not concerned.
    assert done[f"{topic}-1"]["error"] is None
    assert done[f"{topic}-1"]["log_end"] == t.end_of(cluster, topic, 1)
    done, log = t.mirror_once(cluster, path, tmp_path, "--topics", topic, "--follow-truncation")
    assert "truncated" in log
    assert done[f"{topic}-0"]["log_end"] == t.end_of(cluster, topic, 0)
    same_bytes(cluster, path, topic)
    t.write(cluster, topic, t.messages(4, 200, 2, SIZE))
    t.mirror_once(cluster, path, tmp_path, "--topics", topic)
    same_bytes(cluster, path, topic)


@pytest.mark.long
@pytest.mark.parametrize("follow", [pytest.param(False, marks=pytest.mark.long), True])
def test_an_unclean_election_while_it_is_mirrored(cluster, tmp_path, follow):
    topic, path = f"unclean-live-{follow}", tmp_path / "store"
    arguments = ("--topics", topic, *(["--follow-truncation"] if follow else []))
    with contextlib.ExitStack() as stack:
        run = t.Mirror(cluster, path, tmp_path, *arguments)
        stack.callback(run.kill)
        diverge(cluster, topic, 60, 60, mirror=lambda: t.wait_for_end(cluster, path, topic))
        run.wait_for("truncated" if follow else "nothing was changed")
        t.write(cluster, topic, t.messages(4, 200, 2, SIZE))
        ends = {number: t.end_of(cluster, topic, number) for number in range(2)}
        for number in range(2) if follow else (1,):
            wait_until(
                lambda number=number: Store.open(path).latest_offset(topic, number) == ends[number],
                f"{topic}-{number} is mirrored on",
            )
        assert run.stop() == (0 if follow else 1)
        assert "Traceback" not in run.log()
    if follow:
        same_bytes(cluster, path, topic)
    else:
        assert faults(path) == []


# --- topics that are deleted ----------------------------------------------------------------------------


@pytest.mark.long
def test_a_topic_that_is_created_again_while_it_is_mirrored(cluster, tmp_path):
    t.create(cluster, "replaced", [[1, 2]])
    t.create(cluster, "replaced-beside", [[2]])
    path = tmp_path / "store"
    for topic in ("replaced", "replaced-beside"):
        t.write(cluster, topic, t.messages(1, 100, 1, SIZE))
    run = t.Mirror(cluster, path, tmp_path, "--topics", "replaced.*")
    with contextlib.ExitStack() as stack:
        stack.callback(run.kill)
        t.wait_for_end(cluster, path, "replaced", "replaced-beside")
        before = t.whole(t.of_mirror(path, "replaced"))
        cluster.delete_topic("replaced")
        t.create(cluster, "replaced", [[1, 2]])
        for topic in ("replaced", "replaced-beside"):
            t.write(cluster, topic, t.messages(2, 200, 1, SIZE))
        run.wait_for(cluster.topic_id("replaced"))
        t.wait_for_end(cluster, path, "replaced-beside")
        assert run.stop() == 1
    assert "Traceback" not in run.log()
    assert t.whole(t.of_mirror(path, "replaced")) == before
    t.assert_mirrored(cluster, path, "replaced-beside")


@pytest.mark.long
def test_a_topic_that_is_deleted_while_it_is_mirrored(cluster, tmp_path):
    t.create(cluster, "gone", [[1, 2]])
    path = tmp_path / "store"
    t.write(cluster, "gone", t.messages(1, 100, 1, SIZE))
    run = t.Mirror(cluster, path, tmp_path, "--topics", "gone|stays")
    with contextlib.ExitStack() as stack:
        stack.callback(run.kill)
        t.wait_for_end(cluster, path, "gone")
        before = t.whole(t.of_leader(cluster, "gone"))
        cluster.delete_topic("gone")
        run.wait_for("no topic 'gone' any more")
        assert run.stop() == 1
    assert "Traceback" not in run.log()
    assert t.whole(t.of_mirror(path, "gone")) == before
    assert faults(path) == []


# --- mirrors that are killed ----------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.long)])
def test_a_mirror_that_is_killed(cluster, tmp_path, kills):
    """At moments by chance, while producers of all kinds write. Leaders do not move, so segments are theirs."""
    topic, path, chance = f"stopped-{kills}", tmp_path / "store", random.Random(kills)
    t.create(cluster, topic, [[1], [2], [3]])
    with contextlib.ExitStack() as stack:
        for seed, kind in enumerate(("plain", "numbered", "ended")):
            stack.enter_context(writing(cluster, topic, seed, kind, pause=0.1))
        for number in range(kills):
            run = t.Mirror(cluster, path, tmp_path, "--topics", topic)
            # What the first one has mirrored is there from then on.
            wait_until(lambda: t.has(path, topic, 0, 1), "the mirror has a record")
            run.kill_after(chance.uniform(0.3, 1.5))
            assert "Traceback" not in run.log(), run.log()
            if number % 4 == 3:
                is_prefix(cluster, path, topic)
    t.settle(cluster, topic)
    t.mirror_and_compare(cluster, path, tmp_path, topic)


def is_prefix(cluster, path, topic):
    """What a store has is what the cluster has, up to some batch."""
    for partition in range(cluster.partitions_of(topic)):
        ours = read(Store.open(path), topic, partition)[0]
        assert t.consumed(cluster, topic)[partition][0][: len(ours)] == ours


@pytest.mark.long
def test_two_mirrors_into_one_store(cluster, tmp_path):
    """The second one may give up, but harms nothing."""
    t.create(cluster, "doubled", [[1], [2]])
    path, second = tmp_path / "store", tmp_path / "second"
    second.mkdir()
    with writing(cluster, "doubled", 5):
        runs = [t.Mirror(cluster, path, folder, "--topics", "doubled") for folder in (tmp_path, second)]
        try:
            has_come(cluster, "doubled", 400)
            for run in runs:
                run.stop()
                assert "Traceback" not in run.log(), run.log()
        finally:
            for run in runs:
                run.kill()
    t.mirror_and_compare(cluster, path, tmp_path, "doubled")
