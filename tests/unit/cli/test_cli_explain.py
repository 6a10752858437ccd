"""`pylog explain` and docs/reference/errors.md: each name of an error, and what to do."""

import json
import re

import pytest
from click.testing import CliRunner

from pyspark_log.cli.main import main
from pyspark_log.errors.explained import EXPLAINED
from tests.paths import ROOT

# Names of variables of the environment, not of errors.
_VARIABLES = {"PYLOG_STORE", "PYLOG_TLS_KEY_PASSWORD"}


def run(*words):
    return CliRunner().invoke(main, ["explain", *words])


def test_each_name_in_the_code_is_explained_and_no_other():
    named = set()
    for path in (ROOT / "pyspark_log").rglob("*.py"):
        if path.name != "explained.py":
            named |= set(re.findall(r'"(PYLOG_[A-Z_]+)"', path.read_text(encoding="utf-8")))
    explained = [name for errors in EXPLAINED.values() for name in errors]
    assert set(explained) == (named - _VARIABLES) | {"PYLOG_STORE", "PYLOG_DATA_LOSS"}
    assert len(explained) == len(set(explained))


def test_the_page_is_what_the_command_writes():
    """To write it: pylog explain --document > docs/reference/errors.md."""
    assert (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8") == run("--document").output


@pytest.mark.parametrize("name", ["PYLOG_DATA_LOSS", "[PYLOG_DATA_LOSS.TOPIC_DELETED]", "data_loss"])
def test_a_name_is_taken_as_a_log_has_it(name):
    assert run(name).output.startswith("PYLOG_DATA_LOSS\n  Records that a query or a job still had to read are gone")
    [found] = json.loads(run(name, "--json").output)
    assert found["name"] == "PYLOG_DATA_LOSS"


def test_others():
    assert run().output.splitlines()[0] == "PYLOG_STORE"
    refused = run("PYLOG_DATA_LOS")
    assert refused.exit_code == 2
    assert "PYLOG_DATA_LOSS" in refused.stderr
