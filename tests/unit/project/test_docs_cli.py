"""Each `pylog` command in docs/reference/cli.md can be called as it is written there, and none is missing."""

import re
import shlex
import subprocess
import sys

import click
import pytest

from pyspark_log import Store
from pyspark_log.cli.main import COMMANDS, main
from pyspark_log.types import TopicPartition
from tests.paths import ROOT

PAGE = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
CALLS = re.findall(r"`(pylog [^`]+)`", PAGE)


def parsed(words):
    """The command that is called; raises click.UsageError as a call would. Nothing is run."""
    command, name, context = main, "pylog", None
    while True:
        context = command.make_context(name, list(words), parent=context)
        if not isinstance(command, click.Group):
            return command
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])


@pytest.mark.parametrize("call", CALLS)
def test_it_can_be_called_so(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("00000000000000000000.log", "job.py", "lines.txt", "var"):
        (tmp_path / name).touch()
    # What must be there is: any file will do for the parser.
    words = [re.sub(r"^/(var|data|disk2)\b.*", str(tmp_path), word) for word in shlex.split(call)[1:]]
    assert parsed(words).name == shlex.split(call)[1 + (shlex.split(call)[1] in GROUPS)]


GROUPS = {"acls", "cluster", "topics", "groups", "jobs", "publishers", "log-dirs", "perf", "quotas", "users"}


def test_a_wrong_call_would_be_seen():
    with pytest.raises(click.UsageError, match="--nothing"):
        parsed(["topics", "create", "t", "--nothing"])


def test_no_command_is_missing():
    assert set(COMMANDS) == {shlex.split(call)[1] for call in CALLS}


def test_the_shell_gets_its_completion():
    code = "import sys; sys.argv[0] = 'pylog'; from pyspark_log.cli.start import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"_PYLOG_COMPLETE": "bash_source", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "complete -o nosort -F _pylog_completion pylog" in done.stdout, done.stderr


def completed(*words, **environment):
    """What a shell offers for the last of the words."""
    code = "import sys; sys.argv[0] = 'pylog'; from pyspark_log.cli.start import main; main()"
    line = {"COMP_WORDS": shlex.join(["pylog", *words]), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"_PYLOG_COMPLETE": "bash_complete", "PATH": "/usr/bin:/bin", **line, **environment},
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_names_of_topics_and_groups_are_completed(tmp_path):
    store = Store.create(tmp_path / "store")
    for name in ("orders", "other", "payments"):
        store.create_topic(name, 1)
    store.groups["g-1"].commit({TopicPartition("orders", 0): 0})
    assert completed("--store", store.path, "consume", "o") == ["orders", "other"]
    assert completed("topics", "delete", "orders", "p", PYLOG_STORE=store.path) == ["payments"]
    assert completed("du", "_", PYLOG_STORE=store.path) == ["__consumer_offsets"]
    assert completed("groups", "describe", "g", PYLOG_STORE=store.path) == ["g-1"]
    assert completed("topics", "create", "o", PYLOG_STORE=store.path) == []


def test_without_a_store_nothing_is_completed(tmp_path):
    assert completed("consume", "o") == []
    assert completed("--store", str(tmp_path), "consume", "o") == []
