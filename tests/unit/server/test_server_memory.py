"""What a server loads and holds: no Arrow, and a tenth of the memory that Kafka's takes."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from server_requests import EARLIEST, LARGEST_TIME, batch, fetch, list_offset, produce, values

from pyspark_log import Store
from tests import requests as r
from tests.server_tools import NewServer, Peer, served
from tests.store_tools import stage

MIB = 1 << 20
# Of resident memory: a third of this is files that other processes of Python share. Kafka has some 350 MiB.
AT_REST, IN_USE, GROWTH = 42 * MIB, 50 * MIB, 1 * MIB
ROUNDS = 60


def mapped(server):
    """The files that the process has in its memory."""
    lines = Path(f"/proc/{server.process.pid}/maps").read_text().splitlines()
    return {Path(line.split(None, 5)[5]).name for line in lines if len(line.split(None, 5)) > 5}


def commit(peer, offset):
    """Commits an offset of a group that has no members, and looks it up."""
    [[done]] = [one.partitions for one in peer.ask(r.commit("g", "t", offset), 8).topics]
    assert done.error_code == 0
    [[found]] = [one.partitions for one in peer.ask(r.committed("g", "t", 0), 7).topics]
    assert found.committed_offset == offset


def has_arrow(server):
    return any(name.startswith("libarrow") for name in mapped(server))


def test_the_modules_of_a_server_load_no_arrow():
    code = "import sys, pyspark_log.cli.serving.serve, pyspark_log.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "pyspark_log.storage.folder_store" in loaded
    assert not {"pyarrow", "numpy", "pandas", "rich"} & set(loaded)
    # Nor what only metrics and TLS need.
    assert not {"prometheus_client", "pyspark_log.metrics", "http.server", "ssl"} & set(loaded)


def test_the_logs_of_groups_and_publishes_need_no_arrow(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        rows = pa.record_batch({"value": [b"v"]})
        store.publishes.publish("job", 0, stage(store, rows))
    code = """
import sys
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.types import TopicPartition
store = FolderStore.open(sys.argv[1])
store.publishes.apply_pending()
group = store.groups["g"]
group.commit({TopicPartition("t", 0): 1})
print(list(store.decisions.last), group.committed()[TopicPartition("t", 0)].offset)
store.groups.log.delete_group("g")
print("pyarrow" in sys.modules)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["['job'] 1", "False"]


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("stored", ["producer", "zstd"])
def test_a_server_without_arrow(tmp_path, stored):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1, {"compression.type": stored})
    with served(tmp_path / "store", tmp_path, kind=NewServer) as server, Peer(server) as peer:
        assert server.resident() < AT_REST
        sent, large, first = 0, b"x" * 100_000, 0
        for number in range(ROUNDS):
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                assert produce(peer, "t", batch(b"%d" % sent, large, codec=codec)).base_offset == sent
                assert values(fetch(peer, "t", sent)) == {sent: b"%d" % sent, sent + 1: large}
                sent += 2
            if number == ROUNDS // 3:
                first = server.resident()
        assert list_offset(peer, "t", EARLIEST).offset == 0
        assert list_offset(peer, "t", 1000).offset == 0
        assert 0 <= list_offset(peer, "t", LARGEST_TIME).offset < sent
        assert produce(peer, "t", batch(b"later", timestamp=1 << 50)).error_code == 32
        for number in range(100):
            commit(peer, number)
        assert not has_arrow(server)
        assert server.resident() < min(IN_USE, first + GROWTH)
