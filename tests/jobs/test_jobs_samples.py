"""The samples of docs/reference/jobs.md and docs/guides/from-kafka.md print what is shown, but for times and sizes."""

import importlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main as pylog
from tests.samples import make_world, samples

pytestmark = pytest.mark.slow

SAMPLES = {one.name: one for one in samples() if one.name.startswith("jobs.md")}
MOVING = [one for one in samples() if one.name.startswith("from-kafka.md") and one.language == "console"]
_SUBMIT = re.compile(r"spark-submit \$\(pylog jobs path (\w+)\) (.*)")
_VARYING = re.compile(r"^(bytes|seconds|rows per second) +.*|\d[\d.]* (KiB|MiB|s)\b", re.MULTILINE)


@pytest.mark.parametrize("name", SAMPLES)
def test_runs(spark, tmp_path, monkeypatch, capsys, name):
    store = make_world(tmp_path)
    store.create_topic("orders", 1)
    store.topic("orders").append([{"value": "order"}])
    monkeypatch.setenv("PYLOG_STORE", store.path)
    for command, shown in commands(SAMPLES[name], tmp_path):
        printed = run(command, capsys)
        assert plain(printed) == plain(shown), f"{command}\n{printed}"


def test_a_move_from_a_broker_and_back(spark, tmp_path, capsys):
    """The commands of docs/guides/from-kafka.md in their order; those of Kafka need a broker (tests/kafka)."""
    make_world(tmp_path)
    for line, shown in (one for sample in MOVING for one in commands(sample, tmp_path)):
        command, _, file = line.partition(" > ")
        printed = "" if command.startswith("kafka-") else run(command, capsys)
        if file:
            Path(file).write_text(printed)
        assert not shown or plain(printed) == plain(shown), f"{command}\n{printed}"
    for name in ("store", "copy"):
        assert [
            len(batch) for number in range(6) for batch in Store.open(tmp_path / "data" / name).read("orders", number)
        ]
    assert (tmp_path / "data/billing.csv").read_text().splitlines() == [f"orders,{number},1" for number in range(6)]


def plain(text):
    """A text without what differs from run to run."""
    return [" ".join(line.split()) for line in _VARYING.sub("", text).splitlines()]


def commands(sample, folder):
    """Its commands, each with what the page shows below it."""
    found = []
    for line in sample.code_in(folder).splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), ""))
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def run(command, capsys):
    """What a command prints, which must end well; jobs run in this process."""
    if job := _SUBMIT.fullmatch(command):
        capsys.readouterr()
        assert importlib.import_module(f"pyspark_log.jobs.{job[1]}").main(shlex.split(job[2])) == 0
        return capsys.readouterr().out
    if command.startswith("pylog "):
        result = CliRunner().invoke(pylog, shlex.split(command, comments=True)[1:])
        assert result.exit_code == 0, result.stderr
        return result.stdout
    return subprocess.run(["sh", "-ec", command], check=True, text=True, stdout=subprocess.PIPE).stdout
