"""The benchmark of the server runs, as far as that shows without a broker beside it."""

import subprocess
import sys

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.usefixtures("kafka")


def test_all_is_measured(tmp_path):
    command = [sys.executable, ROOT / "benchmarks/server.py", "--quick", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    tables = {}
    for part in done.stdout.strip().split("\n\n"):
        name, _, _, *rows = part.splitlines()
        tables[name] = [row.strip("| ").split(" | ") for row in rows]
    assert {name: len(rows) for name, rows in tables.items()} == {
        "server: throughput": 18, "server: processor time": 15, "server: times": 12, "server: process": 3,
    }  # fmt: skip
    assert all(float(row[1].replace(",", "")) >= 0 for rows in tables.values() for row in rows)
