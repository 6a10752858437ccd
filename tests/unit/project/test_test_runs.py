"""What watches the tests: a run's budget of time, what is run again when it failed, and what is run many times."""

import os
import subprocess
import sys

import pytest

from tests import budget
from tests.paths import ROOT

BY_LUCK = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({}))
def test_it(number, pytestconfig):
    seen = pathlib.Path(__file__).with_name(f"seen{{number}}")
    known = seen.exists()
    seen.touch()
    assert known, "it is the first time"
"""
BUDGET = "other = 1000\nfile = 1000\n[folders]\n{}\n[files]\n{}\n"


@pytest.fixture
def run(tmp_path):
    """Runs a module on a file of tests; the status and what was printed."""

    def outcome(module, code, *options):
        (tmp_path / "test_it.py").write_text(code)
        plain = () if module == "tests.often" else ("-p", "no:cacheprovider", "--rootdir", tmp_path)
        command = [sys.executable, "-m", module, *plain, *options]
        done = subprocess.run(
            [*command, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return outcome


def test_what_fails_by_luck_passes_alone_and_is_named(run):
    status, said = run("tests.again", BY_LUCK.format(3))
    assert status == 0, said
    assert said.count("PASSED ONLY WHEN IT RAN AGAIN") == 3
    assert "it is the first time" in said.partition("!!!")[2]


def test_four_that_fail_by_luck_are_too_many(run):
    status, said = run("tests.again", BY_LUCK.format(4))
    assert status == 1
    assert "RAN AGAIN" not in said


def test_what_fails_again_has_failed(run):
    status, said = run("tests.again", "def test_it():\n    assert False")
    assert status == 1
    assert "FAILED AGAIN: test_it.py::test_it" in said


def test_a_run_without_a_test_is_no_success(run):
    assert run("tests.again", "")[0] == 5


def test_what_starts_a_process_runs_many_times(run, tmp_path):
    (tmp_path / "test_alone.py").write_text("def test_it():\n    pass\n")
    code = "import subprocess\ndef test_starts():\n    subprocess.run(['true'])\n" + BY_LUCK.format(1)
    status, said = run("tests.often", code, "--runs", "3", "--jobs", "0", "test_alone.py")
    assert status == 1
    assert said.count("!!! test_it.py::test_it[0] failed in run 1\ncall:") == said.count("!!!") == 1
    assert "run 3: 2 tests of 1 files, each 3 times or more" in said
    assert "test_it.py::test_it[0] failed 1 times of 3" in said
    assert "no tests ran" in run("tests.often", "", "--jobs", "0")[1]


BUSY = """
import subprocess, sys

def test_it():
    subprocess.run([sys.executable, "-c", "sum(range(2 * 10**7))"])
"""


@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "1")])
def test_a_folder_above_its_budget_fails_the_run(run, tmp_path, processes):
    (tmp_path / "budget.toml").write_text(BUDGET.format('"." = 0.05', ""))
    status, said = run("pytest", BUSY, "-p", "tests.budget", "--budget", "budget.toml", *processes)
    assert status == 1, said
    assert "OVER BUDGET: . used " in said


def test_a_file_above_its_share_is_named():
    shares = {"other": 10, "file": 3, "folders": {"b": 20}, "files": {"b/three": 15}}
    within = {"a/one": 2.0, "a/two": 3.0, "b/three": 14.0}
    assert budget.exceeded(within, shares) == []
    above = budget.exceeded({"a/one": 4.0, "b/three": 14.0, "b/four": 2.5, "b/five": 3.0, "b/six": 3.0}, shares)
    assert [line.partition(" used")[0] for line in above] == ["b", "a/one"]
