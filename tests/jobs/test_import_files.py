"""Files into topics: each once, in parts, at once, and whatever is killed."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import job_kills
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_kills import kill_at_random
from job_tools import JOBS

from pyspark_log import Store
from pyspark_log.jobs import import_files
from pyspark_log.jobs.imports import task
from tests.campaigns.spark_cluster import SPARK_HOME
from tests.store_tools import faults

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def values(store, topic="t"):
    return Counter(store.topic(topic).read().to_table()["value"].to_pylist())


@pytest.fixture
def landing(tmp_path):
    (tmp_path / "landing").mkdir()
    return tmp_path / "landing"


def test_each_file_once(spark, store, landing, capsys):
    store.create_topic("t", 3)
    (landing / "one.json").write_text('{"id": 1}\n{"id": 2}\n')
    (landing / "two.json").write_text('{"id": 3}')
    call = [store.path, str(landing), "--to", "t", "--format", "json", "--key", "id", "--json"]
    assert import_files.main(call) == 0
    assert json.loads(capsys.readouterr().out) | {"seconds": 0, "rows_per_second": 0} == {
        "rows": 3,
        "bytes": 29,
        "files": 2,
        "seconds": 0,
        "rows_per_second": 0,
    }
    (landing / "three.json").write_text('{"id": 4}\n')
    assert import_files.main(call) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1
    assert import_files.main(call) == 0
    table = store.topic("t").read().to_table()
    found = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert found == {b"%d" % number: b'{"id": %d}' % number for number in (1, 2, 3, 4)}
    assert table.num_rows == 4
    # Another group knows nothing of it.
    assert import_files.main([*call, "--group", "again"]) == 0
    assert sum(values(store).values()) == 8


def test_large_files_are_read_by_several_tasks(spark, store, landing, monkeypatch):
    """Each line and row once, wherever a piece ends."""
    monkeypatch.setattr(task, "PIECE_BYTES", 1000)
    store.create_topic("t", 2)
    lines = [b"%d %s" % (number, b"x" * (number % 97)) for number in range(500)]
    (landing / "lines").write_bytes(b"\n".join(lines))
    assert import_files.main([store.path, str(landing / "lines"), "--to", "t", "--format", "text"]) == 0
    assert values(store) == Counter(lines)
    pq.write_table(pa.table({"v": [b"%d" % number for number in range(300)]}), landing / "rows", row_group_size=7)
    call = [store.path, str(landing / "rows"), "--to", "t", "--format", "parquet", "--value", "v"]
    assert import_files.main(call) == 0
    assert values(store) == Counter(lines) + Counter(b"%d" % number for number in range(300))


def test_a_malformed_file_is_named_and_nothing_of_its_publish_appears(spark, store, landing, capsys):
    store.create_topic("t", 1)
    (landing / "a.csv").write_text("id\n1\n")
    (landing / "b.csv").write_text("id,name\n1\n")
    call = [store.path, str(landing), "--to", "t", "--format", "csv"]
    assert import_files.main(call) == 1
    assert "b.csv: not CSV" in capsys.readouterr().err
    assert values(store) == Counter()
    # Published one by one, what comes before it is there.
    assert import_files.main([*call, "--publish-bytes", "1"]) == 1
    assert values(store) == Counter([b'{"id":"1"}'])
    (landing / "b.csv").write_text("id,name\n1,x\n")
    assert import_files.main(call) == 0
    assert values(store) == Counter([b'{"id":"1"}', b'{"id":"1","name":"x"}'])
    assert faults(store.path) == []


def test_a_failed_import_leaves_nothing_staged(spark, store, landing):
    """Files that are large enough to be tasks of their own, and to be staged in files."""
    store.create_topic("t", 1)
    lines = b"".join(b'{"id": %d, "text": "%s"}\n' % (number, b"x" * 900) for number in range(20_000))
    (landing / "a.json").write_bytes(lines)
    (landing / "b.json").write_bytes(lines + b"no json\n")
    assert import_files.main([store.path, str(landing), "--to", "t", "--format", "json"]) == 1
    assert list((Path(store.path) / "staging").glob("*.staged")) == []
    (landing / "b.json").unlink()
    assert import_files.main([store.path, str(landing), "--to", "t", "--format", "json"]) == 0
    assert sum(values(store).values()) == 20_000


def test_small_files_share_a_task():
    sizes = [1 << 20, 10 << 20, 6 << 20, 40 << 20, 1, 2]
    pieces = [task.FilePiece(None, None, "t", str(size), size, 0, "text", 0, size, None, ",") for size in sizes]
    assert [[one.size >> 20 for one in each] for each in task.in_tasks(pieces)] == [[1, 10], [6], [40], [0, 0]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "csv", "--delimiter", "::"], "one character"),
        (["--format", "csv", "--key", "a", "--value", "a"], "the same column"),
    ],
)
def test_what_is_refused(store, landing, capsys, arguments, said):
    store.create_topic("t", 1)
    (landing / "a.csv").write_text("a\n1\n")
    assert import_files.main([store.path, str(landing), "--to", "t", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.long
@job_kills.TIMEOUT
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc, which Linux has")
def test_drivers_executors_and_workers_are_killed_at_random(cluster, store, landing, tmp_path):
    """Files come all the time; each is imported once, in the order of their names. Every third file gives one partition
    enough to be staged in files, which become segments.
    """
    written = []
    store.create_topic("t", 3, {"segment.bytes": str(1 << 20)})

    def feed(_):
        for number in range(len(written), len(written) + 15_000, 5000):
            keys, text = (1, b"x" * 1000) if number % 15_000 == 10_000 else (7, b"")
            lines = [b'{"id": %d, "n": %d, "text": "%s"}' % (n % keys, n, text) for n in range(number, number + 5000)]
            (landing / f"{number:09}.json").write_bytes(b"\n".join(lines))
            written.extend(lines)

    arguments = ("import_files", store.path, landing, "--to", "t", "--format", "json", "--key", "id",
                 "--publish-bytes", "200000")  # fmt: skip
    kill_at_random(cluster, tmp_path / "log", arguments, feed, seed=2, publishes_to=(store, "t"))
    assert values(store) == Counter(written)
    for partition in range(3):
        found = [value for batch in store.read("t", partition) for value in batch["value"].to_pylist()]
        numbers = [json.loads(value)["n"] for value in found]
        assert numbers == sorted(numbers)
    assert faults(store.path) == []


@pytest.mark.parametrize("place", ["folder", pytest.param("objects", marks=pytest.mark.long)], indirect=True)
def test_a_table_by_jdbc(place, tmp_path):
    """With Derby, which comes with Spark: rows are added between the imports. In a process of its own."""
    store = Store.create(place)
    store.create_topic("t", 2)
    program = tmp_path / "jdbc.py"
    program.write_text(f"""
import sys
from pyspark.sql import SparkSession
from pyspark_log.jobs import import_table

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
url = "jdbc:derby:{tmp_path}/db;create=true"
call = [{store.path!r}, "--to", "t", "--url", url, "--table", "ORDERS", "--column", "ID", "--key", "ID",
        "--tasks", "2", "--option", "driver=org.apache.derby.jdbc.EmbeddedDriver"]
assert import_table.main(call) == 1
for start in (1, 101):
    rows = spark.range(start, start + 100).selectExpr("id AS ID", "concat('item ', id) AS NAME")
    rows.write.format("jdbc").options(url=url, dbtable="ORDERS").mode("append").save()
    for _ in range(2):
        assert import_table.main(call) == 0
""")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert "Table/View 'ORDERS' does not exist" in said
    table = store.topic("t").read().to_table()
    found = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert table.num_rows == 200
    assert {int(key): json.loads(value) for key, value in found.items()} == {
        number: {"ID": number, "NAME": f"item {number}"} for number in range(1, 201)
    }


def test_its_output_under_spark_submit_is_json_and_little_else(store, landing, tmp_path):
    """The topic is missing: that it was created is in the document, and Spark's log is short."""
    (landing / "one.json").write_text('{"id": 1}\n')
    call = [store.path, landing, "--to", "made", "--format", "json", "--json", "--timestamp", "id"]
    job = [JOBS / "import_files.py", *call]
    options = ["--master", "local[1]", "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    done = subprocess.run(
        list(map(str, [SPARK_HOME / "bin/spark-submit", *options, *job])),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        timeout=600,
    )
    found = json.loads(done.stdout)
    assert found["rows"] == 1
    created, keeps = found["warnings"]
    assert "created the missing topic made, with 1 partition" in created
    # Its records have times of their own.
    assert "topic made is created with retention.ms=-1" in keeps
    assert done.stderr.count(" INFO ") < 20, done.stderr
    assert values(store, "made") == {b'{"id": 1}': 1}
