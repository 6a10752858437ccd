"""`pylog mirror` beside the cluster that it mirrors: the same files, and what Kafka's consumers get."""

import random
import signal

import confluent_kafka
import mirror_tools as t
import pytest
from kafka_cluster import SCRAM, Cluster, secured
from kafka_tools import NEWEST, OLDER
from written import NOW, read

from pyspark_log import Store
from pyspark_log.admin import compact
from tests.store_tools import faults
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

#: The smallest segments that topics may have, and the size of messages that fill some.
SEGMENT = {NEWEST: 1024 * 1024, OLDER: 100 * 1024}
SIZE = {NEWEST: 5000, OLDER: 500}
KINDS = (*t.CODECS, "idempotent", "ended", "append-time", "recompressed", "by-time", "empty")


@pytest.fixture(scope="module", params=[NEWEST, pytest.param(OLDER, marks=pytest.mark.long)])
def cluster(request, older_kafka, tmp_path_factory):
    versions = dict.fromkeys((1, 2, 3, 101), request.param)
    # Files are compared with those of whichever broker leads, so no leader moves because the machine is slow.
    settings = {"broker.session.timeout.ms": 15_000, "replica.lag.time.max.ms": 15_000}
    with Cluster(tmp_path_factory.mktemp("cluster"), versions=versions, settings=settings) as found:
        yield found


def version_of(cluster):
    return cluster[1].version


def make(cluster, topic, assignment=((1, 2), (2, 3), (3, 1)), **configs):
    t.create(cluster, topic, assignment, **{"segment_bytes": SEGMENT[version_of(cluster)]} | configs)


def sized(cluster, seed, count, partitions=3, **how):
    """Messages of which 300 fill more than a segment."""
    return t.messages(seed, count, partitions, size=SIZE[version_of(cluster)], **how)


@pytest.fixture(scope="module")
def mirrored(cluster, tmp_path_factory):
    """A mirror of topics of all kinds."""
    configs = {
        "append-time": {"message_timestamp_type": "LogAppendTime"},
        "recompressed": {"compression_type": "zstd"},
        "by-time": {"segment_ms": 3_600_000, "segment_bytes": 2**30},
    }
    for kind in KINDS:
        make(cluster, f"bytes-{kind}", **configs.get(kind, {}))
    for seed, codec in enumerate(t.CODECS):
        t.write(cluster, f"bytes-{codec}", sized(cluster, seed, 2500), compression_type=codec)
    t.write(cluster, "bytes-idempotent", sized(cluster, 7, 2500), enable_idempotence=True)
    t.write(cluster, "bytes-append-time", sized(cluster, 8, 2500), compression_type="lz4")
    t.write(cluster, "bytes-recompressed", sized(cluster, 9, 2500), compression_type="gzip")
    chance = random.Random(10)
    timed = [one._replace(timestamp=NOW + chance.randrange(48 * 3_600_000)) for one in sized(cluster, 10, 600)]
    t.write(cluster, "bytes-by-time", sorted(timed, key=lambda one: one.timestamp + chance.randrange(3_600_000)))
    fill_with_transactions(cluster, "bytes-ended")
    folder = tmp_path_factory.mktemp("mirror")
    done, _ = t.mirror_once(cluster, folder / "store", folder, "--topics", "bytes-.*")
    return folder / "store", done


def fill_with_transactions(cluster, topic):
    """Those of two writers, committed and aborted, with records of a third one between them."""
    first, second = (t.Writer(cluster, transactional_id=f"{topic}-{name}") for name in "ab")
    plain = t.Writer(cluster)
    for number in range(12):
        second.producer.begin_transaction()
        second.send(topic, sized(cluster, 100 + number, 80))
        plain.send(topic, sized(cluster, 200 + number, 20))
        first.transact(topic, sized(cluster, 300 + number, 80), commit=number % 3 > 0)
        plain.flush()
        second.flush()
        if number % 2:
            second.producer.commit_transaction()
        else:
            second.producer.abort_transaction()
    t.settle(cluster, topic)


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_records(cluster, mirrored, kind):
    path, done = mirrored
    topic = f"bytes-{kind}"
    t.assert_mirrored(cluster, path, topic)
    for partition in range(3):
        found, end = done[f"{topic}-{partition}"], t.end_of(cluster, topic, partition)
        size = sum(file.stat().st_size for file in t.of_leader(cluster, topic, partition).glob("*.log"))
        assert found["error"] is None
        assert (found["log_end"], found["bytes"], found["missing"]) == (end, size, 0)
        assert kind == "empty" or len(t.segments(t.of_leader(cluster, topic, partition))) > 1


def test_ids_configs_and_leader_epochs(cluster, mirrored):
    store = Store.open(mirrored[0])
    assert store.topics() == sorted(f"bytes-{kind}" for kind in KINDS)
    for topic in store.topics():
        found = store.describe_topic(topic)
        assert found.topic_id == cluster.topic_id(topic)
        assert found.configs["retention.ms"] == "-1"
    assert store.describe_topic("bytes-append-time").configs["message.timestamp.type"] == "LogAppendTime"
    assert store.describe_topic("bytes-by-time").configs["segment.ms"] == "3600000"


def test_the_store_has_no_fault(mirrored):
    assert faults(mirrored[0]) == []


def test_a_mirror_that_follows(cluster, tmp_path):
    make(cluster, "followed")
    path = tmp_path / "store"
    with t.mirroring(cluster, path, tmp_path, "--topics", "followed"):
        for seed, codec in enumerate(t.CODECS):
            t.write(cluster, "followed", sized(cluster, seed, 200), compression_type=codec)
            t.wait_for_end(cluster, path, "followed")
        fill_with_transactions(cluster, "followed")
        t.wait_for_end(cluster, path, "followed")
        t.assert_mirrored(cluster, path, "followed")
    t.assert_mirrored(cluster, path, "followed")
    assert faults(path) == []


@pytest.mark.long
def test_ctrl_c(cluster, tmp_path):
    make(cluster, "interrupted")
    t.write(cluster, "interrupted", sized(cluster, 1, 10))
    run = t.Mirror(cluster, tmp_path / "store", tmp_path, "--topics", "interrupted")
    t.wait_for_end(cluster, tmp_path / "store", "interrupted")
    assert run.stop(signal.SIGINT) == 130
    assert "Traceback" not in run.log()
    t.assert_mirrored(cluster, tmp_path / "store", "interrupted")


def test_aborted_transactions_are_indexed_as_in_kafka(cluster, mirrored):
    for partition in range(3):
        ours = t.of_mirror(mirrored[0], "bytes-ended", partition)
        theirs = t.of_leader(cluster, "bytes-ended", partition)
        # Kafka makes one for each segment, also where it stays empty.
        index = {path.name: path.read_bytes() for path in theirs.glob("*.txnindex") if path.stat().st_size}
        assert len(index) > 1
        assert {path.name: path.read_bytes() for path in ours.glob("*.txnindex") if path.stat().st_size} == index


@pytest.mark.long
def test_a_leader_that_starts_again(cluster, tmp_path):
    """Its segments begin where they would have begun without that."""
    make(cluster, "restarted", [[3]])
    for seed in range(3):
        t.write(cluster, "restarted", sized(cluster, seed, 130, 1))
        t.mirror_once(cluster, tmp_path / "store", tmp_path, "--topics", "restarted")
        if seed == 1:
            cluster[3].kill()
        else:
            cluster[3].stop()
        cluster[3].start()
        cluster.wait_for_leader("restarted")
    t.write(cluster, "restarted", sized(cluster, 3, 300, 1))
    t.mirror_once(cluster, tmp_path / "store", tmp_path, "--topics", "restarted")
    assert len(t.segments(t.of_leader(cluster, "restarted"))) > 2
    t.assert_mirrored(cluster, tmp_path / "store", "restarted")


# --- topics that change ----------------------------------------------------------------------------


@pytest.mark.long
def test_what_changes_while_it_is_mirrored(cluster, tmp_path):
    """Partitions and topics are added, configs are set and taken away, and a group commits, also back."""
    make(cluster, "grown-a", [[1, 2]], retention_ms=1_000_000_000, max_message_bytes=2_000_000)
    path, arguments = tmp_path / "store", ("--topics", "grown-.*", "--groups", "^read")
    t.write(cluster, "grown-a", sized(cluster, 1, 100, 1))
    commit(cluster, "readers", {("grown-a", 0): 7})
    commit(cluster, "others", {("grown-a", 0): 5})
    t.mirror_once(cluster, path, tmp_path, *arguments)
    before = Store.open(path).describe_topic("grown-a").configs
    assert (before["retention.ms"], before["max.message.bytes"]) == ("1000000000", "2000000")
    assert before["segment.bytes"] == str(SEGMENT[version_of(cluster)])
    with t.mirroring(cluster, path, tmp_path, *arguments):
        cluster.add_partitions("grown-a", [[2, 3], [3, 1]])
        changed = {"retention.ms": 2_000_000_000, "max.message.bytes": None, "segment.ms": 5_000_000}
        cluster.alter_configs("grown-a", changed)
        make(cluster, "grown-b")
        make(cluster, "not-grown", [[1]])
        for seed, topic in enumerate(("grown-a", "grown-b")):
            t.write(cluster, topic, sized(cluster, seed, 300))
        t.wait_for_end(cluster, path, "grown-a", "grown-b")
        configs = before | {"retention.ms": "2000000000", "segment.ms": "5000000"}
        del configs["max.message.bytes"]
        wait_until(lambda: Store.open(path).describe_topic("grown-a").configs == configs, f"its configs are {configs}")
        offsets = {("grown-a", 0): 6, ("grown-a", 1): t.end_of(cluster, "grown-a", 1)}
        commit(cluster, "readers", offsets)
        wait_until(lambda: committed(path, "readers") == offsets, f"the group is at {offsets}")
    t.assert_mirrored(cluster, path, "grown-a")
    t.assert_mirrored(cluster, path, "grown-b")
    assert list(Store.open(path).groups) == ["readers"]
    assert Store.open(path).topics() == ["grown-a", "grown-b"]
    assert Store.open(path).describe_topic("grown-b").topic_id == cluster.topic_id("grown-b")


def commit(cluster, group, offsets):
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False,
    })  # fmt: skip
    places = [confluent_kafka.TopicPartition(*at, offset) for at, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(path, group):
    found = Store.open(path).groups[group].committed()
    return {(at.topic, at.partition): one.offset for at, one in found.items()}


# --- logs that become shorter ------------------------------------------------------------------------


@pytest.mark.long
def test_retention_in_the_cluster(cluster, tmp_path):
    """With and without --keep, and in a copy that begins after it."""
    make(cluster, "expired", [[2, 1]])
    path, kept, late = (tmp_path / name for name in ("store", "kept", "late"))
    t.write(cluster, "expired", sized(cluster, 1, 1500, 1))
    t.mirror_once(cluster, path, tmp_path, "--topics", "expired")
    t.mirror_once(cluster, kept, tmp_path, "--topics", "expired", "--keep")
    everything = t.whole(t.of_leader(cluster, "expired"))
    cluster.alter_configs("expired", {"retention.bytes": SEGMENT[version_of(cluster)]})
    wait_until(lambda: t.start_of(cluster, "expired") > 0, "retention deletes a segment")
    cluster.alter_configs("expired", {"retention.bytes": None})
    for name in (path, late):
        t.mirror_and_compare(cluster, name, tmp_path, "expired")
    t.write(cluster, "expired", sized(cluster, 2, 300, 1))
    t.mirror_and_compare(cluster, path, tmp_path, "expired")
    t.mirror_once(cluster, kept, tmp_path, "--topics", "expired", "--keep")
    added = t.whole(t.of_leader(cluster, "expired"))
    assert Store.open(kept).earliest_offset("expired", 0) == 0
    ours = t.whole(t.of_mirror(kept, "expired"))
    assert ours.startswith(everything)
    assert ours.endswith(added)
    assert len(read(Store.open(kept), "expired")[0]) == t.end_of(cluster, "expired")
    assert faults(kept) == []


# --- compaction --------------------------------------------------------------------------------------

COMPACT = {
    "cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.001", "min_compaction_lag_ms": 0,
}  # fmt: skip


def latest(rows):
    """The last value of each key, but for deleted ones."""
    return {
        key: value for key, value in {row.key: (row.offset, row.value) for row in rows}.items() if value[1] is not None
    }


def test_compaction_before_it_is_mirrored(cluster, tmp_path):
    make(cluster, "compacted", [[1, 2]], **COMPACT)
    path = tmp_path / "store"
    for seed in range(3):
        t.write(cluster, "compacted", sized(cluster, seed, 700, 1, keys=40), enable_idempotence=True)
        t.cleaned(cluster, "compacted")
    t.mirror_once(cluster, path, tmp_path, "--topics", "compacted")
    theirs, ours = t.batches(t.of_leader(cluster, "compacted")), t.batches(t.of_mirror(path, "compacted"))
    known = {data for _, data in theirs}
    assert [data for _, data in ours if data in known] == [data for _, data in theirs]
    fillers = [one for one, data in ours if data not in known]
    assert {one.count for one in fillers} == {0}
    assert Store.open(path).earliest_offset("compacted", 0) == t.start_of(cluster, "compacted") == 0
    assert [one.base_offset for one, _ in ours] == [0, *(one.next_offset for one, _ in ours[:-1])]
    [found] = t.consumed(cluster, "compacted")
    assert read(Store.open(path), "compacted") == found
    assert faults(path) == []


@pytest.mark.long
def test_compaction_while_it_is_mirrored(cluster, tmp_path):
    make(cluster, "compacting", [[3, 2]], **COMPACT)
    path = tmp_path / "store"
    with t.mirroring(cluster, path, tmp_path, "--topics", "compacting"):
        for seed in range(4):
            t.write(cluster, "compacting", sized(cluster, seed, 500, 1, keys=40), compression_type=t.CODECS[seed])
            if seed % 2:
                t.wait_for_end(cluster, path, "compacting")
            t.cleaned(cluster, "compacting")
        t.wait_for_end(cluster, path, "compacting")
    [(theirs, end)] = t.consumed(cluster, "compacting")
    ours, our_end = read(Store.open(path), "compacting")
    assert our_end == end
    assert set(theirs) <= set(ours)
    assert len(theirs) < len(ours)
    assert latest(ours) == latest(theirs)
    # The store's own cleaner.
    compact(Store.open(path), "compacting")
    assert latest(read(Store.open(path), "compacting")[0]) == latest(theirs)
    assert faults(path) == []
    t.write(cluster, "compacting", sized(cluster, 9, 100, 1, keys=40))
    t.mirror_once(cluster, path, tmp_path, "--topics", "compacting")
    assert latest(read(Store.open(path), "compacting")[0]) == latest(t.consumed(cluster, "compacting")[0][0])


# --- logins ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_logins(kafka, tmp_path):
    users = {"anna": "correct horse"}
    authority, settings = secured(tmp_path, users)
    # A connection is closed three seconds after its login: Kafka would have the client log in again before that.
    settings["connections.max.reauth.ms"] = 3000
    with Cluster(tmp_path, brokers=2, listeners=["SASL_PLAINTEXT", "SASL_SSL"], settings=settings) as cluster:
        cluster.create_topic("secured", assignment=[[1], [2]])
        cluster.add_scram_users(users)
        t.write(cluster, "secured", t.messages(1, 100, 2))
        logins = {
            # As librdkafka's users write it, and as Java's.
            "SASL_PLAINTEXT": ("sasl.mechanisms=PLAIN", "sasl.username=anna", "sasl.password=correct horse"),
            "SASL_SSL": (
                f"sasl.mechanism={SCRAM}",
                f"ssl.truststore.location={authority.certificate}", "ssl.truststore.type=PEM",
                'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="anna" \\\n'
                '    password="correct horse";',
            ),
        }  # fmt: skip
        for protocol, lines in logins.items():
            config, path = tmp_path / f"{protocol}.properties", tmp_path / protocol
            config.write_text("\n".join(["# A login.", f"security.protocol={protocol}", *lines]))
            arguments = ("--topics", "secured", "--client-config", config)
            t.mirror_once(cluster, path, tmp_path, *arguments, bootstrap=cluster.bootstrap_of(protocol))
            t.assert_mirrored(cluster, path, "secured")
            with t.mirroring(cluster, path, tmp_path, *arguments, bootstrap=cluster.bootstrap_of(protocol)) as run:
                run.wait_for("does not answer")
                t.write(cluster, "secured", t.messages(2, 100, 2))
                t.wait_for_end(cluster, path, "secured")
            t.assert_mirrored(cluster, path, "secured")
            config.write_text(config.read_text().replace("correct horse", "wrong"))
            refused = t.Mirror(
                cluster, tmp_path / "refused", tmp_path, *arguments, bootstrap=cluster.bootstrap_of(protocol)
            )
            assert refused.wait() == 1
            assert "Traceback" not in refused.log()
            assert "login" in refused.log()
            assert "wrong" not in refused.log()
