"""Every command, and every public member of a store, over every kind of store: it works, or is refused in one line."""

import shutil

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from pyspark_log import Store, TopicPartition
from pyspark_log.cli.main import main
from pyspark_log.errors import UnsupportedByStoreError
from pyspark_log.storage.catalog.store_json import OwnCluster, note_cluster
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.types import OffsetAndTimestamp
from tests.store_tools import rows

AT = TopicPartition("t", 0)
#: What each command is called with: once, or several times. `{new}` is a folder that is not there.
CALLS = {
    "acls add": [f"--{how} --topic t" for how in ("allow-principal User:a", "principal User:a --operation read")],
    "acls list": ["", "--json"],
    "acls remove": [f"--{how}principal User:a --operation read --topic t --yes" for how in ("allow-", "")],
    "backup": ["--into {new}"],
    "clean": ["", "t"],
    "compact": ["", "t"],
    "configs": ["", "topic"],
    "consume": ["t", "t --group g", "t --format offsets", "__consumer_offsets --format offsets"],
    "du": ["", "t --json"],
    "dump": ["", "{path}"],
    "explain": ["", "PYLOG_DATA_LOSS"],
    "export-kafka": ["t {new} --topic-id AAAAAAAAAAAAAAAAAAAAAQ"],
    "groups delete": ["g --yes", "--all-groups --yes"],
    "groups delete-offsets": ["--group g --topic t --yes", "--group none --topic t:0 --yes"],
    "groups describe": ["g", "g --members", "g --state", "--all-groups --json"],
    "groups list": ["", "--state", "--json"],
    "groups reset-offsets": [f"--group g --topic t --to-latest {how}" for how in ("--dry-run", "--execute")],
    "jobs list": [""],
    "jobs path": ["bulk_load"],
    "log-dirs add": ["{new}"],
    "log-dirs describe": ["", "t --json"],
    "log-dirs list": ["", "--json"],
    "log-dirs move": ["t 0 {new}"],
    "log-dirs remove": ["{new}"],
    "merge": ["", "t"],
    "metrics": [""],
    "offsets": ["", *(f"t --time {time}" for time in ("earliest", "latest", "max-timestamp", "-3", "-1", "-2", "0"))],
    "perf consume": ["t --messages 1"],
    "perf produce": ["t --num-records 1"],
    "produce": ["t"],
    "publishers delete": ["p --yes", "none --yes"],
    "publishers describe": ["p", "p none --json"],
    "publishers list": ["", "--json"],
    "quotas list": ["", "--json"],
    "quotas remove": ["--user a --yes producer_byte_rate", "--user a producer_byte_rate"],
    "quotas set": ["--user a producer_byte_rate=1000"],
    "recover": [""],
    "repair": ["--into {new}"],
    "tail": ["t --max-messages 1"],
    "top": ["--once --interval 0.1"],
    "topics alter": ["t --partitions 5", "t --config retention.ms=-1"],
    "topics create": ["u", "t"],
    "topics delete": ["t --yes", "none --yes"],
    "topics delete-records": ["t --partition 0 --before 1 --yes"],
    "topics describe": ["", "t --json"],
    "topics list": ["", "--json"],
    "upkeep": [""],
    "users add": ["a --password-file -"],
    "users list": ["", "--json"],
    "users remove": ["a --yes"],
    "verify": ["", "--json"],
}  # fmt: skip
#: Commands that run until they are ended, that are about no store, or whose own tests have each kind.
ELSEWHERE = {"doctor", "cluster init", "cluster start", "cluster units", "mirror", "move-job", "serve", "ui"}


def commands(group=main, words=()):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name))


def filled(place):
    store = Store.create(place, {"offsets.topic.num.partitions": "1"})
    store.create_topic("t", 2)
    store.append("t", rows(b"a", b"b"), partition=0)
    store.groups["g"].commit({AT: 1})
    writer = store.publishes.writer(store.publishes.plan(["t"]))
    writer.append("t", pa.record_batch({"key": [b"k"], "value": [b"c"]}))
    store.publishes.publish("p", 0, writer.finish())
    store.close()
    return store.path


@pytest.fixture(params=["folder", "objects", "broker", "node"])
def path(request, tmp_path):
    """A store of a kind, with a topic, a group and a publisher as far as the kind has them."""
    if request.param == "objects":
        return filled(request.getfixturevalue("object_url"))
    found = filled(tmp_path / "store")
    if request.param == "broker":
        shutil.copytree(tmp_path / "store" / "data", tmp_path / "logs")
        (tmp_path / "logs" / "replication-offset-checkpoint").write_text("0\n2\nt 0 2\nt 1 1\n")
        return str(tmp_path / "logs")
    if request.param == "node":
        note_cluster(found, OwnCluster([("127.0.0.1", 1)], ""))
    return found


def test_each_command_is_tried():
    assert set(commands()) == CALLS.keys() | ELSEWHERE


@pytest.mark.parametrize("command", CALLS)
def test_commands(path, tmp_path, command):
    for words in CALLS[command]:
        given = [word.format(path=path, new=tmp_path / "new") for word in words.split()]
        result = CliRunner().invoke(main, ["--store", path, *command.split(), *given], input="x\n", prog_name="pylog")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert result.exit_code == 0 or "Error: " in result.stderr, result.output


def test_what_an_object_store_cannot_do_is_refused(object_url):
    objects = Store.open(filled(object_url))
    group = objects.groups["g"]
    for refused in (
        lambda: group.lock("a test"), lambda: objects.groups.log.commit("g", {AT: 1}, member="m"),
        lambda: group.commit({AT: 1}, expire_timestamp=5), lambda: objects.groups.log.membership,
        lambda: OffsetsLog(objects), lambda: objects.publishes.delete_publisher("p"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedByStoreError):
            refused()


def test_the_largest_time(object_url):
    store = Store.open(filled(object_url))
    store.create_topic("times", 1, {"retention.ms": "-1"})
    assert store.partitions.offset_of_max_timestamp("times", 0) is None
    for times in ([5, 9, 9], [7, 8], [9]):
        store.append("times", pa.record_batch({"value": [b"v"] * len(times), "timestamp": times}))
    assert store.partitions.offset_of_max_timestamp("times", 0) == OffsetAndTimestamp(1, 9)
    store.delete_records("times", 0, 3)
    assert store.partitions.offset_of_max_timestamp("times", 0) == OffsetAndTimestamp(5, 9)
    store.append("times", pa.record_batch({"value": [b"v"] * 2, "timestamp": [20, 3]}))
    store.delete_records("times", 0, 7)
    assert store.partitions.offset_of_max_timestamp("times", 0) == OffsetAndTimestamp(7, 3)
