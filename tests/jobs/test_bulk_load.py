"""`pyspark_log/jobs/bulk_load.py` in this process: what is in the files, and what the next call loads."""

import itertools
import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_tools import HOUR, T0, committed, files_in, fill, left_over, rows_in, rows_of

from pyspark_log import Store, TopicPartition
from pyspark_log.jobs import bulk_load
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.groups import NEVER
from tests.crash.numbered import batch
from tests.stops import StopBefore, run_until, stop_before
from tests.store_tools import faults, observed


@pytest.fixture
def target(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def load(spark, store, target):
    """Runs the job; returns its exit code."""
    return lambda *arguments: bulk_load.main([store.path, str(target), *arguments])


def test_each_call_loads_what_came_since_the_last(load, store, target, capsys):
    fill(store, "a", 2, 100)
    fill(store, "b", 1, 30)
    assert load("--topics", "a,b", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert {name: summary[name] for name in ("rows", "files")} == {"rows": 230, "files": 3}
    assert rows_in(target) == rows_of(store, "a", "b")
    assert committed(store) == {"a-0": 100, "a-1": 100, "b-0": 30}
    # A quiet partition must find its place after any time.
    assert {one.expire_timestamp for one in store.groups["bulk-load"].committed().values()} == {NEVER}
    fill(store, "a", 2, 50)
    assert load("--topics", "a,b") == 0
    assert "rows             100\n" in capsys.readouterr().out
    assert files_in(target) == [
        f"topic={topic}/date=2026-01-01/{topic}-{numbers}.parquet"
        for topic, *all_numbers in (("a", "0-0-100", "0-100-150", "1-0-100", "1-100-150"), ("b", "0-0-30"))
        for numbers in all_numbers
    ]
    assert rows_in(target) == rows_of(store, "a", "b")
    assert load("--topics", "a,b") == 0
    assert "files            0\n" in capsys.readouterr().out
    assert left_over(target) == []
    assert faults(store.path) == []


@pytest.mark.slow
def test_spark_reads_the_files_as_one_table(load, spark, store, target):
    fill(store, "a", 2, 3000)
    assert load("--topics", "a") == 0
    table = spark.read.parquet(str(target))
    assert table.columns == ["key", "value", "partition", "offset", "timestamp", "timestampType", "topic", "date"]
    assert [(str(row.date), row["count"]) for row in table.groupBy("date").count().orderBy("date").collect()] == [
        ("2026-01-01", 2880),
        ("2026-01-02", 2880),
        ("2026-01-03", 240),
    ]
    assert table.where("topic = 'a' and partition = 1 and offset = 77").count() == 1


def test_all_other_options(load, store, target):
    fill(store, "first.topic", 1, 100)
    fill(store, "other", 1, 10)
    assert load(
        "--pattern", "^first", "--partition-by", "topic,hour", "--codec", "snappy", "--columns", "offset,timestamp",
        "--headers", "--max-records-per-file", "25", "--group", "g", "--max-records-per-task", "80",
    ) == 0  # fmt: skip
    folder = "topic=first.topic/date=2026-01-01/hour=0"
    assert files_in(target) == [
        f"{folder}0/first.topic-0-0-80-1.parquet",
        f"{folder}0/first.topic-0-0-80-2.parquet",
        f"{folder}0/first.topic-0-0-80.parquet",
        f"{folder}1/first.topic-0-0-80.parquet",
        f"{folder}1/first.topic-0-80-100.parquet",
    ]
    one = pq.ParquetFile(target / f"{folder}0/first.topic-0-0-80-2.parquet")
    assert one.schema_arrow.names == ["offset", "timestamp", "headers"]
    assert one.metadata.row_group(0).column(0).compression == "SNAPPY"
    assert one.read()["offset"].to_pylist() == list(range(50, 60))
    assert committed(store, "g") == {"first.topic-0": 100}


@pytest.mark.slow
def test_records_out_of_the_order_of_time_are_in_their_folders_in_order(load, store, target):
    store.create_topic("t", 1, {"retention.ms": "-1"})
    days = [n * n % 11 for n in range(1000)]
    store.append("t", pa.record_batch({"value": [b"v"] * 1000, "timestamp": [T0 + day * 24 * HOUR for day in days]}))
    assert load("--topics", "t") == 0
    for day in set(days):
        (found,) = (target / f"topic=t/date=2026-01-{1 + day:02}").iterdir()
        assert pq.ParquetFile(found).read()["offset"].to_pylist() == [n for n in range(1000) if days[n] == day]


@pytest.mark.slow
def test_more_folders_than_open_files(load, store, target):
    store.create_topic("t", 1, {"retention.ms": "-1"})
    for _ in range(2):
        times = [T0 + day * 24 * HOUR for day in range(150)]
        store.append("t", pa.record_batch({"value": [b"x" * 300_000] * 150, "timestamp": times}))
    assert load("--topics", "t") == 0
    assert len(rows_in(target)) == 300
    assert rows_in(target) == rows_of(store, "t")


def test_records_without_a_time_have_a_folder(load, store, target):
    """A time that no calendar has is in the same folder."""
    store.create_topic("t", 1, {"retention.ms": "-1", "message.timestamp.after.max.ms": "9223372036854775807"})
    times = pa.array([-1, 10**15, T0], pa.int64())
    store.append("t", pa.record_batch({"value": ["none", "far", "one"], "timestamp": times}))
    assert load("--topics", "t") == 0
    found = [f"topic=t/date={day}/t-0-0-3.parquet" for day in ("2026-01-01", "__HIVE_DEFAULT_PARTITION__")]
    assert files_in(target) == found
    assert len(rows_in(target)) == 3


# ---- values in JSON

VALUES = [b'{"id": 1, "name": "a", "more": true}', b'{"name":\n "b"}', None, b"null"]
BAD = [b"", b"[1]", b'{"id": 1}{"id": 2}', b'{"id": "x"}', b"\xff", b'{"id": 3}}\n{"n":2,"v":{"id": 4}']


def load_values(load, store, values, *arguments):
    store.create_topic("t", 1)
    store.append("t", pa.record_batch({"value": pa.array(values, pa.binary())}))
    return load("--topics", "t", "--partition-by", "none", *arguments)


SCHEMAS = [
    "id INT, name STRING",
    '{"type": "object", "properties": {"id": {"type": ["integer", "null"]}, "name": {"type": "string"}}}',
    '{"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}, '
    '{"name": "name", "type": "string", "nullable": true, "metadata": {}}]}',
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_values_become_columns(load, store, target, schema):
    assert load_values(load, store, VALUES, "--schema", schema, "--columns", "offset") == 0
    assert pq.ParquetFile(target / "t-0-0-4.parquet").read().to_pylist() == [
        {"offset": 0, "id": 1, "name": "a"},
        {"offset": 1, "id": None, "name": "b"},
        {"offset": 2, "id": None, "name": None},
        {"offset": 3, "id": None, "name": None},
    ]


TIMES = [b'{"at": "2026-01-02T03:04:05.5+02:00", "local": "2026-01-02 03:04:05", "day": "2026-01-02"}', b"{}"]
NAMED = [("at", "timestamp"), ("local", "timestamp_ntz"), ("day", "date")]
TIME_SCHEMAS = [
    "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, days ARRAY<STRUCT<day: DATE>>",
    json.dumps({"type": "struct", "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in NAMED
    ]}),
    json.dumps({"type": "object", "properties": {
        "at": {"type": "string", "format": "date-time"}, "day": {"type": "string", "format": "date"},
    }}),
]  # fmt: skip


@pytest.mark.parametrize("schema", TIME_SCHEMAS)
def test_times_in_values(load, store, target, schema):
    assert load_values(load, store, TIMES, "--schema", schema, "--columns", "offset") == 0
    known = {
        "at": datetime(2026, 1, 2, 1, 4, 5, 500000, UTC),
        "local": datetime(2026, 1, 2, 3, 4, 5),
        "day": date(2026, 1, 2),
    }
    first, second = pq.ParquetFile(target / "t-0-0-2.parquet").read().to_pylist()
    assert first == {name: {"offset": 0, **known}.get(name) for name in first}
    assert len(first) >= 3
    assert second == {**dict.fromkeys(first), "offset": 1}


@pytest.mark.parametrize("value", BAD)
def test_a_value_that_does_not_fit_is_an_error_with_its_offset(load, store, target, capsys, value):
    assert load_values(load, store, [VALUES[0], value], "--schema", SCHEMAS[0]) == 1
    assert "[PYLOG_BAD_VALUE] the value at offset 1 does not fit the schema" in capsys.readouterr().err
    assert files_in(target) == []
    assert committed(store) == {}


def test_values_that_do_not_fit_can_be_null(load, store, target):
    """They do not move the values around them."""
    values = [one for bad in BAD for one in (bad, VALUES[0])]
    arguments = ["--schema", SCHEMAS[0], "--columns", "offset,value", "--bad-values", "null"]
    assert load_values(load, store, values, *arguments) == 0
    rows = pq.ParquetFile(next(target.glob("*.parquet"))).read().to_pylist()
    assert [row["value"] for row in rows] == values
    assert [(row["id"], row["name"]) for row in rows] == [(None, None), (1, "a")] * len(BAD)


# ---- what goes wrong

WRONG = [
    [],
    ["--topics", ","],
    ["--pattern", "("],
    ["--topics", "a", "--codec", "lzma"],
    ["--topics", "a", "--columns", "offset,size"],
    ["--topics", "a", "--schema", "id NUMBER"],
    ["--topics", "a", "--schema", "offset LONG"],
    ["--topics", "a", "--max-records-per-file", "0"],
    ["--topics", "a", "--schema", '{"type": "object", "properties": {"x": {"type": "any"}}}'],
]


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_call_has_code_2_and_changes_nothing(load, store, target, arguments):
    fill(store, "a", 1, 1)
    assert load(*arguments) == 2
    assert not target.exists()


def test_a_missing_topic(load, store, capsys):
    assert load("--topics", "a") == 1
    assert capsys.readouterr().err.startswith("Error: [PYLOG_UNKNOWN_TOPIC_OR_PARTITION] ")


@pytest.mark.slow
def test_two_runs_of_a_group_at_once(load, store, capsys):
    fill(store, "a", 1, 10)
    seen = []

    def another(change):
        if change.kind == "write" and change.path.endswith(".tmp") and not seen:
            seen.append(load("--topics", "a"))

    with observed(another):
        assert load("--topics", "a") == 0
    assert seen == [1]
    assert "another export of group 'bulk-load' is running" in capsys.readouterr().err


@pytest.mark.slow
def test_records_that_were_deleted_before_they_were_loaded(load, store, target, capsys):
    fill(store, "a", 1, 10)
    assert load("--topics", "a") == 0
    fill(store, "a", 1, 10)
    store.delete_records("a", 0, 15)
    assert load("--topics", "a") == 1
    assert "[PYLOG_DATA_LOSS] a-0: the records in offset [10, 15) were deleted" in capsys.readouterr().err
    assert load("--topics", "a", "--skip-lost") == 0
    assert [row[2] for row in rows_in(target)] == [*range(10), *range(15, 20)]


def test_records_that_are_deleted_after_the_plan(load, store, target, capsys):
    """The plan stays, and can be finished without them."""
    fill(store, "a", 1, 10)
    fill(store, "b", 1, 10)
    planned = stop_before(lambda change: change.kind == "write" and b'"files": [' in change.data)
    assert run_until(lambda: load("--topics", "a,b"), planned)
    store.delete_records("a", 0, 4)
    assert load("--topics", "a,b") == 1
    assert "--skip-lost continues after the deleted records" in capsys.readouterr().err
    assert load("--topics", "a,b", "--skip-lost") == 0
    assert [row[2] for row in rows_in(target)] == [*range(4, 10), *range(10)]
    assert files_in(target)[0].endswith("/a-0-0-10.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 12])
def test_a_topic_that_was_recreated_is_loaded_from_its_begin(load, store, target, count):
    fill(store, "a", 1, 10)
    assert load("--topics", "a") == 0
    loaded = rows_in(target)
    store.delete_topic("a")
    fill(store, "a", 1, count)
    assert load("--topics", "a") == 0
    assert sorted(rows_in(target)) == sorted(loaded + rows_of(store, "a"))


@pytest.mark.slow
def test_a_group_that_is_beyond_the_end(load, store, capsys):
    fill(store, "a", 1, 10)
    store.groups["bulk-load"].commit({TopicPartition("a", 0): 11})
    assert load("--topics", "a") == 1
    assert "the store was restored from a copy" in capsys.readouterr().err


@pytest.mark.slow
def test_a_group_that_was_reset_does_not_replace_files(load, store, target, capsys):
    fill(store, "a", 1, 10)
    assert load("--topics", "a") == 0
    store.groups["bulk-load"].commit({TopicPartition("a", 0): 0})
    assert load("--topics", "a") == 1
    assert "topic=a/date=2026-01-01/a-0-0-10.parquet exists already" in capsys.readouterr().err
    shutil.rmtree(target / "topic=a")
    assert load("--topics", "a") == 0
    assert rows_in(target) == rows_of(store, "a")


# ---- a broker's folder


@pytest.mark.slow
def test_a_brokers_folder_with_the_group_elsewhere(spark, store, target, tmp_path, capsys):
    fill(store, "a", 2, 100)
    store.close()
    broker, state = tmp_path / "broker", Store.create(tmp_path / "state")
    shutil.copytree(Path(store.path) / "data", broker)
    (broker / "replication-offset-checkpoint").unlink()
    arguments = [str(broker), str(target), "--topics", "a"]
    assert bulk_load.main(arguments) == 1
    assert "name a store for the group's offsets with --state" in capsys.readouterr().err
    assert bulk_load.main([*arguments, "--state", state.path]) == 0
    assert rows_in(target) == rows_of(store, "a")
    assert committed(state) == {"a-0": 100, "a-1": 100}
    assert not (broker / STATE_FOLDER).exists()


def test_only_committed_records_are_loaded(load, store, target):
    fill(store, "a", 1, 10)
    store.append_batch("a", 0, batch(0, [b"undecided"], 7, transactional=True))
    assert load("--topics", "a") == 0
    assert [row[2] for row in rows_in(target)] == [*range(10)]
    assert committed(store) == {"a-0": 10}
    assert load("--topics", "a", "--isolation-level", "read_uncommitted") == 0
    assert rows_in(target) == rows_of(store, "a")


# ---- restarts

BEFORE_A_FILE_HAS_ITS_NAME = stop_before(lambda change: change.kind == "rename" and change.target.endswith(".parquet"))


def ends_well_after(load, store, target):
    """The run after a stop, which also takes records that came since."""
    fill(store, "b", 1, 5)
    assert load("--topics", "a,b") == 0
    assert rows_in(target) == rows_of(store, "a", "b")
    assert left_over(target) == []
    assert faults(store.path) == []


@pytest.mark.slow
def test_it_is_stopped_before_each_change_of_the_driver(spark, tmp_path):
    """Real kills, of all processes, are in test_bulk_load_kills.py."""
    for number in itertools.count():
        store, target = Store.create(tmp_path / f"store{number}"), tmp_path / f"lake{number}"
        fill(store, "a", 2, 100, step=20 * 60_000)
        fill(store, "b", 1, 30)

        def load(*arguments, store=store, target=target):
            return bulk_load.main([store.path, str(target), *arguments])

        if not run_until(lambda load=load: load("--topics", "a,b"), StopBefore(number)):
            break
        ends_well_after(load, Store.open(store.path), target)
    assert number > 20


@pytest.mark.slow
def test_a_plan_of_another_store_is_refused(spark, load, store, target, tmp_path, capsys):
    fill(store, "a", 1, 10)
    fill(store, "b", 1, 10)
    assert run_until(lambda: load("--topics", "a,b"), BEFORE_A_FILE_HAS_ITS_NAME)
    other = Store.create(tmp_path / "other")
    fill(other, "a", 1, 10)
    assert bulk_load.main([other.path, str(target), "--topics", "a"]) == 1
    assert "is the plan of an export from another store" in capsys.readouterr().err
    ends_well_after(load, store, target)


@pytest.mark.slow
def test_a_plan_whose_group_was_moved_is_refused(load, store, target, capsys):
    fill(store, "a", 1, 10)
    fill(store, "b", 1, 10)
    assert run_until(lambda: load("--topics", "a,b"), BEFORE_A_FILE_HAS_ITS_NAME)
    store.groups["bulk-load"].commit({TopicPartition("a", 0): 3})
    assert load("--topics", "a,b") == 1
    assert "the committed offset of a-0 is 3, and the plan" in capsys.readouterr().err


@pytest.mark.slow
def test_leftovers_of_tasks_are_removed(load, store, target):
    fill(store, "a", 1, 10)
    assert load("--topics", "a") == 0
    (target / "_pylog/bulk-load/0123456789abcdef-1").write_bytes(b"half a file")
    fill(store, "a", 1, 10)
    assert load("--topics", "a") == 0
    assert left_over(target) == []
