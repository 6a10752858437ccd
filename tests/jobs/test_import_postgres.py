"""Rows of a real database into a topic, while more are added."""

import glob
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import job_kills
import pytest
from job_kills import kill_at_random

from tests.kafka.kafka_tools import SPARK_JARS
from tests.ports import HOST, free_ports
from tests.store_tools import faults

# With Derby, test_import_files.py does the same in less time.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


class Postgres:
    """A server of PostgreSQL on the loopback interface, in a folder of its own; it refuses to run as root."""

    def __init__(self, tools):
        self.user = "postgres" if os.geteuid() == 0 else None
        self.folder, self.port = Path(tempfile.mkdtemp()), free_ports(1)[0]
        if self.user:
            shutil.chown(self.folder, self.user)
        self.tools = tools
        self._run("initdb", "-D", self.folder / "data", "-U", "tester", "--auth=trust", "--no-sync")
        # A scan gives rows in the order in which they were added.
        order = "-c max_parallel_workers_per_gather=0 -c synchronize_seqscans=off"
        options = f"-h {HOST} -p {self.port} -k {self.folder} {order}"
        self._run("pg_ctl", "-D", self.folder / "data", "-w", "-l", self.folder / "log", "-o", options, "start")

    def _run(self, tool, *arguments, **options):
        subprocess.run(
            [f"{self.tools}/{tool}", *map(str, arguments)],
            check=True,
            user=self.user,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            **options,
        )

    def sql(self, text):
        """Runs statements."""
        self._run(
            "psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", HOST, "-p", self.port, "-U", "tester", "postgres",
            input=text.encode(),
        )  # fmt: skip

    def stop(self):
        """Ends it, and removes its folder."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop")
        shutil.rmtree(self.folder)


@pytest.fixture
def postgres():
    tools = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)), "")
    if not tools:
        pytest.skip("there is no PostgreSQL here (Debian: apt install postgresql)")
    if not list(SPARK_JARS.glob("postgresql-*.jar")):
        pytest.skip("there is no JDBC driver for PostgreSQL: make kafka-jars")
    server = Postgres(tools)
    yield server
    server.stop()


def test_rows_are_imported_once(postgres, store, tmp_path):
    postgres.sql(
        "CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, item TEXT, price NUMERIC(8, 2), at TIMESTAMPTZ, seen BOOLEAN);"
        "INSERT INTO orders (item, price, at, seen) SELECT 'item ' || n, n / 4.0,"
        " timestamptz '2026-01-01 00:00:00Z' + n * interval '1 second', n % 2 = 0 FROM generate_series(1, 500) n;"
    )
    store.create_topic("orders", 3, {"retention.ms": "-1"})
    call = [
        store.path, "--to", "orders", "--url", f"jdbc:postgresql://{HOST}:{postgres.port}/postgres",
        "--table", "orders", "--column", "id", "--key", "id", "--timestamp", "at", "--tasks", "3",
        "--option", "user=tester", "--option", "driver=org.postgresql.Driver", "--json",
    ]  # fmt: skip
    assert run(call)["rows"] == 500
    assert run(call)["rows"] == 0
    postgres.sql("INSERT INTO orders (item) SELECT 'late ' || n FROM generate_series(1, 7) n;")
    found = run(call)
    assert (found["rows"], found["last_id"]) == (7, 507)
    rows = store.topic("orders").read().to_table().to_pylist()
    assert sorted(int(row["key"]) for row in rows) == list(range(1, 508))
    first = next(row for row in rows if row["key"] == b"10")
    assert json.loads(first["value"]) == {
        "id": 10,
        "item": "item 10",
        "price": "2.50",
        "at": "2026-01-01T00:00:10.000000Z",
        "seen": True,
    }
    assert first["timestamp"].isoformat() == "2026-01-01T00:00:10+00:00"


@pytest.mark.long
@job_kills.TIMEOUT
def test_drivers_executors_and_workers_are_killed_at_random(cluster, postgres, store, tmp_path):
    """Rows come all the time; each is imported once, in the order in which the table has them."""
    postgres.sql("CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, item TEXT);")
    store.create_topic("orders", 3, {"segment.bytes": str(1 << 20)})
    fed = []

    def feed(kills):
        fed.append(kills)
        # Long enough for their staged files to become segments.
        postgres.sql("INSERT INTO orders (item) SELECT repeat('item ', 130) || n FROM generate_series(1, 20000) n;")

    arguments = (
        "import_table", store.path, "--to", "orders", "--url", f"jdbc:postgresql://{HOST}:{postgres.port}/postgres",
        "--table", "orders", "--column", "id", "--key", "id", "--tasks", "6",
        "--option", "user=tester", "--option", "driver=org.postgresql.Driver",
    )  # fmt: skip
    kill_at_random(
        cluster, tmp_path / "log", arguments, feed, seed=10, options=("--jars", jars()), publishes_to=(store, "orders")
    )
    ids = [[int(key) for batch in store.read("orders", n) for key in batch["key"].to_pylist()] for n in range(3)]
    assert sorted(itertools.chain(*ids)) == list(range(1, 20_000 * len(fed) + 1))
    assert all(one == sorted(one) for one in ids)
    assert faults(store.path) == []


def jars():
    """The driver of JDBC, as spark-submit takes it."""
    return ",".join(map(str, SPARK_JARS.glob("postgresql-*.jar")))


def run(call):
    """The summary of a run, as spark-submit makes it."""
    program = f"from pyspark_log.jobs import import_table; raise SystemExit(import_table.main({call!r}))"
    settings = f"--jars {jars()} --conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": settings, "SPARK_LOCAL_IP": HOST},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
