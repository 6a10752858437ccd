"""A user types what other tools call things, and the answer is the line to type, or the nearest name."""

from __future__ import annotations

import re
import shlex

import pytest
from cli_tools import output, pylog, records
from click.testing import CliRunner

from pyspark_log.cli.kafka_spelling import kafka_spelling
from pyspark_log.cli.main import COMMANDS, main
from pyspark_log.types import TopicPartition
from tests.store_tools import new_store


@pytest.fixture
def store(tmp_path):
    store = new_store(tmp_path, {"retention.ms": "-1"}, partitions=2)
    store.append("t", records(["a"], [b"1"]), partition=0)
    store.groups["g"].commit({TopicPartition("t", 0): 1})
    return store


@pytest.mark.parametrize(("typed", "line"), [
    ("topics --list", "topics list"),
    ("topics --list --bootstrap-server localhost:9092", "topics list"),
    ("topics --create --topic new --partitions 2 --replication-factor 1", "topics create new --partitions 2"),
    ("topics --create --topic=new --config retention.ms=-1", "topics create new --config retention.ms=-1"),
    ("topics create --topic new", "topics create new"),
    ("topics --describe --topic t", "topics describe t"),
    ("topics --delete --topic t --yes", "topics delete t --yes"),
    ("topics --alter --topic t --partitions 4", "topics alter t --partitions 4"),
    ("consume --topic t --from-beginning", "consume t --from-beginning"),
    ("consume --bootstrap-server b:9 --topic t --property print.key=true --max-messages 1",
     "consume t --print-key --max-messages 1"),
    ("consume --topic t --property key.separator=: --property print.timestamp=false", "consume t --key-separator :"),
    ("produce --topic t --file /dev/null", "produce t --file /dev/null"),
    ("groups --list", "groups list"),
    ("groups --describe --group g", "groups describe g"),
    ("groups --describe --all-groups --members", "groups describe --all-groups --members"),
    ("groups --delete-offsets --group g --topic t --yes", "groups delete-offsets --group g --topic t --yes"),
    ("groups --reset-offsets --group g --topic t --to-earliest --execute",
     "groups reset-offsets g --topic t --to-earliest --execute"),
    ("configs --describe", "configs"),
    ("configs --describe --entity-type topics --entity-name t", "topics describe t"),
    ("configs --alter --entity-type topics --entity-name t --add-config flush.ms=5",
     "topics alter t --config flush.ms=5"),
    ("offsets --topic t --partitions 0,1 --time latest", "offsets t --partition 0 --partition 1 --time latest"),
    ("log-dirs --describe --topic-list t", "log-dirs describe t"),
    ("du --topic t", "du t"),
])  # fmt: skip
def test_a_call_as_kafkas_tools_take_it_is_answered_with_the_line_to_type(store, typed, line):
    given = CliRunner().invoke(main, [*shlex.split(typed), "--store", store.path], prog_name="pylog")
    assert given.exit_code == 2
    answer = re.search(r"Use instead: pylog (.*)\n", given.stderr)
    assert answer, given.stderr
    assert answer[1] == f"--store {store.path} {line}"
    done = CliRunner().invoke(main, shlex.split(answer[1]), prog_name="pylog")
    assert done.exit_code == 0, done.output


def test_what_kafka_does_not_have_either_gets_no_such_answer(store):
    refused = pylog(store, "topics", "create", "t", "--partition", "3")
    assert (refused.exit_code, "Use instead" in refused.stderr) == (2, False)
    assert kafka_spelling([], "--list", has_store=True) is None
    assert kafka_spelling(["consume", "--list"], "--list", has_store=True) is None


def test_the_files_of_a_dump():
    line = "pylog dump a.log b.log --records"
    assert kafka_spelling(["dump", "--files", "a.log,b.log", "--print-data-log"], "--files", has_store=False) == line


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("consume --bootstrap-server h:9092 --topic t", "--store FOLDER consume t"),
        ("topics --bootstrap-server=h:9092 --list", "--store FOLDER topics list"),
        ("topics --list", "topics list"),
    ],
)
def test_the_address_of_a_broker_is_answered_with_the_option_for_the_store(monkeypatch, typed, line):
    monkeypatch.delenv("PYLOG_STORE", raising=False)
    refused = CliRunner().invoke(main, typed.split(), prog_name="pylog")
    assert refused.stderr.endswith(f"Use instead: pylog {line}\n")
    monkeypatch.setenv("PYLOG_STORE", "/data/store")
    refused = CliRunner().invoke(main, typed.split(), prog_name="pylog")
    assert "--store" not in refused.stderr.splitlines()[-1]


def test_the_line_for_an_export_has_the_id_that_it_needs(store):
    refused = pylog(store, "export-kafka", "--topic", "t", "out")
    assert refused.stderr.endswith("export-kafka t out --topic-id ID\n")
    refused = pylog(store, "export-kafka", "--topic", "t", "out", "--topic-id", "X")
    assert refused.stderr.endswith("export-kafka t out --topic-id X\n")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topic list", "did you mean 'topics'?"),
        ("consumee t", "did you mean 'consume'?"),
        ("cat t", "did you mean 'pylog consume'?"),
        ("lag", "did you mean 'pylog groups describe'?"),
        ("ls", "did you mean 'pylog topics list'?"),
        ("topics ls", "did you mean 'pylog topics list'?"),
        ("topics descrbe t", "did you mean 'describe'?"),
        ("frobnicate", f"there are: {', '.join(COMMANDS)}"),
        ("jobs path bulk_laod", "did you mean 'bulk_load'?"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(store, typed, meant):
    refused = pylog(store, *typed.split())
    assert (refused.exit_code, refused.stderr.splitlines()[-1].endswith(meant)) == (2, True), refused.stderr


def test_a_mistyped_topic_or_config_is_answered_with_the_nearest(store):
    store.create_topic("words", 1)
    refused = pylog(store, "consume", "wordz")
    assert refused.stderr == (
        "Error: [PYLOG_UNKNOWN_TOPIC_OR_PARTITION] there is no topic 'wordz'; did you mean 'words'?\n"
    )
    refused = pylog(store, "topics", "alter", "t", "--config", "retention.mss=1d")
    assert "there is no topic config 'retention.mss'; did you mean 'retention.ms'?\n" in refused.stderr
    refused = pylog(store, "topics", "alter", "t", "--config", "replicas=1")
    assert "there is no topic config 'replicas'; `pylog configs topic` lists those that there are\n" in refused.stderr


@pytest.mark.parametrize("words", [
    "--store PATH topics list", "topics --store PATH list", "topics list --store PATH", "topics list --store=PATH",
    "--store /none topics list --store PATH",
])  # fmt: skip
def test_the_store_may_be_given_at_any_place(store, words):
    done = CliRunner().invoke(main, words.replace("PATH", store.path).split(), prog_name="pylog")
    assert (done.exit_code, done.stdout) == (0, "t\n")


def leaves(command, *names):
    """Each command without subcommands, with its words."""
    if not hasattr(command, "list_commands"):
        yield names, command
        return
    for name in command.list_commands(None):
        yield from leaves(command.get_command(None, name), *names, name)


def test_every_command_takes_the_store_after_it():
    found = dict(leaves(main))
    assert len(found) >= 40
    assert [words for words, command in found.items() if "store" not in {one.name for one in command.params}] == []


def test_a_command_without_a_store_says_how_to_give_one(monkeypatch):
    monkeypatch.delenv("PYLOG_STORE", raising=False)
    refused = CliRunner().invoke(main, ["topics", "list"], prog_name="pylog")
    assert (refused.exit_code, "Which store? Give --store PATH, or set PYLOG_STORE.\n" in refused.stderr) == (2, True)


def test_help_is_not_cut(store):
    """No line ends in dots, however narrow the terminal is."""
    for words, command in [((), main), *leaves(main), (("topics",), main.get_command(None, "topics"))]:
        done = CliRunner().invoke(main, [*words, "--help"], prog_name="pylog", terminal_width=80)
        shown = done.stdout.partition("\n\n")[2]  # without "Usage: pylog [OPTIONS] COMMAND [ARGS]..."
        assert not re.search(r"\.\.\.$", shown, re.MULTILINE), shown
        assert command.get_short_help_str(1000).split()[0] in shown


def test_verify_and_du_count_alike(store):
    store.create_topic("unwritten", 3)
    total = output(store, "du", "--internal").splitlines()[-1].split()
    assert total[:4] == ["total", "55", "2", "2"]
    assert output(store, "verify").startswith("no damage: 2 written partitions, 2 segments, 2 batches, 2 records, ")
