"""The samples of docs/guides/tables.md run, each kind of table in a process of its own, with the PySpark at hand.

Where there is no jar for that, they are skipped: `make table-campaign` runs them with a PySpark that has jars.
"""

import json
import os
import re
import subprocess
import sys

import duckdb
import polars
import pyspark
import pytest

from tests.campaigns import table_driver
from tests.campaigns.queries.program import JVM_OPTIONS, OF_TESTS
from tests.campaigns.table_samples import SAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1500)]

READERS = "How do DuckDB and Polars read the table?"
SETTINGS = OF_TESTS | {"spark.databricks.delta.snapshotPartitions": "2", "spark.driver.extraJavaOptions": JVM_OPTIONS}


def run_samples(kind, folder):
    """What is found in the table; and in the folder are the page's."""
    if table_driver.jar(kind) is None:
        pytest.skip(f"there is no jar of {kind} for PySpark {pyspark.__version__}")
    settings = [f"--conf '{name}={value}'" for name, value in SETTINGS.items()]
    environment = os.environ | {
        "PYSPARK_SUBMIT_ARGS": " ".join(["--master local[2]", *settings, "pyspark-shell"]),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaigns.table_samples", kind, str(folder)],
        env=environment, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    if "unresolved dependency" in done.stderr:
        reason = f"{table_driver.jar(kind)} cannot be fetched"
        if "tables" in os.environ.get("PYLOG_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {kind: tmp_path_factory.mktemp(kind) for kind in table_driver.KINDS}


@pytest.fixture(scope="module")
def delta(folders):
    return run_samples("delta", folders["delta"])


@pytest.fixture(scope="module")
def iceberg(folders):
    return run_samples("iceberg", folders["iceberg"])


def test_delta(delta):
    assert delta["first"] == [480, 480]
    assert delta["last"] == [535, 535]
    assert delta["files"][1] == 1 < delta["files"][0]
    # The first sixty's values have the field, too.
    assert delta["gates"] == {"": 475, "G1": 60}
    assert delta["changes"] == {"insert": 540, "update_postimage": 50, "delete": 5}
    assert delta["next"]["0"] == 120


def test_iceberg(iceberg):
    assert iceberg["first"] == [480, 480]
    assert iceberg["last"] == [540, 540]
    assert iceberg["files"][1] == 1 < iceberg["files"][0]
    assert iceberg["gates"] == {"": 510, "G1": 30}


def read_by(sample, folder, capsys):
    """What a sample of the readers prints."""
    exec(compile(SAMPLES[sample].code_in(folder), sample, "exec"), {"duckdb": duckdb, "pl": polars})
    return capsys.readouterr().out


def test_others_read_delta(delta, folders, capsys):
    said = read_by(READERS, folders["delta"], capsys)
    assert re.findall(r"C9 +│ +(\d+)", said) == ["60"]
    assert said.splitlines()[-1] == str(delta["late"])


def test_others_read_iceberg(iceberg, folders, capsys, monkeypatch):
    pytest.importorskip("pyiceberg", reason="needs pyiceberg: pip install pyiceberg")
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # It warns otherwise.
    said = read_by(f"{READERS} #2", folders["iceberg"], capsys)
    assert sum(map(int, re.findall(r"C\d +│ +(\d+)", said))) == iceberg["late"]
    assert said.splitlines()[-1] == str(iceberg["late"])
