"""Folders of Kafka brokers with `format("pylog")`, and `kafka.isolation.level`."""

import shutil
import struct
import time

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from spark_tools import all_values_in, batch_sizes, fails, fill, read, read_stream, values_of, write, write_stream

from pyspark_log import Store
from pyspark_log.storage.catalog import log_dir
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns

NOW = int(time.time() * 1000)


def batch(key, value, **fields):
    """A batch of one record, as a client of Kafka sends it."""
    builder = BatchBuilder(1000, 1000, "none")
    columns = (pa.array([one], pa.binary()) for one in (key, value))
    builder.append(RecordColumns(*columns, pa.array([NOW]), None, NOW), None, 0, 1)
    return builder.seal(producer_id=1, producer_epoch=0, transactional=True, **fields)


def write_part(store, sequence, value):
    store.append_batch("t", 0, batch(None, value, base_sequence=sequence))


def end_transaction(store, *, commit):
    with store.logs.writer("t", 0).hold() as writer:
        marker = batch(struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0), control=True)
        writer.append(bytearray(marker), sync=False)


@pytest.fixture
def logs(store, tmp_path, monkeypatch):
    """A store's folder of logs, as a broker's: plain records, and an aborted, a committed and an open transaction."""
    monkeypatch.setattr(log_dir, "INTERVAL", 0)
    fill(store, "t", ["plain"], range(20))
    write_part(store, 0, b"aborted")
    end_transaction(store, commit=False)
    write_part(store, 1, b"committed")
    end_transaction(store, commit=True)
    write_part(store, 2, b"open")
    store.close()
    shutil.copytree(f"{store.path}/data", tmp_path / "logs")
    return Store.open(tmp_path / "logs")


COMMITTED = {"kafka.isolation.level": "read_committed"}
NUMBERS = [str(number) for number in range(20)]


def test_a_brokers_folder_is_read_as_a_store_is(spark, store, logs):
    assert_df_equality(read(spark, logs, "t"), read(spark, store, "t"))
    seen = sorted([*NUMBERS, "plain", "committed"])
    assert values_of(read(spark, logs, "t")) == sorted([*seen, "aborted", "open"])
    assert values_of(read(spark, logs, "t", **COMMITTED)) == values_of(read(spark, store, "t", **COMMITTED)) == seen


@pytest.mark.slow
def test_a_brokers_folder_is_followed(spark, store, logs, tmp_path):
    df = read_stream(spark, logs, "t", **COMMITTED)
    write_stream(df, store, tmp_path / "cp", topic="out")
    assert all_values_in(store, "out") == sorted([*NUMBERS, "plain", "committed"])
    # The open transaction is committed: the broker's log grows.
    end_transaction(store, commit=True)
    store.close()
    shutil.copytree(f"{store.path}/data", tmp_path / "logs", dirs_exist_ok=True)
    assert batch_sizes(write_stream(df, store, tmp_path / "cp", topic="out")) == [1]
    assert all_values_in(store, "out") == sorted([*NUMBERS, "plain", "committed", "open"])


def test_a_brokers_folder_is_not_written_to(spark, logs, tmp_path):
    before = sorted((tmp_path / "logs").rglob("*"))
    df = spark.createDataFrame([("x",)], "value string")
    with fails("PYLOG_READ_ONLY", "Kafka broker.s folder"):
        write(df, logs, topic="t")
    with fails("PYLOG_READ_ONLY", "Kafka broker.s folder"):
        write_stream(read_stream(spark, logs, "t"), logs, tmp_path / "cp", topic="out")
    assert sorted((tmp_path / "logs").rglob("*")) == before


def test_another_isolation_level_is_refused(spark, logs):
    with fails("kafka.isolation.level = 'committed': must be read_uncommitted or read_committed"):
        read(spark, logs, "t", **{"kafka.isolation.level": "committed"})
