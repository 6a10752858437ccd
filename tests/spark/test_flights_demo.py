"""The demo checks itself; here it must come to its end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_log import Store

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (os.environ.get("JAVA_HOME") or shutil.which("java")), reason="Spark needs Java 17 or later"
    ),
]


@pytest.fixture
def demo(tmp_path):
    """A copy of the demo, so that a .demo folder in the clone is left alone."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path / "examples" / "flights_demo.py"


def run(script, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=800,
        **options,
    )


def test_the_demo_runs_to_its_end(demo):
    check(run(demo), ".demo/store")
    assert (demo.parents[1] / ".demo/store/store.json").exists()


@pytest.mark.long
def test_the_demo_in_an_object_store(demo, object_url):
    check(run(demo, object_url), object_url)
    assert Store.open(object_url).topics() == ["delays", "flights"]
    # What is there is left alone.
    ended = run(demo, object_url)
    assert ended.returncode == 1
    assert f"The demo cannot make its store: {object_url} is not empty" in ended.stdout


def check(ended, place):
    assert ended.returncode == 0, ended.stdout
    assert "Traceback" not in ended.stdout
    assert "Frontier Airlines Inc." in ended.stdout
    assert "All totals equal those of the CSV: 328,521 departures." in ended.stdout
    assert f"The store stays in {place}." in ended.stdout
    assert "kill -9" in ended.stdout
    assert ended.stdout.endswith(f".venv/bin/pylog ui --store {place}\n")


def test_the_demo_leaves_a_folder_alone_that_it_did_not_make(demo):
    precious = demo.parents[1] / ".demo" / "precious"
    precious.parent.mkdir()
    precious.touch()
    ended = run(demo)
    assert ended.returncode == 1
    assert "was not made by this demo" in ended.stdout
    assert precious.exists()
