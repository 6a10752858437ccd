"""Folders of Kafka brokers with `format("pylog")`, and `kafka.isolation.level`."""

import shutil

import pytest
from chispa import assert_df_equality
from spark_tools import all_values_in, batch_sizes, fails, fill, read, read_stream, values_of, write, write_stream

from pyspark_log import Store
from pyspark_log.storage.catalog import log_dirs
from tests.crash.numbered import batch, end_transaction


def write_part(store, sequence, value):
    store.append_batch("t", 0, batch(sequence, [value], 1, transactional=True))


def finish(store, *, commit):
    end_transaction(store, "t", 0, 1, commit=commit)


@pytest.fixture
def logs(store, tmp_path, monkeypatch):
    """A store's folder of logs, as a broker's: plain records, and an aborted, a committed and an open transaction."""
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    fill(store, "t", ["plain"], range(20))
    write_part(store, 0, b"aborted")
    finish(store, commit=False)
    write_part(store, 1, b"committed")
    finish(store, commit=True)
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
    finish(store, commit=True)
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
