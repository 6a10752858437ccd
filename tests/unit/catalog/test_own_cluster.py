"""The store of a node of a Kafka cluster: what the cluster decides is not changed in it by other programs."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.admin import verify
from pyspark_log.cli.main import main
from pyspark_log.errors import PartitionOwnedError, StoreError
from pyspark_log.storage.catalog.store_json import CLUSTER_FILE, OwnCluster, note_cluster, read_cluster
from pyspark_log.storage.groups import OffsetsLog
from pyspark_log.storage.log_manager import TopicAdmin
from pyspark_log.types import TopicPartition
from tests.store_tools import rows, stage, values

CLUSTER = OwnCluster([("a.example", 9092), ("b.example", 9093)], "/etc/login")
ADVICE = "changed in the cluster, with Kafka's tools .--bootstrap-server a.example:9092,b.example:9093.$"


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        store.append("t", rows(b"v"))
        note_cluster(store.path, CLUSTER)
        yield store


CHANGES = {
    "create": lambda store: store.create_topic("u", 1),
    "make": lambda store: store.ensure_topic("u"),
    "add partitions": lambda store: store.add_partitions("t", 2),
    "alter": lambda store: store.alter_configs("t", {"retention.ms": "1"}),
    "delete": lambda store: store.delete_topic("t"),
    "commit": lambda store: OffsetsLog(store.committed_offsets).commit("g", {TopicPartition("t", 0): 1}),
    "import": lambda store: TopicAdmin(store.logs).adopt(replace(store.describe_topic("t"), name="u"), {}, {}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_topics_are_the_clusters(store, change):
    before = store.describe_topic("t")
    with pytest.raises(PartitionOwnedError, match=ADVICE):
        change(store)
    assert store.topics(internal=True) == ["t"]
    assert store.describe_topic("t") == before
    assert not store.ensure_topic("t")
    assert values(store) == [b"v"]


def test_what_is_the_stores_own(store):
    """A publish through the leaders notes its number here; and the node itself does as the cluster says."""
    store.publishes.publish("p", 0, stage(store, rows(b"w")))
    assert values(store) == [b"v", b"w"]
    admin = TopicAdmin(store.logs, follows_cluster=True)
    admin.alter_configs("t", {"retention.ms": "-1"}, ())
    admin.delete("t")
    assert store.topics() == []


@pytest.mark.parametrize(
    "command", ["acls add --principal User:anna --topic t", "quotas set --user anna producer_byte_rate=1"]
)
def test_what_would_not_count_is_refused(store, command):
    done = CliRunner().invoke(main, [*command.split(), "--store", store.path])
    assert done.exit_code == 1
    assert "quotas are changed in the cluster" in done.output


def test_the_file_is_one_of_the_engine(store):
    assert read_cluster(store.path) == CLUSTER
    assert verify(store.path).findings == []
    Path(store.path, "state", CLUSTER_FILE).write_text("{")
    with pytest.raises(StoreError, match="is damaged, start the node again"):
        store.create_topic("u", 1)
