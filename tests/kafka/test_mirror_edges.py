"""`pylog mirror` where Kafka has special cases: full indexes, huge batches, quotas, gaps, two versions."""

import random

import confluent_kafka
import mirror_tools as t
import pytest
from kafka_cluster import Cluster
from kafka_tools import NEWEST, OLDER, PATIENCE, STEADY
from written import NOW, read

from pyspark_log import Store
from pyspark_log.storage.catalog.kafka_files import read_epochs
from pyspark_log.types import READ_COMMITTED
from tests.server_tools import served
from tests.store_tools import faults
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(kafka, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=STEADY) as found:
        yield found


def timed(seed, count, *, size=300, step=1000, disorder=0):
    """Messages whose times grow by up to `step` ms each, but for a disorder of as many ms."""
    chance, now, made = random.Random(seed), NOW, []
    for one in t.messages(seed, count, size=size):
        now += chance.randrange(step)
        made.append(one._replace(timestamp=now - (chance.randrange(disorder) if disorder else 0)))
    return made


# --- where segments begin ----------------------------------------------------------------------------


@pytest.mark.parametrize("disorder", [0, 5_000_000])
def test_segments_that_end_with_a_full_index(cluster, tmp_path, disorder):
    topic = f"indexed-{disorder}"
    t.create(cluster, topic, segment_index_bytes=400, index_interval_bytes=100)
    for seed in range(3):
        t.write(cluster, topic, timed(seed, 1500, disorder=disorder), batch_num_messages=3, linger_ms=0)
        t.mirror_once(cluster, tmp_path / "store", tmp_path, "--topics", topic)
    assert len(t.segments(t.of_leader(cluster, topic))) > 10
    t.assert_mirrored(cluster, tmp_path / "store", topic)
    assert faults(tmp_path / "store") == []


def test_segments_by_time_and_size(cluster, tmp_path):
    t.create(cluster, "timed", segment_ms=1_800_000)
    for seed in range(3):
        t.write(cluster, "timed", timed(seed, 1500, size=2000, step=10_000, disorder=600_000))
        t.mirror_once(cluster, tmp_path / "store", tmp_path, "--topics", "timed")
    assert len(t.segments(t.of_leader(cluster, "timed"))) > 10
    t.assert_mirrored(cluster, tmp_path / "store", "timed")


def test_small_segments_of_the_newest_kafka(cluster, tmp_path):
    """Its topics can have segments below 1 MiB by a config that it keeps for its own tests."""
    t.create(cluster, "internal", internal_segment_bytes=20_000)
    t.write(cluster, "internal", t.messages(1, 1000))
    t.mirror_once(cluster, tmp_path / "store", tmp_path, "--topics", "internal")
    assert len(t.segments(t.of_leader(cluster, "internal"))) > 10
    assert t.whole(t.of_mirror(tmp_path / "store", "internal")) == t.whole(t.of_leader(cluster, "internal"))


def test_configs_that_change_between_runs(cluster, tmp_path):
    """Segments begin by the configs of the moment at which their batches were written."""
    t.create(cluster, "resized")
    describe = ("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "resized")
    for seed, size in enumerate((2**20, 3 * 2**20, 2**20)):
        cluster.alter_configs("resized", {"segment.bytes": size})
        described = cluster.run(*describe)
        assert f"segment.bytes={size} " in described
        t.write(cluster, "resized", t.messages(seed, 800, size=5000))
        t.mirror_and_compare(cluster, tmp_path / "store", tmp_path, "resized")


# --- transactions ------------------------------------------------------------------------------------


def test_open_transactions(cluster, tmp_path):
    t.create(cluster, "open")
    path = tmp_path / "store"
    writers = [
        t.Writer(cluster, transactional_id=f"open-{number}", transaction_timeout_ms=600_000) for number in range(3)
    ]
    with t.mirroring(cluster, path, tmp_path, "--topics", "open"):
        for number, writer in enumerate(writers):
            writer.producer.begin_transaction()
            writer.send("open", t.messages(number, 30))
            writer.flush()
            t.write(cluster, "open", t.messages(9, 10))
            t.wait_for_end(cluster, path, "open")
            t.assert_mirrored(cluster, path, "open")
        for number in (1, 0, 2):
            end = t.end_of(cluster, "open")
            if number:
                writers[number].producer.abort_transaction(PATIENCE)
            else:
                writers[number].producer.commit_transaction(PATIENCE)
            wait_until(lambda end=end: t.end_of(cluster, "open") > end, "the marker is there")
            t.wait_for_end(cluster, path, "open")
            t.assert_mirrored(cluster, path, "open")
    t.settle(cluster, "open")
    [(rows, end)] = t.consumed(cluster, "open", READ_COMMITTED)
    store = Store.open(path)
    for start in range(0, end, 7):
        for stop in range(start + 5, end + 1, 11):
            found = store.read("open", 0, start, stop, isolation_level=READ_COMMITTED)
            offsets = [offset for batch in found for offset in batch["offset"].to_pylist()]
            assert offsets == [row.offset for row in rows if start <= row.offset < stop], (start, stop)
    theirs = {file.name: file.read_bytes() for file in t.of_leader(cluster, "open").glob("*.txnindex")}
    assert {file.name: file.read_bytes() for file in t.of_mirror(path, "open").glob("*.txnindex")} == theirs
    assert faults(path) == []


# --- amounts -----------------------------------------------------------------------------------------


def test_batches_larger_than_a_fetch_asks_for(cluster, tmp_path):
    large = {"max_message_bytes": 50_000_000, "segment_bytes": 100_000_000}
    t.create(cluster, "large", [[1], [1], [1]], **large)
    chance = random.Random(1)
    sent = [t.Message(number % 3, chance.randbytes(12_000_000)) for number in range(6)]
    t.write(cluster, "large", sent, message_max_bytes=50_000_000, linger_ms=100)
    t.write(cluster, "large", t.messages(1, 100, 3))
    t.mirror_and_compare(cluster, tmp_path / "store", tmp_path, "large")


def test_many_partitions(cluster, tmp_path):
    t.create(cluster, "many", [[1 + number % 3] for number in range(150)])
    t.write(cluster, "many", t.messages(1, 1500, 150))
    t.mirror_and_compare(cluster, tmp_path / "store", tmp_path, "many")


def test_a_quota(cluster, tmp_path):
    """A broker answers with nothing while the mirror is above it: that is no end."""
    t.create(cluster, "slowed", [[1], [1], [1]])
    t.write(cluster, "slowed", t.messages(1, 6000, 3, size=5000))
    change = ("kafka.admin.ConfigCommand", "--alter", "--entity-type", "clients", "--entity-default")
    cluster.run(*change, "--add-config", "consumer_byte_rate=3000000")
    try:
        t.mirror_once(cluster, tmp_path / "store", tmp_path, "--topics", "slowed")
    finally:
        cluster.run(*change, "--delete-config", "consumer_byte_rate")
    t.assert_mirrored(cluster, tmp_path / "store", "slowed")


# --- gaps --------------------------------------------------------------------------------------------


def test_compaction_of_what_comes_next(cluster, tmp_path):
    """The mirror continues at an offset of which the cluster has no batch any more."""
    t.create(cluster, "removed", cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms=3_600_000)
    path = tmp_path / "store"
    t.write(cluster, "removed", [t.Message(0, b"stays", b"its own key", timestamp=NOW)])
    t.mirror_once(cluster, path, tmp_path, "--topics", "removed")
    for number in range(1, 4):
        end = t.end_of(cluster, "removed")
        t.write(cluster, "removed", later(t.messages(number, 300, keys=5), 3 * number))
        t.write(cluster, "removed", later(t.messages(number, 300, keys=5), 3 * number + 1))
        # The segment before it is not the active one any more.
        t.write(cluster, "removed", later(t.messages(number, 1, keys=5), 3 * number + 2))
        t.cleaned(cluster, "removed")
        left = (one for one, _ in t.batches(t.of_leader(cluster, "removed")) if one.last_offset >= end)
        assert next(left).base_offset > end
        done, _ = t.mirror_once(cluster, path, tmp_path, "--topics", "removed")
        assert done["removed-0"]["missing"] > 100
        assert Store.open(path).latest_offset("removed", 0) == t.end_of(cluster, "removed")
        # The mirror keeps what was compacted after it was mirrored.
        ours, theirs = read(Store.open(path), "removed")[0], t.consumed(cluster, "removed")[0][0]
        assert set(theirs) <= set(ours)
        assert [row for row in ours if row.offset >= end] == [row for row in theirs if row.offset >= end]
        assert faults(path) == []


def test_epochs_whose_first_batches_were_compacted(cluster, tmp_path):
    """They begin in the mirror where they begin in the cluster, also those of which no batch is left."""
    t.create(cluster, "raised", cleanup_policy="compact", min_cleanable_dirty_ratio="0.001", segment_ms=3_600_000)
    path, file = tmp_path / "store", "leader-epoch-checkpoint"
    for number in range(5):
        t.write(cluster, "raised", later(t.messages(number, 300, keys=5), number))
        cluster.reassign("raised", 0, [[2, 1], [1, 2]][number % 2])
        cluster.elect("raised")
    t.write(cluster, "raised", later(t.messages(5, 2, keys=5), 6))
    t.cleaned(cluster, "raised")
    for _ in range(2):
        t.mirror_once(cluster, path, tmp_path, "--topics", "raised")
        ours = read_epochs(str(t.of_mirror(path, "raised") / file))
        assert ours == read_epochs(str(t.of_leader(cluster, "raised") / file))
        assert len(ours) > 5
        t.write(cluster, "raised", t.messages(6, 5, keys=5))
    bases = {one.base_offset for one, _ in t.batches(t.of_leader(cluster, "raised"))}
    assert not {start for _, start in ours[1:5]} & bases
    assert faults(path) == []


def later(sent, hours):
    """The same messages, some hours after the first ones."""
    return [one._replace(timestamp=NOW + hours * 2 * 3_600_000) for one in sent]


def test_records_are_deleted_while_it_runs(cluster, tmp_path):
    t.create(cluster, "shortened")
    path = tmp_path / "store"
    with t.mirroring(cluster, path, tmp_path, "--topics", "shortened"):
        for seed in range(3):
            t.write(cluster, "shortened", t.messages(seed, 300, size=5000))
            t.wait_for_end(cluster, path, "shortened")
            for start in (t.end_of(cluster, "shortened") - 100, t.end_of(cluster, "shortened")):
                cluster.delete_records("shortened", 0, start)
                wait_until(
                    lambda start=start: Store.open(path).earliest_offset("shortened", 0) == start,
                    f"the log start is {start}",
                )
    assert read(Store.open(path), "shortened") == t.consumed(cluster, "shortened")[0]
    assert faults(path) == []


# --- other clusters ----------------------------------------------------------------------------------


def test_a_cluster_of_two_versions(older_kafka, tmp_path):
    with Cluster(tmp_path, brokers=2, versions={1: NEWEST, 2: OLDER}) as cluster:
        t.create(cluster, "mixed", [[1, 2], [2, 1]])
        path = tmp_path / "store"
        with t.mirroring(cluster, path, tmp_path, "--topics", "mixed"):
            for number in range(4):
                t.write(cluster, "mixed", t.messages(number, 200, 2, size=3000), enable_idempotence=True)
                t.wait_for_end(cluster, path, "mixed")
                cluster.reassign("mixed", 0, [2, 1] if number % 2 == 0 else [1, 2])
                cluster.elect("mixed", 0)
                wait_until(lambda number=number: cluster.leader_of("mixed") == 2 - number % 2, "the leader is moved")
        t.mirror_once(cluster, path, tmp_path, "--topics", "mixed")
        t.assert_mirrored(cluster, path, "mixed", same_segments=False)
        assert faults(path) == []


# --- readers of the mirror ------------------------------------------------------------------------------


def test_a_group_moves_to_the_mirror(cluster, tmp_path):
    """Its consumers read the rest at a server of the store, while the mirror runs on."""
    t.create(cluster, "shared", [[1, 2], [2, 3]])
    path = tmp_path / "store"
    t.write(cluster, "shared", t.messages(1, 300, 2))
    seen = polled(cluster, "shared", 120)
    arguments = ("--topics", "shared", "--groups", "movers")
    t.mirror_once(cluster, path, tmp_path, *arguments)
    (tmp_path / "server").mkdir()
    with served(path, tmp_path / "server") as server, t.mirroring(cluster, path, tmp_path, *arguments):
        seen += polled(server, "shared", 180)
        t.write(cluster, "shared", t.messages(2, 100, 2))
        seen += polled(server, "shared", 100)
    everything = t.consumed(cluster, "shared")
    assert sorted(seen) == [(number, row.offset) for number in range(2) for row in everything[number][0]]


def polled(side, topic, count):
    """Where the records were that a member of a group gets, which commits them."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": side.bootstrap, "group.id": "movers", "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([topic])
    found = []
    while len(found) < count:
        one = consumer.poll(PATIENCE)
        assert one is not None
        assert one.error() is None, one.error()
        found.append((one.partition(), one.offset()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found
