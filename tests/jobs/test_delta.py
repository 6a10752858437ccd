"""Loads into a Delta table, read back with delta-rs."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_tools import committed, fill, rows_of

from pyspark_log.jobs import bulk_load
from pyspark_log.jobs.export import run
from tests.store_tools import Stopped

deltalake = pytest.importorskip("deltalake", reason="needs deltalake: pip install '.[delta]'")


@pytest.fixture
def lake(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def load(spark, store, lake):
    """Runs the job; returns its exit code."""
    return lambda *arguments: bulk_load.main([store.path, str(lake), "--delta", *arguments])


def rows_in(lake):
    names = ["topic", "partition", "offset", "value"]
    rows = deltalake.DeltaTable(str(lake)).to_pyarrow_table(columns=names).to_pylist()
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_each_load_is_a_version(load, store, lake):
    fill(store, "a", 2, 3000)
    fill(store, "b", 1, 30)
    assert load("--topics", "a,b") == 0
    fill(store, "a", 2, 50)
    assert load("--topics", "a,b") == 0
    assert load("--topics", "a,b") == 0
    table = deltalake.DeltaTable(str(lake))
    assert table.version() == 1
    assert table.metadata().partition_columns == ["topic", "date"]
    assert rows_in(lake) == rows_of(store, "a", "b")
    first = deltalake.DeltaTable(str(lake), version=0)
    assert first.to_pyarrow_table(columns=["offset"]).num_rows == 6030
    # Two days of records.
    assert set(table.to_pyarrow_table(columns=["date"])["date"].unique().to_pylist()) == {
        day.as_py() for day in pq.read_table(lake, columns=["date"])["date"].unique().cast("date32")
    }


def test_times_in_values(load, store, lake):
    store.create_topic("t", 1)
    times = b'{"at": "2026-01-02T03:04:05Z", "local": "2026-01-02 03:04:05", "day": "2026-01-02"}'
    store.append("t", pa.record_batch({"value": [times]}))
    assert load("--topics", "t", "--schema", "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE") == 0
    [row] = deltalake.DeltaTable(str(lake)).to_pyarrow_table(columns=["at", "local", "day"]).to_pylist()
    local = datetime(2026, 1, 2, 3, 4, 5)
    assert row == {"at": local.replace(tzinfo=UTC), "local": local, "day": local.date()}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before the version", "after the version"])
def test_a_load_that_is_stopped_there_adds_its_files_once(load, store, lake, monkeypatch, where):
    fill(store, "a", 1, 100)
    add = run.add_version

    def stop(*arguments):
        if where == "after the version":
            add(*arguments)
        raise Stopped

    monkeypatch.setattr(run, "add_version", stop)
    with pytest.raises(Stopped):
        load("--topics", "a")
    assert committed(store) == {}
    assert deltalake.DeltaTable.is_deltatable(str(lake)) == (where == "after the version")
    monkeypatch.undo()
    fill(store, "a", 1, 10)
    assert load("--topics", "a") == 0
    assert rows_in(lake) == rows_of(store, "a")
    assert deltalake.DeltaTable(str(lake)).version() == 1


def test_other_columns_are_refused(load, store, lake, capsys):
    fill(store, "a", 1, 100)
    assert load("--topics", "a") == 0
    fill(store, "a", 1, 100)
    assert load("--topics", "a", "--headers") == 1
    assert "the table has other columns" in capsys.readouterr().err
    assert len(rows_in(lake)) == 100


@pytest.mark.slow
def test_small_files_are_merged(load, store, lake, capsys):
    fill(store, "a", 3, 50)
    assert load("--topics", "a") == 0
    fill(store, "a", 3, 20)
    capsys.readouterr()
    assert load("--topics", "a", "--compact", "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["files"], figures["files_merged"], figures["merged_into"]) == (3, 6, 1)
    assert len(deltalake.DeltaTable(str(lake)).file_uris()) == 1
    assert rows_in(lake) == rows_of(store, "a")
    # Later loads continue, and an older version can still be read.
    fill(store, "a", 3, 5)
    assert load("--topics", "a") == 0
    assert rows_in(lake) == rows_of(store, "a")
    assert deltalake.DeltaTable(str(lake), version=1).to_pyarrow_table(columns=["offset"]).num_rows == 210


def test_files_of_no_table_are_not_merged(spark, store, lake, capsys):
    assert bulk_load.main([store.path, str(lake), "--topics", "a", "--compact"]) == 2
    assert "--compact needs --delta" in capsys.readouterr().err
