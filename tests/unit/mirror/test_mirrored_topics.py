"""A mirror of a cluster has the same files, continues where it was, and reports where it cannot."""

import errno
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from pyspark_log import Store
from pyspark_log.admin import compact
from pyspark_log.errors import PartitionOwnedError, PublishFailedError
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.fetcher import Fetched
from pyspark_log.mirror import ClusterSource, Mirror, MirrorPlan
from pyspark_log.replication import (
    CopiedPartition,
    DivergedError,
    LostRecordsError,
    ReplicationError,
    Rules,
    copied_partition,
    promote,
)
from pyspark_log.storage.catalog.topics import id_bytes
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.log.retention import delete_before
from pyspark_log.storage.record import headers_in
from pyspark_log.types import READ_COMMITTED, TopicPartition
from tests.server_tools import PATIENCE
from tests.store_tools import damages, rows, stage
from tests.waiting import wait_until


def segments(store, at):
    """The contents of a partition's segments, by their names."""
    return {path[-24:]: Path(path).read_bytes() for path in store.segment_files(at.topic, at.partition)}


def values(store, at, **options):
    """The values of a partition."""
    return [value for batch in store.read(at.topic, at.partition, **options) for value in batch["value"].to_pylist()]


def check_values(mirror, upstream, at):
    """A partition has the same values here, and the store no damage."""
    with Store.open(mirror.path) as store:
        assert values(store, at) == values(upstream, at)
    assert not damages(mirror.path)


@pytest.fixture
def fill(upstream, topic):
    """Appends as many batches of 10 records to the first partition of the topic."""

    def append(count):
        for number in range(count):
            upstream.append(topic, rows(*[b"%d.%d" % (number, row) + b"." * 40 for row in range(10)]), partition=0)

    return append


def test_its_files_are_those_of_the_cluster(upstream, topic, fill, first, mirror):
    fill(30)
    upstream.append(topic, rows(b"other"), partition=1)
    results = mirror(topic)
    with Store.open(mirror.path) as store:
        for at in (first, TopicPartition(topic, 1)):
            assert segments(store, at) == segments(upstream, at)
            assert values(store, at) == values(upstream, at)
        assert len(segments(store, first)) > 3
        found, theirs = store.describe_topic(topic), upstream.describe_topic(topic)
        assert (found.topic_id, found.partitions, found.configs) == (theirs.topic_id, 2, theirs.configs)
    assert results[first].end == 300
    assert results[first].bytes == sum(map(len, segments(upstream, first).values()))
    assert not damages(mirror.path)


def test_it_continues_where_it_was(upstream, topic, fill, first, mirror):
    for round_ in range(1, 6):
        fill(7)
        result = mirror(topic)[first]
        assert (result.begun_at, result.end) == (70 * (round_ - 1), 70 * round_)
    times = {path: path.stat().st_mtime_ns for path in mirror.path.rglob("*.log")}
    assert mirror(topic)[first].bytes == 0
    assert {path: path.stat().st_mtime_ns for path in mirror.path.rglob("*.log")} == times
    with Store.open(mirror.path) as store:
        assert segments(store, first) == segments(upstream, first)


def test_transactions_are_as_they_were(server, upstream, topic, first, mirror):
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number in range(12):
        producer.begin_transaction()
        for row in range(10):
            producer.produce(topic, b"%d.%d" % (number, row) + b"." * 60, partition=0)
        producer.flush()
        producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction()
        # The last markers may be written after the answer.
        wait_until(
            lambda: (
                upstream.latest_offset(topic, 0, isolation_level=READ_COMMITTED) == upstream.latest_offset(topic, 0)
            ),
            "the markers are there",
        )
        if number == 5:
            mirror(topic)  # Its producers continue from here.
    mirror(topic)
    with Store.open(mirror.path) as store:
        assert segments(store, first) == segments(upstream, first)
        assert values(store, first, isolation_level=READ_COMMITTED) == values(
            upstream, first, isolation_level=READ_COMMITTED
        )
        assert len(values(store, first, isolation_level=READ_COMMITTED)) == 80
        ours, theirs = (one.logs.producers(topic, 0) for one in (store, upstream))
        assert ours == theirs
    assert not damages(mirror.path)


def test_no_other_process_writes_to_a_mirror(topic, fill, first, mirror):
    fill(2)
    mirror(topic)
    with Store.open(mirror.path) as store:
        before = segments(store, first)
        with pytest.raises(PartitionOwnedError, match=r"with the offsets of its source.*pylog mirror --promote"):
            store.append(topic, rows(b"x"), partition=0)
        parts = stage(store, rows(b"x"), topic)
        with pytest.raises(PublishFailedError, match="is mirrored"):
            store.publishes.publish("job", 0, parts)
        with pytest.raises(PartitionOwnedError):
            store.delete_records(topic, 0, 5)
        store.clean(topic)
        store.flush()
        assert segments(store, first) == before
    fill(1)
    assert mirror(topic)[first].end == 30


def test_a_promoted_topic_is_one_of_the_store(upstream, topic, fill, first, mirror):
    fill(3)
    mirror(topic)
    with Store.open(mirror.path) as store:
        assert promote(store, first) == 30
    with Store.open(mirror.path) as store:
        store.append(topic, rows(b"ours"), partition=0)
        assert values(store, first)[30:] == [b"ours"]
    assert not damages(mirror.path)
    fill(1)
    result = mirror(topic)[TopicPartition(topic, -1)]
    assert isinstance(result.error, ReplicationError)
    assert "no copy of this kind" in str(result.error)
    with Store.open(mirror.path) as store:
        assert store.latest_offset(topic, 0) == 31


def test_a_mirror_that_runs_leaves_what_was_promoted_alone(upstream, topic, fill, first, mirror):
    fill(10)
    mirror(topic)
    with FolderStore.open(mirror.path) as store:
        copy = CopiedPartition(store, first, id_bytes(store.describe_topic(topic).topic_id), Rules(skip_lost=True))
        promote(store, first)
        store.append(topic, rows(b"ours"), partition=0)
        # The cluster deletes what it has.
        with pytest.raises(ReplicationError, match="was promoted meanwhile"):
            copy.take(Fetched(first, copy.position(0), 0, 200, 100, None, memoryview(b"")))
        with pytest.raises(ReplicationError, match="was promoted meanwhile"):
            copy.settle(150, 200)
        assert store.earliest_offset(topic, 0) == 0
        assert values(store, first)[100:] == [b"ours"]


def test_a_copy_continues_after_an_error_in_the_middle_of_an_answer(upstream, topic, fill, first, mirror, monkeypatch):
    fill(1)
    mirror(topic)
    fill(2)
    [part] = segments(upstream, first).values()
    headers = headers_in(part, 0, len(part))
    with FolderStore.open(mirror.path) as store:
        copy = CopiedPartition(store, first, id_bytes(store.describe_topic(topic).topic_id), Rules())

        def answer():
            at = copy.position(0)
            begin = next((one.position for one in headers if one.base_offset == at.offset), len(part))
            return Fetched(first, at, 0, 30, 0, None, memoryview(part)[begin:])

        def fail(*_):
            raise OSError(errno.ENOSPC, "no space")

        with monkeypatch.context() as full:
            # The records are there by then.
            full.setattr(copied_partition, "raise_high_watermark", fail)
            with pytest.raises(OSError, match="no space"):
                copy.take(answer())
        for _ in range(2):
            copy.take(answer())
        assert copy.end == 30
        assert segments(store, first) == segments(upstream, first)


def test_a_topic_that_is_deleted_here_is_none_of_the_others_business(upstream, topic, fill, mirror, monkeypatch):
    fill(1)
    other = f"{topic}-other"
    upstream.create_topic(other, 1)
    upstream.append(other, rows(b"other"))
    follow = Mirror._follow_others

    def delete_first(run):
        if topic in run._store.topics():
            run._store.delete_topic(topic)
        follow(run)

    monkeypatch.setattr(Mirror, "_follow_others", delete_first)
    results = mirror(topic, other)
    assert results[TopicPartition(other, 0)].error is None
    assert results[TopicPartition(other, 0)].end == 1


def test_a_run_has_the_configs_before_records_come(upstream, topic, fill, mirror, monkeypatch):
    """Else the first segments of a run would begin by those of the run before."""
    mirror(topic)
    upstream.alter_configs(topic, {"segment.bytes": "9000"})
    found, fetch = [], Mirror._fetch_from

    def noted(run, *arguments):
        found.append(run._store.describe_topic(topic).configs["segment.bytes"])
        fetch(run, *arguments)

    monkeypatch.setattr(Mirror, "_fetch_from", noted)
    mirror(topic)
    assert found[0] == "9000"


def test_partitions_and_configs_follow(upstream, topic, fill, mirror):
    fill(1)
    mirror(topic)
    of_the_copy = {"value.format": "avro"}  # which no cluster knows
    with Store.open(mirror.path) as store:
        store.alter_configs(topic, of_the_copy)
    upstream.add_partitions(topic, 4)
    upstream.alter_configs(topic, {"max.message.bytes": "5000"}, ["index.interval.bytes"])
    upstream.append(topic, rows(b"new"), partition=3)
    assert mirror(topic)[TopicPartition(topic, 3)].end == 1
    with Store.open(mirror.path) as store:
        assert store.describe_topic(topic).configs == {**upstream.describe_topic(topic).configs, **of_the_copy}
        assert store.describe_topic(topic).partitions == 4


def test_the_log_start_follows(upstream, topic, fill, first, mirror):
    fill(30)
    upstream.delete_records(topic, 0, 105)
    assert mirror(topic)[first].log_start == 105
    fill(1)
    upstream.delete_records(topic, 0, 207)
    assert mirror(topic)[first].log_start == 207
    with Store.open(mirror.path) as store:
        assert store.earliest_offset(topic, 0) == 207
        assert values(store, first) == values(upstream, first)
    upstream.delete_records(topic, 0, 310)
    assert mirror(topic)[first].log_start == 310
    fill(1)
    assert mirror(topic)[first].end == 320
    check_values(mirror, upstream, first)


def test_what_is_deleted_can_be_kept(upstream, topic, fill, first, mirror):
    fill(10)
    mirror(topic, keep=True)
    fill(1)
    upstream.delete_records(topic, 0, 50)
    assert mirror(topic, keep=True)[first].log_start == 0
    with Store.open(mirror.path) as store:
        assert len(values(store, first)) == 110
        assert store.describe_topic(topic).configs["retention.ms"] == "-1"


def test_records_that_were_deleted_too_early_are_reported(upstream, topic, fill, first, mirror):
    fill(10)
    mirror(topic)
    fill(10)
    upstream.delete_records(topic, 0, 150)
    result = mirror(topic)[first]
    assert isinstance(result.error, LostRecordsError)
    assert "deleted offsets 100 to 149 before they were copied (--skip-lost" in str(result.error)
    assert result.end == 100
    with Store.open(mirror.path) as store:
        assert len(values(store, first)) == 100
    result = mirror(topic, skip_lost=True)[first]
    assert (result.error, result.end, result.missing, result.log_start) == (None, 200, 50, 150)
    check_values(mirror, upstream, first)


def elect(store, at, epoch, end):
    """As where a replica is elected that has no more: the log ends at an offset, and a leader epoch begins there."""
    with store.logs.writer(at.topic, at.partition).hold() as writer:
        truncate(writer.log, end)
        leader_epochs.begin(writer.log.place.folder, epoch, end)
        writer.log.lease.save(writer.state._replace(leader_epoch=epoch), durable=True)


def test_replaced_records_are_reported(upstream, topic, fill, first, mirror):
    fill(10)
    mirror(topic)
    elect(upstream, first, 1, 50)
    result = mirror(topic)[first]
    assert isinstance(result.error, DivergedError)
    assert "has offsets 50 to 99 of leader epoch 0, in the source epoch 0 ends at 50" in str(result.error)
    with Store.open(mirror.path) as store:
        assert store.latest_offset(topic, 0) == 100
    fill(9)
    result = mirror(topic, follow_truncation=True)[first]
    assert (result.error, result.end) == (None, 140)
    with Store.open(mirror.path) as store:
        assert b"".join(segments(store, first).values()) == b"".join(segments(upstream, first).values())
    assert not damages(mirror.path)


def test_they_are_found_after_a_stop_at_the_beginning_of_an_epoch(upstream, topic, fill, first, mirror):
    fill(10)
    mirror(topic)
    with Store.open(mirror.path) as store:
        # It was noted for a batch that a kill has kept from coming.
        elect(store, first, 1, 100)
    elect(upstream, first, 2, 50)
    fill(9)
    assert isinstance(mirror(topic)[first].error, DivergedError)
    assert mirror(topic, follow_truncation=True)[first].error is None
    with Store.open(mirror.path) as store:
        assert b"".join(segments(store, first).values()) == b"".join(segments(upstream, first).values())
        entries = [leader_epochs.read(one.logs.place(topic, 0).folder).entries for one in (store, upstream)]
        assert entries[0] == entries[1]
    assert not damages(mirror.path)


@pytest.mark.usefixtures("prompt_checkpoints")
@pytest.mark.parametrize(("kept", "start"), [(5, 50), (0, 0)])
def test_all_that_the_copy_has_can_be_replaced(upstream, topic, fill, first, mirror, kept, start):
    fill(10)
    mirror(topic)
    with Store.open(mirror.path) as store, store.logs.writer(topic, 0).hold() as writer:
        # As retention here does it.
        delete_before(writer.log, 100 - kept)
    elect(upstream, first, 1, 50)
    assert isinstance(mirror(topic)[first].error, DivergedError)
    fill(3)
    result = mirror(topic, follow_truncation=True)[first]
    assert (result.error, result.end) == (None, 80)
    with Store.open(mirror.path) as store:
        assert values(store, first) == values(upstream, first)[start:]
    assert not damages(mirror.path)


def test_a_topic_that_was_created_again_is_reported(upstream, topic, fill, first, mirror):
    fill(2)
    mirror(topic)
    upstream.delete_topic(topic)
    upstream.create_topic(topic, 1)
    upstream.append(topic, rows(b"another"))
    [result] = mirror(topic).values()
    assert "deleted and created again in the source" in str(result.error)
    with Store.open(mirror.path) as store:
        assert len(values(store, first)) == 20


def test_gaps_of_compaction_are_filled(upstream, topic, first, mirror):
    upstream.alter_configs(topic, {"cleanup.policy": "compact", "segment.bytes": "1000"})
    for number in range(60):
        keyed = pa.record_batch({"key": [b"%d" % (number % 3)], "value": [b"." * 50]})
        upstream.append(topic, keyed, partition=0)
    assert list(compact(upstream, topic))
    mirror(topic)
    with Store.open(mirror.path) as store:
        assert store.latest_offset(topic, 0) == 60
        assert values(store, first) == values(upstream, first)
        assert len(values(store, first)) < 20
    assert not damages(mirror.path)


def test_groups_are_where_they_were(upstream, topic, fill, first, mirror):
    fill(3)
    upstream.groups["readers"].commit({first: 25})
    upstream.groups["others"].commit({first: 5})
    mirror(topic, groups="^read")
    with Store.open(mirror.path) as store:
        assert store.groups["readers"].committed()[first].offset == 25
        assert store.groups["others"].committed() == {}
    upstream.groups["readers"].commit({first: 12})
    mirror(topic, groups="^read")
    with Store.open(mirror.path) as store:
        assert store.groups["readers"].committed()[first].offset == 12
        store.groups["readers"].commit({first: 14})
    upstream.groups["readers"].commit({first: 29})
    mirror(topic, groups="^read")
    with Store.open(mirror.path) as store:
        # It is used here.
        assert store.groups["readers"].committed()[first].offset == 14


def test_it_stops_while_a_broker_hangs_without_asking_more_of_it(server, topic, tmp_path, monkeypatch):
    monkeypatch.setitem(Connection.__init__.__kwdefaults__, "timeout", 5)
    monkeypatch.setattr("pyspark_log.mirror.mirror._OTHERS_INTERVAL", 3600)
    rounds, follow = [], Mirror._follow_others
    monkeypatch.setattr(Mirror, "_follow_others", lambda run: rounds.append(follow(run)))
    with (
        FolderStore.open_or_create(tmp_path / "mirror") as store,
        ClusterSource([(server.host, server.port)], ClientConfig()) as cluster,
        ThreadPoolExecutor(1) as threads,
    ):
        run = Mirror(store, cluster, MirrorPlan([re.compile(topic)]))
        ended = threads.submit(run.run)
        wait_until(lambda: rounds, "it runs")
        server.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: run._lost, "it has noticed")
            run.stopping.set()
            before = len(rounds)
            assert ended.result(PATIENCE)[0].error is None
            assert len(rounds) == before
        finally:
            run.stopping.set()
            server.process.send_signal(signal.SIGCONT)


def test_a_topic_that_is_not_there_is_reported(mirror):
    with pytest.raises(ReplicationError, match="no topic of such a name"):
        mirror("nothing-of-that-name")
