"""The streaming reader as Spark calls it, over a real store but without Spark."""

import logging
import os
import socket
import subprocess

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from stream_readers import append, plan, reader_of, through_json, values

from pyspark_log import DefaultSource
from pyspark_log.errors import StagedOutputError
from pyspark_log.monitoring.snapshot import take_snapshot
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.planning.steps import Steps
from pyspark_log.storage.fs import Process
from pyspark_log.storage.groups.members.query_readers import query_of
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.publish import pending, publishing
from pyspark_log.types import TopicPartition
from tests.query_offsets import of_topics, own_of
from tests.store_tools import publish, stage, store_with

ALL = ReadAllAvailable()


store = store_with(partitions=2)


def batch(reader, start, limit=ALL):
    """The next micro-batch: its end and its ranges."""
    end = through_json(reader.latestOffset(through_json(start), limit))
    return end, plan(reader, start, end)


def test_batches_follow_each_other(store):
    append(store, 0, 3)
    reader = reader_of(store)
    first, ranges = batch(reader, reader.initialOffset())
    assert ranges == [(0, 0, 3)]
    assert reader.latestOffset(first, ALL) == first
    append(store, 0, 1)
    append(store, 1, 2)
    second, ranges = batch(reader, first)
    assert ranges == [(0, 3, 4), (1, 0, 2)]
    assert own_of(first)["start"] == {"t": {"0": 0, "1": 0}}
    assert second["t"] == {"0": 4, "1": 2}
    assert own_of(second) == {name: kept for name, kept in own_of(first).items() if name != "start"}
    assert reader.reportLatestOffset() == {"t": {"0": 4, "1": 2}}


def test_a_trigger_is_bounded_by_bytes(store):
    """Of each partition as much as of any other that has more; what one does not need the others share."""
    store.create_topic("u", 3, {"index.interval.bytes": "0"})
    for count in range(12):
        store.append("u", pa.record_batch({"value": [os.urandom(1000)]}), partition=0)
        store.append("u", pa.record_batch({"value": [os.urandom(2000)]}), partition=1)
        if count < 2:
            store.append("u", pa.record_batch({"value": [b"x"]}), partition=2)
    reader = reader_of(store, subscribe="u", maxBytesPerTrigger="10k")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(10 * 1024)
    position, seen = reader.initialOffset(), []
    while (end := through_json(reader.latestOffset(position, limit))) != position:
        seen.append(plan(reader, position, end))
        position = end
    assert seen[0] == [(0, 0, 4), (1, 0, 2), (2, 0, 2)]
    assert seen[1:3] == [[(0, 4, 8), (1, 2, 4)], [(0, 8, 12), (1, 4, 6)]]
    assert seen[3:] == [[(1, 6, 10)], [(1, 10, 12)]]
    # Both limits hold.
    both = reader_of(store, subscribe="u", maxBytesPerTrigger="10k", maxOffsetsPerTrigger="3")
    assert batch(both, both.initialOffset(), both.getDefaultReadLimit())[1] == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]
    # As the other limits, it does not count where Spark asks for all there is.
    assert batch(reader, reader.initialOffset())[1] == [(0, 0, 12), (1, 0, 12), (2, 0, 2)]


def test_the_first_batch_again_begins_where_it_began(store):
    append(store, 0, 3)
    reader = reader_of(store, startingOffsets="latest")
    start = reader.initialOffset()
    append(store, 0, 2)
    assert reader.initialOffset() == start
    end, ranges = batch(reader, start)
    assert ranges == [(0, 3, 5)]
    append(store, 0, 10)
    restarted = reader_of(store, startingOffsets="latest")
    assert restarted.initialOffset()["t"] == {"0": 15, "1": 0}
    assert plan(restarted, restarted.initialOffset(), end) == [(0, 3, 5)]
    assert batch(restarted, end)[1] == [(0, 5, 15)]


def test_the_limit_is_shared_and_reported_ends_are_not_limited(store):
    append(store, 0, 30)
    append(store, 1, 10)
    reader = reader_of(store, maxOffsetsPerTrigger="8")
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    end, ranges = batch(reader, reader.initialOffset(), ReadMaxRows(8))
    assert ranges == [(0, 0, 6), (1, 0, 2)]
    assert reader.reportLatestOffset() == {"t": {"0": 30, "1": 10}}
    assert batch(reader, end)[1] == [(0, 6, 30), (1, 2, 10)]
    assert reader_of(store).getDefaultReadLimit() == ALL


def test_large_ranges_are_split_also_those_of_a_limited_batch(store):
    append(store, 0, 30)
    append(store, 1, 4)
    reader = reader_of(store, maxOffsetsPerTrigger="17", maxRecordsPerPartition="6", minPartitions="2")
    end, ranges = batch(reader, reader.initialOffset(), ReadMaxRows(17))
    assert ranges == [(0, 0, 5), (0, 5, 10), (0, 10, 15), (1, 0, 2)]
    assert batch(reader, end)[1] == [(0, 15, 20), (0, 20, 25), (0, 25, 30), (1, 2, 4)]
    assert batch(reader_of(store, minPartitions="3"), end)[1] == [(0, 15, 22), (0, 22, 30), (1, 2, 4)]


def test_available_now_ends_where_it_was_when_it_began(store):
    append(store, 0, 5)
    reader = reader_of(store)
    reader.prepareForTriggerAvailableNow()
    append(store, 0, 5)
    append(store, 1, 1)
    end, ranges = batch(reader, reader.initialOffset())
    assert ranges == [(0, 0, 5)]
    assert reader.latestOffset(end, ALL) == end


def test_available_now_never_goes_back(store):
    append(store, 0, 5)
    reader = reader_of(store)
    reader.prepareForTriggerAvailableNow()
    append(store, 0, 5)
    ahead, _ = batch(reader_of(store), reader.initialOffset())
    assert ahead["t"] == {"0": 10, "1": 0}
    assert reader.latestOffset(ahead, ALL) == ahead


def test_specific_and_timed_starts(store):
    store.append("t", pa.record_batch({"value": [b"a", b"b"], "timestamp": [1000, 2000]}), partition=0)
    store.append("t", pa.record_batch({"value": [b"c"], "timestamp": [3000]}), partition=1)
    specific = reader_of(store, startingOffsets='{"t":{"0":-1,"1":-2}}')
    assert specific.initialOffset()["t"] == {"0": 2, "1": 0}
    with pytest.raises(ConnectorError, match=r"\[PYLOG_START_OFFSET_DOES_NOT_MATCH_ASSIGNED\]"):
        reader_of(store, startingOffsets='{"t":{"0":0}}').initialOffset()
    assert reader_of(store, startingTimestamp="1500").initialOffset()["t"] == {"0": 1, "1": 0}
    with pytest.raises(ConnectorError, match="No offset matched from request of topic-partition t-0"):
        reader_of(store, startingTimestamp="2001").initialOffset()


def test_a_start_beyond_the_end_is_data_loss_after_some_tries(store):
    append(store, 0, 1)
    reader = reader_of(store, startingOffsets='{"t":{"0":2,"1":0}}', fetchOffset__retryIntervalMs="1")
    with pytest.raises(ConnectorError, match=r"\[PYLOG_DATA_LOSS.PARTITION_OFFSET_CHANGED\].*start offset is too high"):
        reader.latestOffset(reader.initialOffset(), ALL)
    append(store, 0, 1)
    assert batch(reader, reader.initialOffset())[1] == []


def test_a_range_that_is_gone_is_data_loss_in_the_task(store):
    append(store, 0, 3)
    reader = reader_of(store)
    (work,) = reader.partitions(reader.initialOffset(), {"t": {"0": 4, "1": 0}, "@": {"group": "g"}})
    with pytest.raises(ConnectorError, match=r"\[PYLOG_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE\].*\[0, 4\).*t-0"):
        list(reader.read(work))


def committed(store, group):
    return {at.partition: kept.offset for at, kept in OffsetsLog(store).fetch(group).items()}


def test_offsets_are_committed_when_a_batch_is_done(store):
    append(store, 0, 5)
    reader = reader_of(store, groupIdPrefix="team")
    start = reader.initialOffset()
    end, _ = batch(reader, start)
    group = own_of(end)["group"]
    assert group.startswith("team-")
    # It can be seen that it has all before it.
    assert committed(store, group) == {0: 0, 1: 0}
    reader.commit(end)
    assert committed(store, group) == {0: 5, 1: 0}
    # After a restart the group is the same, and the last batch of Trigger.AvailableNow counts too.
    append(store, 0, 1)
    restarted = reader_of(store, groupIdPrefix="team")
    end, _ = batch(restarted, end)
    restarted.latestOffset(end, ALL)
    assert own_of(end)["group"] == group
    assert committed(store, group) == {0: 6, 1: 0}


def test_the_end_of_available_now_is_committed_where_commits_are_rare(store, monkeypatch):
    """As in an object store, where each is a decision."""
    monkeypatch.setattr(OffsetsLog, "interval_ms", 60_000)
    append(store, 0, 10)
    reader = reader_of(store, **{"kafka.group.id": "g", "maxOffsetsPerTrigger": "5"})
    reader.prepareForTriggerAvailableNow()
    end = reader.initialOffset()
    for _ in range(2):
        end = reader.latestOffset(end, ReadMaxRows(5))
        assert committed(store, "g") == {0: 0, 1: 0}
    assert reader.latestOffset(end, ReadMaxRows(5)) == end
    assert committed(store, "g") == {0: 10, 1: 0}


def test_an_unchanged_position_is_not_committed_again(store):
    append(store, 0, 5)
    reader = reader_of(store, kafka__group__id="mine")
    end, _ = batch(reader, reader.initialOffset())
    for _ in range(3):
        reader.commit(end)
        reader.latestOffset(end, ALL)
    log = sum(store.latest_offset("__consumer_offsets", number) for number in range(50))
    assert log == 3  # a record for each partition of the topic at the start, and one for the partition that has moved


def test_a_new_query_moves_nothing_that_its_group_has_committed(store):
    """Before it has done anything."""
    append(store, 0, 5)
    store.groups["mine"].commit({TopicPartition("t", 0): 2})
    reader = reader_of(store, kafka__group__id="mine", startingOffsets="latest")
    append(store, 0, 1)
    end, _ = batch(reader, reader.initialOffset())
    assert committed(store, "mine") == {0: 2, 1: 0}
    reader.commit(end)
    assert committed(store, "mine") == {0: 6, 1: 0}


def test_a_query_is_seen_in_its_group(store):
    """As long as its process lives; a restart is seen at once, also if there is nothing to read."""
    append(store, 0, 5)
    reader = reader_of(store, kafka__group__id="mine")
    end, _ = batch(reader, reader.initialOffset())
    reader.commit(end)
    assert query_of(store.groups["mine"].committed()).process == Process.here()
    assert take_snapshot(store).groups["mine"].state == "Query"
    ended = subprocess.Popen(["true"])
    text = f"spark-query {ended.pid} {Process.of(ended.pid).birth} {socket.gethostname()}"
    ended.wait()
    store.groups["mine"].commit({TopicPartition("t", 0): 5}, text)
    assert take_snapshot(store).groups["mine"].state == "Empty"
    store.groups["mine"].commit({TopicPartition("t", 0): 5}, f"spark-query 1 {'0' * 16}-1 another.host")
    assert query_of(store.groups["mine"].committed()).host == "another.host"
    assert take_snapshot(store).groups["mine"].state == "Query", "which may run there"
    restarted = reader_of(store, kafka__group__id="mine", queryName="copy orders")
    assert restarted.latestOffset(end, ALL) == end
    assert query_of(store.groups["mine"].committed())[1:3] == (Process.here(), "copy orders")
    store.groups["mine"].commit({TopicPartition("t", 0): 5}, "of another program")
    assert query_of(store.groups["mine"].committed()) is None


def test_a_commit_that_fails_does_not_end_the_query(store, monkeypatch, caplog):
    append(store, 0, 5)
    reader = reader_of(store, kafka__group__id="mine")
    end, _ = batch(reader, reader.initialOffset())

    def no_space(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(OffsetsLog, "commit", no_space)
        for _ in range(3):
            reader.commit(end)
    assert caplog.text.count("the offsets of group mine were not committed") == 1
    append(store, 0, 1)
    end, _ = batch(reader, end)
    reader.commit(end)
    assert committed(store, "mine") == {0: 6, 1: 0}


def test_nothing_is_written_where_nothing_may_be(store, monkeypatch):
    append(store, 0, 5)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    reader = reader_of(store, kafka__group__id="mine")
    end, _ = batch(reader, reader.initialOffset())
    reader.commit(end)
    assert "__consumer_offsets" not in store.topics(internal=True)


def test_output_that_a_dead_publisher_left_becomes_visible(store, monkeypatch):
    reader = reader_of(store)
    end, ranges = batch(reader, reader.initialOffset())
    assert ranges == []

    def killed(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "apply_decision", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(store.decisions, "p", 0, stage(store, values(4)))
    assert sum(store.logs.reader("t", number).state().next_offset for number in range(2)) == 0

    _, ranges = batch(reader, end)
    assert sum(stop - start for _, start, stop in ranges) == 4


def test_output_that_cannot_be_made_visible_does_not_end_the_query(store, monkeypatch, caplog):
    def damaged(_store):
        raise StagedOutputError("its manifest is missing")

    monkeypatch.setattr(pending, "help_apply", damaged)
    append(store, 0, 2)
    reader = reader_of(store)
    end, ranges = batch(reader, reader.initialOffset())
    reader.latestOffset(end, ALL)
    assert ranges == [(0, 0, 2)]
    assert caplog.text.count("its manifest is missing") == 1


def test_a_group_offset_is_not_moved_back(store):
    append(store, 0, 5)
    OffsetsLog(store).commit("shared", {TopicPartition("t", 0): 9})
    reader = reader_of(store, kafka__group__id="shared")
    end, _ = batch(reader, reader.initialOffset())
    reader.commit(end)
    assert committed(store, "shared") == {0: 9, 1: 0}


def lost(reader, start, match):
    with pytest.raises(ConnectorError, match=rf"\[PYLOG_DATA_LOSS\.{match}"):
        reader.latestOffset(through_json(start), ALL)


def test_a_pattern_finds_topics_that_come_later(store):
    append(store, 0, 2)
    source = DefaultSource({"path": store.path, "subscribePattern": "^t", "startingOffsets": "earliest"})
    reader = source.streamReader(source.schema())
    end, ranges = batch(reader, reader.initialOffset())
    assert ranges == [(0, 0, 2)]
    store.create_topic("t2", 1)
    store.create_topic("other", 1)
    for topic in ("t2", "other"):
        store.append(topic, values(3))
    end, ranges = batch(reader, end)
    assert ranges == [(0, 0, 3)]
    assert sorted(of_topics(end)) == ["t", "t2"]


def test_single_partitions_are_read(store):
    append(store, 0, 2)
    append(store, 1, 4)
    source = DefaultSource({"path": store.path, "assign": '{"t": [1, 7]}', "startingOffsets": "earliest"})
    reader = source.streamReader(source.schema())
    assert batch(reader, reader.initialOffset())[1] == [(1, 0, 4)]


def test_a_trigger_with_too_few_records_waits(store, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("pyspark_log.spark_connector.reading.stream_reader.time.monotonic", lambda: now[0])
    append(store, 0, 1)
    reader = reader_of(store, minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    end, ranges = batch(reader, reader.initialOffset(), limit)
    assert ranges == [(0, 0, 1)]  # The first one never waits.
    append(store, 0, 4)
    assert reader.latestOffset(end, limit) == end
    assert batch(reader_of(store, minOffsetsPerTrigger="5"), end, ALL)[1] == [(0, 1, 5)]  # Trigger.Once
    append(store, 1, 1)
    end, ranges = batch(reader, end, limit)
    assert ranges == [(0, 1, 5), (1, 0, 1)]
    append(store, 1, 1)
    assert reader.latestOffset(end, limit) == end
    now[0] += 10
    assert batch(reader, end, limit)[1] == [(1, 1, 2)]


def test_a_query_that_retention_has_overtaken_can_continue(store):
    append(store, 0, 3)
    end, _ = batch(reader_of(store), reader_of(store).initialOffset())
    append(store, 0, 5)
    store.delete_records("t", 0, 6)
    strict, lenient = reader_of(store), reader_of(store, failOnDataLoss="false")
    later, ranges = batch(lenient, end)
    assert ranges == [(0, 3, 8)]
    (work,) = lenient.partitions(end, later)
    assert [offset for rows in lenient.read(work) for offset in rows["offset"].to_pylist()] == [6, 7]
    (work,) = strict.partitions(end, later)
    with pytest.raises(ConnectorError, match=r"COULD_NOT_READ_OFFSET_RANGE\] .* failOnDataLoss"):
        list(strict.read(work))
    store.delete_records("t", 0, 8)
    (work,) = lenient.partitions(end, later)
    assert list(lenient.read(work)) == []


def test_a_query_can_continue_without_a_deleted_or_recreated_topic(store):
    store.create_topic("u", 1)
    store.append("u", values(2))
    append(store, 0, 3)
    # Neither waits for a topic to become as long as the one before.
    options = {"subscribe": "t,u", "fetchOffset__retryIntervalMs": "900000"}
    strict, lenient = reader_of(store, **options), reader_of(store, failOnDataLoss="false", **options)
    end, _ = batch(lenient, lenient.initialOffset())
    store.delete_topic("u")
    lost(strict, end, "PARTITIONS_DELETED")
    without, ranges = batch(lenient, end)
    assert ranges == []
    assert sorted(of_topics(without)) == ["t"]
    store.create_topic("u", 1)
    store.append("u", values(1))
    lost(strict, end, r"PARTITIONS_DELETED\] Partitions u-0 have been deleted: topic 'u' was deleted and recreated")
    # The group gets no offsets of the topic before.
    lenient.commit(end)
    (group,) = OffsetsLog(store).groups()
    assert {at.topic for at in OffsetsLog(store).fetch(group)} == {"t"}
    # A new topic is read from its first record.
    assert batch(lenient, without)[1] == [(0, 0, 1)]
    assert batch(lenient, end)[1] == [(0, 0, 1)]
    (work,) = lenient.partitions(end, lenient.latestOffset(end, ALL))
    assert sum(rows.num_rows for rows in lenient.read(work)) == 1


def test_a_batch_that_found_a_topic_is_run_again_without_it(store):
    append(store, 0, 2)

    def of_pattern(**more):
        source = DefaultSource({"path": store.path, "subscribePattern": "^t", "startingOffsets": "earliest", **more})
        return source.streamReader(source.schema())

    first, _ = batch(of_pattern(), of_pattern().initialOffset())
    append(store, 0, 1)
    store.create_topic("t2", 1)
    store.append("t2", values(3))
    second, ranges = batch(of_pattern(), first)
    assert ranges == [(0, 2, 3), (0, 0, 3)]
    store.delete_topic("t2")
    assert plan(of_pattern(failOnDataLoss="false"), first, second) == [(0, 2, 3)]
    with pytest.raises(ConnectorError, match=r"\[PYLOG_DATA_LOSS.PARTITIONS_DELETED\] Added partition t2-0"):
        plan(of_pattern(), first, second)


def test_a_topic_that_was_never_there_is_an_error_all_the_same(store):
    with pytest.raises(ConnectorError, match=r"\[PYLOG_UNKNOWN_TOPIC"):
        reader_of(store, subscribe="t,nosuch", failOnDataLoss="false").initialOffset()


def test_a_topic_that_a_restarted_query_does_not_find_is_no_lost_data(store):
    append(store, 0, 1)
    end, _ = batch(reader_of(store, subscribe="t"), reader_of(store, subscribe="t").initialOffset())
    with pytest.raises(ConnectorError, match=r"\[PYLOG_UNKNOWN_TOPIC.*'t3'"):
        reader_of(store, subscribe="t,t3").latestOffset(end, ALL)
    store.create_topic("t2", 1)
    store.delete_topic("t")
    with pytest.raises(ConnectorError, match=r"PARTITIONS_DELETED\] there is no topic 't'.*had read t-0, t-1"):
        reader_of(store, subscribe="t").latestOffset(end, ALL)


def test_partitions_that_the_options_do_not_name_any_more_can_be_gone_on_without(store):
    append(store, 0, 3)
    append(store, 1, 3)
    end, _ = batch(reader_of(store), reader_of(store).initialOffset())
    append(store, 0, 1)

    def of_one(**more):
        source = DefaultSource({"path": store.path, "assign": '{"t":[0]}', **more})
        return source.streamReader(source.schema())

    lost(of_one(), end, r"PARTITIONS_DELETED\] The query had read partitions t-1, which its options do not name")
    # No trigger waits for a partition that is gone for good.
    lenient = of_one(failOnDataLoss="false", **{"fetchOffset.retryIntervalMs": "900000"})
    assert batch(lenient, end)[1] == [(0, 3, 4)]


def test_a_new_query_starts_at_a_groups_committed_offsets(store):
    append(store, 0, 5)
    options = {"kafka__group__id": "mine", "startingOffsets": "group"}
    reader = reader_of(store, **options)
    end, ranges = batch(reader, reader.initialOffset())
    assert ranges == [(0, 0, 5)]  # The group is new.
    reader.commit(end)
    append(store, 0, 2)
    append(store, 1, 3)
    again = reader_of(store, **options)
    assert batch(again, again.initialOffset())[1] == [(0, 5, 7), (1, 0, 3)]
    # Retention has overtaken the group.
    store.delete_records("t", 0, 6)
    late = reader_of(store, **options)
    start = late.initialOffset()
    (work, _) = late.partitions(start, late.latestOffset(start, ALL))
    with pytest.raises(ConnectorError, match=r"PYLOG_DATA_LOSS\.COULD_NOT_READ_OFFSET_RANGE"):
        list(late.read(work))


def test_slow_planning_says_which_step_takes_the_time(store, monkeypatch, caplog):
    append(store, 0, 1)
    reader = reader_of(store)
    start = reader.initialOffset()
    once = [0, 0.1, 0.15, 0.4, 0.4, 0.425, 0.95, 1.2]
    # At once again, after a minute, and quickly after another one.
    times = iter([*once, *(2 + at for at in once), *(61.05 + at for at in once), *(122 + at / 2 for at in once)])
    monkeypatch.setattr(reader, "_steps", Steps(times.__next__))
    for _ in range(4):
        reader.latestOffset(start, ReadMaxRows(1))
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"{store.path}: planned a micro-batch in 1.2 s: store 100 ms, topics 50 ms, group 250 ms, "
        "pending publishes 0 ms, ends 25 ms, begins 525 ms, limits 250 ms"
    ] * 2


def test_one_task_can_read_several_partitions(store):
    append(store, 0, 2)
    append(store, 1, 3)
    reader = reader_of(store, partitionsPerTask="2")
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, ALL))
    found = [(rows["partition"][0].as_py(), rows.num_rows) for rows in reader.read(task)]
    assert found == [(0, 2), (1, 3)]
    three = reader_of(store, partitionsPerTask="2", maxRecordsPerPartition="2")
    tasks = three.partitions(start, three.latestOffset(start, ALL))
    assert [sum(rows.num_rows for rows in three.read(task)) for task in tasks] == [3, 2]


def test_small_partitions_share_a_task_by_their_bytes(store):
    store.add_partitions("t", 4)
    large = pa.record_batch({"value": [os.urandom(100_000)] * 50})
    store.append("t", large, partition=1)
    append(store, 0, 2)
    append(store, 2, 3)
    append(store, 3, 1)
    reader = reader_of(store, partitionsPerTask="Auto")
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, ALL))
    found = [[rows["partition"][0].as_py() for rows in reader.read(task)] for task in tasks]
    # Neighbours only; and what is large is alone.
    assert [sorted(set(numbers)) for numbers in found] == [[0], [1], [2, 3]]
