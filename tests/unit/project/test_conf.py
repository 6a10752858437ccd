"""`conf/` shows people the settings as the engine has them: `pylog configs` writes it."""

import json

import pytest
from click.testing import CliRunner

from pyspark_log.cli.main import main
from pyspark_log.config import STORE_CONFIGS, TOPIC_CONFIGS
from tests.paths import ROOT


def run(*arguments):
    found = CliRunner().invoke(main, ["configs", *arguments])
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.mark.parametrize("kind", ["topic", "store", "connector"])
def test_the_files_are_what_the_command_writes(kind):
    """To write one: pylog configs topic --document > conf/topic.properties."""
    assert (ROOT / f"conf/{kind}.properties").read_text(encoding="utf-8") == run(kind, "--document")


def test_all_are_listed():
    assert [line.split()[0] for line in run().splitlines()[1:]] == list(TOPIC_CONFIGS)
    names = [*STORE_CONFIGS, *(key.store_name for key in TOPIC_CONFIGS.values())]
    listed = json.loads(run("store", "--json"))
    assert [one["name"] for one in listed] == names
    retention = {"name": "log.retention.ms", "default": "604800000", "unit": "ms"}
    assert any(retention.items() <= one.items() for one in listed)
