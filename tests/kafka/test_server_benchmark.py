"""The benchmarks of the server run: the large one as far as that shows without a broker beside it."""

import subprocess
import sys

import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.usefixtures("kafka")


def measured(benchmark, folder):
    """The tables of a benchmark."""
    command = [sys.executable, ROOT / f"benchmarks/{benchmark}.py", "--quick", "--folder", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split("\n\n")


@pytest.mark.long
def test_all_is_measured(tmp_path):
    tables = {}
    for part in measured("server", tmp_path):
        name, _, _, *rows = part.splitlines()
        tables[name] = [row.strip("| ").split(" | ") for row in rows]
    assert {name: len(rows) for name, rows in tables.items()} == {
        "server: throughput": 18, "server: processor time": 15, "server: times": 12, "server: process": 3,
    }  # fmt: skip
    assert all(float(row[1].replace(",", "")) >= 0 for rows in tables.values() for row in rows)


@pytest.mark.long
def test_what_security_costs_is_measured(tmp_path):
    speeds, times = (part.splitlines() for part in measured("secured", tmp_path))
    assert (len(speeds), len(times)) == (3 + 6, 3 + 3)
    assert all(float(cell.replace(",", "")) > 0 for row in (*speeds[3:], *times[3:]) for cell in row.split("|")[2:4])
