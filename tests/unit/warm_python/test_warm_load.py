"""Starts by `pylog-python` on a machine that is busy: Spark waits ten seconds for each."""

import subprocess
import sys

import pytest

from tests.paths import ROOT


@pytest.mark.slow
@pytest.mark.long  # it needs what the machine really has
def test_a_hundred_starts_beside_fourteen_loops():
    command = [sys.executable, ROOT / "benchmarks" / "busy_starts.py", "--pythons", "pylog-python"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("pylog-python: 0 of 100 took more than 10 s")
