"""Offsets are of one store and its topics, not of whatever has the same names later; without a Spark session."""

import json
import os
import shutil

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_log import DefaultSource, Store
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.catalog.kafka_files import META_PROPERTIES, PARTITION_METADATA
from pyspark_log.storage.catalog.topics import new_id
from pyspark_log.storage.groups.offsets import OffsetsLog
from tests.query_offsets import own_of

ALL = ReadAllAvailable()
RECREATED = r"\[PYLOG_DATA_LOSS.PARTITIONS_DELETED\] Partitions t-0, t-1 .*topic 't' .*recreated"
ANOTHER_STORE = r"\[PYLOG_DATA_LOSS.PARTITIONS_DELETED\] Partitions t-0, t-1 .*another store"


@pytest.fixture
def store(tmp_path):
    store = Store.create(tmp_path / "store")
    fill(store, 5)
    return store


def fill(store, count):
    """Makes the topic and appends some values to its first partition."""
    store.create_topic("t", 2)
    append(store, count)


def append(store, count):
    store.append("t", pa.record_batch({"value": [b"v"] * count}), partition=0)


def make_again(store):
    """The topic is deleted and recreated, with more records than before."""
    store.delete_topic("t")
    fill(store, 8)


def replace(store):
    """Another store is put in the place of this one."""
    os.rename(store.path, store.path + ".gone")
    fill(Store.create(store.path), 8)


def source_of(path, **options):
    return DefaultSource({"path": str(path), "subscribe": "t", **options})


def stream_of(path, **options):
    """A new streaming reader, as after a start of the query."""
    source = source_of(path, startingOffsets="earliest", **options)
    return source.streamReader(source.schema())


def through_json(offset):
    return json.loads(json.dumps(offset))


def next_end(reader, start):
    return through_json(reader.latestOffset(through_json(start), ALL))


def rows_of(reader, start, end):
    return sum(rows.num_rows for work in reader.partitions(start, end) for rows in reader.read(work))


CHANGES = [(make_again, RECREATED), (replace, ANOTHER_STORE)]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_query_does_not_continue_in_a_namesake(store, change, message, restarted):
    reader = stream_of(store.path)
    end = next_end(reader, reader.initialOffset())
    assert rows_of(reader, {}, end) == 5
    change(store)
    if restarted:
        reader = stream_of(store.path)
    with pytest.raises(ConnectorError, match=message):
        reader.latestOffset(end, ALL)
    # A position in it would be one in other records.
    with pytest.raises(ConnectorError, match=message):
        reader.commit(end)
    assert OffsetsLog(Store.open(store.path)).groups() == []


def test_a_query_that_is_started_with_another_path(store, tmp_path):
    reader = stream_of(store.path)
    end = next_end(reader, reader.initialOffset())
    fill(Store.create(tmp_path / "other"), 8)
    with pytest.raises(ConnectorError, match=ANOTHER_STORE):
        stream_of(tmp_path / "other").latestOffset(end, ALL)


def test_a_copy_of_the_store_is_the_same_store(store, tmp_path):
    reader = stream_of(store.path)
    end = next_end(reader, reader.initialOffset())
    append(store, 3)
    shutil.move(store.path, tmp_path / "moved")
    reader = stream_of(tmp_path / "moved")
    assert rows_of(reader, end, next_end(reader, end)) == 3


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_batch_that_was_planned_before(store, change, message):
    """Batch 0 is run again after a restart; where it began, the new start offset no longer says."""
    reader = stream_of(store.path)
    end = next_end(reader, reader.initialOffset())
    change(store)
    restarted = stream_of(store.path)
    with pytest.raises(ConnectorError, match=message):
        restarted.partitions(restarted.initialOffset(), end)


def test_between_the_first_offset_and_the_first_batch(store):
    reader = stream_of(store.path)
    start = through_json(reader.initialOffset())
    make_again(store)
    with pytest.raises(ConnectorError, match=RECREATED):
        reader.latestOffset(start, ALL)


def test_a_topic_that_is_gone_and_not_recreated(store):
    reader = stream_of(store.path)
    end = next_end(reader, reader.initialOffset())
    store.delete_topic("t")
    for look in (lambda: reader.latestOffset(end, ALL), lambda: reader.partitions(end, end)):
        with pytest.raises(ConnectorError, match=r"\[PYLOG_DATA_LOSS.PARTITIONS_DELETED\].*no topic 't'"):
            look()


@pytest.fixture(params=["batch", "stream"])
def planned(request, store):
    """A reader, and what one of its tasks is to read."""
    if request.param == "stream":
        reader = stream_of(store.path)
        start = reader.initialOffset()
        (work,) = reader.partitions(start, next_end(reader, start))
    else:
        source = source_of(store.path)
        reader = source.reader(source.schema())
        work, _ = reader.partitions()
    return reader, work


def test_a_task_does_not_read_what_was_made_after_the_plan(store, planned):
    reader, work = planned
    make_again(store)
    with pytest.raises(ConnectorError, match=r"PYLOG_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE\].*t-0.*recreated"):
        list(reader.read(work))


def test_a_task_whose_topic_is_gone(store, planned):
    reader, work = planned
    store.delete_topic("t")
    with pytest.raises(ConnectorError, match=r"PYLOG_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE\].*t-0.*no topic 't'"):
        list(reader.read(work))


@pytest.mark.parametrize("own", [{}, {"@": {"group": "g"}}])
def test_offsets_without_ids_get_them_with_the_first_look(store, own):
    """Those of the Kafka connector, and of earlier versions; also where there is nothing new to read."""
    end = next_end(stream_of(store.path), {"t": {"0": 5, "1": 0}, **own})
    assert end["t"] == {"0": 5, "1": 0}
    assert own_of(end)["cluster_id"] == store.cluster_id
    assert own_of(end)["topic_ids"] == {"t": store.describe_topic("t").topic_id}
    reader = stream_of(store.path)
    assert next_end(reader, end) == end
    make_again(store)
    with pytest.raises(ConnectorError, match=RECREATED):
        reader.latestOffset(end, ALL)


def test_a_batch_of_an_earlier_version_is_run_again(store):
    end = {"t": {"0": 4, "1": 0}, "@": {"group": "g", "start": {"t": {"0": 1, "1": 0}}}}
    reader = stream_of(store.path)
    assert rows_of(reader, reader.initialOffset(), end) == 3


@pytest.fixture
def logs(store, tmp_path, monkeypatch):
    """The folder of a broker that keeps no ids: neither the cluster's nor the topics'."""
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    store.append("t", pa.record_batch({"value": [b"v"]}), partition=1)
    store.close()
    logs = tmp_path / "logs"
    shutil.copytree(f"{store.path}/data", logs)
    os.unlink(logs / META_PROPERTIES)
    for number in range(2):
        os.unlink(logs / f"t-{number}" / PARTITION_METADATA)
    return logs


def test_a_brokers_folder_without_ids(logs, tmp_path):
    """An id that is made up from a name says nothing of what has that name later, or elsewhere."""
    reader = stream_of(logs)
    start = reader.initialOffset()
    end = next_end(reader, start)
    assert rows_of(reader, start, end) == 6
    assert own_of(end).keys() == {"group", "start"}
    shutil.copytree(logs, tmp_path / "copy")
    assert next_end(stream_of(tmp_path / "copy"), end) == end


def test_a_brokers_folder_that_gets_ids(store, logs, tmp_path):
    """As when a broker is brought to a version that writes them."""
    reader = stream_of(logs)
    end = next_end(reader, reader.initialOffset())
    topic_id = store.describe_topic("t").topic_id
    for number in range(2):
        shutil.copy(f"{store.path}/data/t-{number}/{PARTITION_METADATA}", logs / f"t-{number}")
    end = next_end(reader, end)
    assert own_of(end)["topic_ids"] == {"t": topic_id}
    another = new_id()
    for number in range(2):
        path = logs / f"t-{number}" / PARTITION_METADATA
        (tmp_path / "other").write_text(path.read_text().replace(topic_id, another))
        os.replace(tmp_path / "other", path)
    with pytest.raises(ConnectorError, match=RECREATED):
        reader.latestOffset(end, ALL)
