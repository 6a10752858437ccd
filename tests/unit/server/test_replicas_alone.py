"""A copy of a node's folder, served without its cluster: what is not shown is said, and groups are refused at once."""

import os

import pytest
from server_requests import fetch, values

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.storage.log.state.partition_state import MIRROR, of_node
from tests.server_tools import Peer, served
from tests.waiting import wait_until


def _made(path, owner, seen):
    """A store with two partitions of an owner, of three records each; `seen`: the high watermark."""
    with Store.create(path) as store:
        store.create_topic("t", 2)
        for partition in (0, 1):
            for number in range(3):  # a batch each
                store.append("t", [{"value": b"%d" % number, "partition": partition}])
            with store.logs.writer("t", partition).hold() as writer:
                state = writer.log.state._replace(owner_node=owner, high_watermark=seen)
                writer.log.lease.save(state, durable=False)
    return path


def _coordinator(peer, kind):
    [found] = peer.ask(m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"]), 4).coordinators
    return found


def test_groups_are_refused_at_once(tmp_path):
    path = _made(tmp_path / "store", of_node(7), 3)
    with served(path, tmp_path) as server, Peer(server) as peer:
        assert list(values(fetch(peer, "t", 0))) == [0, 1, 2]
        assert _coordinator(peer, 0).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert _coordinator(peer, 1).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert "is served for reading only: it has the replicas of a node of a Kafka cluster" in server.output()
    assert "not shown" not in server.output()


def test_no_partition_is_moved(tmp_path):
    path = _made(tmp_path / "store", of_node(7), 3)
    topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic("t", [0])
    request = m.AlterReplicaLogDirsRequest([m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(f"{path}/data", [topic])])
    with served(path, tmp_path) as server, Peer(server) as peer:
        [result] = peer.ask(request, 2).results
        assert [part.error_code for part in result.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_what_is_not_shown_is_said(tmp_path):
    path = _made(tmp_path / "store", of_node(7), 1)
    [log] = (path / "data" / "t-1").glob("*.log")
    os.truncate(log, log.stat().st_size - 1)  # as `cp` has it that came before the last append
    with served(path, tmp_path) as server, Peer(server) as peer:
        wait_until(lambda: "t-0: offsets 1 to 2 are not shown" in server.output(), "hidden records are reported")
        wait_until(lambda: "t-1 cannot be read: " in server.output(), "damage is reported")
        assert list(values(fetch(peer, "t", 0))) == [0]


@pytest.mark.parametrize("owner", [0, MIRROR])
def test_other_stores_have_groups(tmp_path, owner):
    path = _made(tmp_path / "store", owner, 3)
    with served(path, tmp_path) as server, Peer(server) as peer:
        assert _coordinator(peer, 0).error_code == ErrorCode.NONE
        assert "reading only" not in server.output()
