"""The samples of README.md and docs/ run, but for those in Spark (tests/spark/test_spark_samples.py)."""

import re
import shlex
import subprocess
import sys

import pyarrow as pa
import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.storage.catalog.topics import new_id
from tests.samples import PARTITIONS, make_world, samples

TUTORIAL = [sample.name for sample in samples() if sample.name.startswith("tutorial.md: ")]
NOT_RUN = {
    "README.md: Install": "it makes an environment, and runs the demo in it",
    "install.md: To try it": "it makes an environment, and runs the demo in it",
    "install.md: In an environment of yours": "it installs into an environment",
    "install.md: Does it work? #2": "test_packaging.py has it, with and without Spark",
    "README.md: In your tests": "test_pytest_plugin.py runs it in a pytest of its own",
    **{
        f"jobs.md: {heading}": "tests/jobs/test_jobs_samples.py runs it, with Spark"
        for heading in (
            "Topics into Parquet: bulk_load",
            "Other formats: export_files",
            "The care of a store",
            "Files and tables into topics: import_files, import_table",
        )
    },
    **{
        f"security.md: {heading}": "tests/unit/server/test_docs_security.py runs it, with a server"
        for heading in (
            "How do I encrypt?",
            "How do I encrypt? #2",
            "How do I add a user?",
            "What may a user do? #2",
            "What does a client have to set?",
            "What does a client have to set? #2",
            "How do clients use tokens?",
        )
    },
    "quotas.md: How do I limit a client? #2": "it needs Kafka; tests/kafka/test_server_quotas.py has it",
    **{
        f"node.md: {heading}": "it needs a cluster; tests/kafka/test_node.py has one"
        for heading in ("How do I begin?", "Which partitions does it get?", "How do I take it away?")
    },
    "node.md: Which users, rights and quotas count?": "it needs a cluster; tests/kafka/test_node_clients.py has one",
    **{
        f"cluster-of-nodes.md: {heading}": "it needs Kafka; tests/kafka/test_local_cluster_runs.py has it"
        for heading in ("How do I try one?", "How does it run for good?")
    },
    **{
        f"from-kafka.md: {heading}": "tests/unit/mirror/test_docs_mirror.py runs it, with a server"
        for heading in ("How do I begin?", "How do I log in?", "May others write to a mirrored topic?")
    },
    "pipelines.md: A sample #2": "tests/spark/test_pipelines.py runs it, with Spark",
    "versions.md: Spark 3.5": "tests/kafka/test_server_spark.py runs it, with a server",
    **{
        f"tables.md: How do DuckDB and Polars read the table?{number}": "tests/campaigns/test_tables_page.py runs it"
        for number in ("", " #2")
    },
    "moving-a-job.md: Moving a job": "tests/unit/cli/test_cli_move_job.py runs it, on the job that the page shows",
    **dict.fromkeys(TUTORIAL, "tests/spark/test_tutorial.py runs it, with Spark"),
    "metrics.md: How do I scrape a server?": "it serves until it is stopped",
    "ui.md: How do I open it?": "it serves until it is stopped; tests/unit/ui/test_docs_ui.py runs it",
    "ui.md: And that of a server?": "it serves until it is stopped; tests/unit/ui/test_docs_ui.py runs it",
    "server.md: Start it": "it serves until it is stopped",
    "server.md: A client": "tests/unit/server/test_docs_server.py runs it, with a server",
    "server.md: Transactions": "tests/unit/server/test_docs_server.py runs it, with a server",
    **{
        f"from-kafka.md: {heading}": "tests/jobs/test_jobs_samples.py runs it, with Spark"
        for heading in ("And from a broker's folder, or a store?", "And on many machines?", "And back?")
    },
    "kafka.md: A topic of a store for a broker #3": "tests/kafka/test_kafka_takes_over.py runs it for a broker",
}
COMMANDS_NOT_RUN = {"kafka-topics.sh": "it needs a broker; tests/kafka/test_kafka_takes_over.py has one"}
ALL = samples()
#: Another id than the one in the page, which is an example.
PLACEHOLDERS = {"--topic-id ID": lambda: f"--topic-id {new_id()}"}


def of(*languages):
    found = [one for one in ALL if one.language in languages and not one.needs_spark and one.name not in NOT_RUN]
    return pytest.mark.parametrize("sample", found, ids=[one.name for one in found])


@pytest.fixture
def store(tmp_path, monkeypatch):
    store = make_world(tmp_path)
    monkeypatch.setenv("PYLOG_STORE", store.path)
    monkeypatch.chdir(tmp_path)
    return store


def test_what_is_not_run_is_there():
    assert NOT_RUN.keys() <= {one.name for one in ALL}
    for command in COMMANDS_NOT_RUN:
        assert any(command in one.code for one in ALL)
    assert len(ALL) > 10


@of("sh", "console")
def test_commands(sample, store, tmp_path):
    """Each ends well, and prints what the page shows below it."""
    for topic in ("events", "lines"):
        if f"topics create {topic}" not in sample.code or sample.name.startswith("kafka.md"):
            store.create_topic(topic, PARTITIONS)
    for command, shown in commands(sample, tmp_path):
        if any(command.startswith(name) for name in COMMANDS_NOT_RUN):
            continue
        printed = run(command)
        assert shown in ("", printed), command


def commands(sample, folder):
    """Its commands, each with what the page shows of what it prints."""
    found = []
    for line in sample.code_in(folder).splitlines():
        if sample.language == "sh" or line.lstrip().startswith("$ "):
            found.append((re.sub(r"\s+#.*", "", line.strip().removeprefix("$ ")), ""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line.strip() + "\n")
    return [one for one in found if one[0]]


def run(command):
    """Runs a line in this process, as far as the pages use what a shell has; returns what it prints."""
    for text, made in PLACEHOLDERS.items():
        command = command.replace(text, made())
    if command.startswith("export "):
        return ""  # as the fixture has set it
    if " | " in command:
        # It reads from a pipe, which only a process has.
        script = command.replace("pylog", f"{sys.executable} -m pyspark_log.cli.main")
        return subprocess.run(["sh", "-ec", script], check=True, text=True, stdout=subprocess.PIPE).stdout
    command, _, into = command.partition(" > ")
    name, *arguments = shlex.split(command)
    assert name == "pylog", command
    result = CliRunner().invoke(main, arguments, prog_name="pylog")
    assert result.exit_code == 0, f"{command}: {result.output} {result.stderr}"
    if into:
        with open(into, "w") as file:
            file.write(result.stdout)
    return result.stdout


@of("python")
def test_python(sample, store, tmp_path, capsys):
    """Each runs, prints what the page shows, and runs again on what it has left."""
    for is_first in (True, False):
        names = {}
        exec(compile(sample.code_in(tmp_path), sample.name, "exec"), names)
        printed = capsys.readouterr().out
        if sample.printed:
            assert printed == sample.printed or not is_first
        else:
            CHECKS[sample.name](names, store, printed)


def check_shout(names, store, printed):
    if "loud" not in store.topics():
        store.create_topic("loud", PARTITIONS)
    names["shout"](store.path, "flights", "loud", "g")
    again = Store.open(store.path)
    ends = [[again.latest_offset(topic, partition) for partition in range(PARTITIONS)] for topic in ("flights", "loud")]
    assert sum(ends[0]) == sum(ends[1]) > 0
    (first, *_) = again.read("loud", 0)
    assert first["value"][0].as_py() == first["value"][0].as_py().upper()
    store.append("flights", pa.record_batch({"key": ["k"], "value": ["more"]}))


def check_prices(names, _store, printed):
    assert printed == "{'apple': 1.5}\n"


def check_reading(names, _store, printed):
    assert names["late"] > 0
    assert printed == """flights None b'{"carrier": "C7", "dep_delay": 61}'\n"""
    assert names["batch"]["offset"][0].as_py() == 10


def check_sharing(_names, store, printed):
    committed = store.groups["delays"].committed()
    assert "is late" in printed or min(one.offset for one in committed.values()) > 1


def check_exactly_once(_names, store, _printed):
    ends = [sum(store.topic(topic).latest_offsets().values()) for topic in ("flights", "loud")]
    assert ends[0] == ends[1] > 0


def check_asyncio(_names, _store, printed):
    assert "b'soon'" in printed


CHECKS = {
    "transactions.md: In plain Python: read, transform, write, exactly once": check_shout,
    "clients.md: How do I read?": check_reading,
    "clients.md: How do processes share the work?": check_sharing,
    "clients.md: What is processed when a process is killed?": check_exactly_once,
    "clients.md: How do I use asyncio?": check_asyncio,
    "typed-topics.md: Without Spark": check_prices,
}
