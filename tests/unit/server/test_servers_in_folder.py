"""Servers of a store in a folder: which of them live, which coordinates, and what the others pass on to that one."""

import contextlib
import os
import signal
from types import SimpleNamespace

import pytest
from server_requests import batch

from pyspark_log import Store
from pyspark_log.errors import InvalidConfigError, StoreError, UnsupportedByStoreError
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server import kinds
from pyspark_log.server.network import ClosedByServerError, Loop
from pyspark_log.server.security.acls import Acl, Acls, Operation, Pattern, Permission, Resource
from pyspark_log.server.served.folder.servers import FolderServers
from pyspark_log.server.served.servers import Server
from pyspark_log.server.several.relay import Relay
from tests import requests as r
from tests.documents import documents_at
from tests.processes import started, wait_for_the_end
from tests.security_tools import add_users, log_in
from tests.server_tools import Peer, make_store, running
from tests.server_tools import Server as Process
from tests.store_tools import values

_PASSWORD = "a long password"


@pytest.fixture
def path(tmp_path):
    return str(make_store(tmp_path, ["mine", "hidden"]))


def _coordinate(connection, path):
    """Coordinates, in a process of its own."""
    servers = FolderServers(path, None)
    servers.register(("other", 1))
    servers.begin(lambda: connection.send(servers.node_id), None)
    wait_for_the_end(connection)


@contextlib.contextmanager
def member(path, node_id=None):
    """A server of a store, without its thread: what that does, a test does."""
    servers = FolderServers(path, node_id)
    servers._on_change = lambda: None
    servers.register(("host", 9092))
    try:
        yield servers
    finally:
        servers.end()


def look(servers):
    servers._look_at_coordinator()
    servers._judge()


def test_a_server_is_dead_once_it_is_killed(path):
    with started(_coordinate, path) as (process, node_id), member(path) as servers:
        other = Server(node_id, "other", 1)
        # One that is stopped is waited for: it has its locks.
        os.kill(process.pid, signal.SIGSTOP)
        look(servers)
        assert (servers.alive(), servers.coordinator()) == ((other, Server(2, "host", 9092)), other)
        assert (servers.coordinates, servers.term) == (False, None)
        leaders = {servers.leader("id", number, "").node_id for number in range(100)}
        assert leaders == {1, 2}
        process.kill()
        process.join()
        look(servers)
        assert (servers.alive(), servers.coordinator()) == ((Server(2, "", 0),), Server(2, "", 0))
        assert (servers.coordinates, servers.term) == (True, 2)
        # The next one with an id of no living server gets the one that is free.
        with member(path) as third:
            look(third)
            assert (third.node_id, third.coordinator()) == (1, Server(2, "host", 9092))
            servers.end()
            look(third)
            assert third.term == 3


def test_two_with_one_id(path, monkeypatch):
    with (
        member(path, 4),
        pytest.raises(StoreError, match="another server of this store has node id 4"),
        member(path, 4),
    ):
        pass
    with pytest.raises(InvalidConfigError, match="--advertise"):
        FolderServers(path, 4).register(("0.0.0.0", 9092))


def _held(store, *, shared):
    return kinds.kind_of(store, None, None, None, "", shared=shared).logs.held(1000)


def test_one_that_is_alone_and_those_that_share_refuse_each_other(path):
    store = Store.open(path)
    with (
        _held(store, shared=True), _held(store, shared=True),
        pytest.raises(StoreError, match="another server serves this store"), _held(store, shared=False),
    ):  # fmt: skip
        pass
    with _held(store, shared=False), pytest.raises(StoreError, match="without --shared"), _held(store, shared=True):
        pass


def test_a_folder_that_other_machines_may_have(path, monkeypatch):
    monkeypatch.setattr(kinds, "is_shared", lambda _: True)
    with pytest.raises(UnsupportedByStoreError, match="start one server alone"):
        kinds.check_several(Store.open(path))


# ---- what is passed on


@pytest.fixture
def pair(path, tmp_path):
    """Two servers with rights: carl may write to its topic, as a transactional id. The first one coordinates."""
    add_users(path, {"carl": _PASSWORD})
    rights = [
        Acl(resource, name, Pattern.LITERAL, "User:carl", "*", Operation.ALL, Permission.ALLOW)
        for resource, name in ((Resource.TOPIC, "mine"), (Resource.TRANSACTIONAL_ID, "tx"))
    ]
    Acls(documents_at(path), ()).change(lambda _: rights)
    options = ("--shared", "--sasl-mechanisms", "PLAIN", "--acls")
    with contextlib.ExitStack() as stack:
        servers = []
        for number in (1, 2):
            (tmp_path / str(number)).mkdir()
            servers.append(stack.enter_context(running(Process(path, tmp_path / str(number), *options))))
            servers[0].wait_for("coordinates the groups")
        yield servers


def _peer(server):
    peer = Peer(server)
    assert log_in(peer, "carl", _PASSWORD).error_code == 0
    return peer


def test_what_another_server_is_sent_in_a_transaction(pair, path):
    with _peer(pair[0]) as coordinator, _peer(pair[1]) as other:
        begin = m.InitProducerIdRequest("tx", 60_000)
        assert other.ask(begin, 4).error_code == ErrorCode.NOT_COORDINATOR
        answer = coordinator.ask(begin, 4)
        producer = answer.producer_id, answer.producer_epoch

        def produce(topic, sequence, acks=-1):
            data = batch(
                b"%d" % sequence, transactional=True, producer_id=producer[0], producer_epoch=producer[1],
                base_sequence=sequence,
            )  # fmt: skip
            other.send(r.produce(topic, (0, data), transactional_id="tx", acks=acks), 12)

        def answered():
            [[part]] = [topic.partition_responses for topic in other.response().responses]
            return part.error_code, part.base_offset

        produce("mine", 0)
        assert answered() == (ErrorCode.NONE, 0)
        produce("mine", 0)
        assert answered() == (ErrorCode.NONE, 0)
        # The coordinator looks at the rights of the other server's client.
        produce("hidden", 0)
        assert answered() == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
        produce("mine", 1, acks=0)
        produce("mine", 2)
        assert answered() == (ErrorCode.NONE, 2)
        assert coordinator.ask(m.EndTxnRequest("tx", *producer, True), 4).error_code == 0
    assert values(Store.open(path), 0, "mine", isolation_level="read_committed") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_does_not_answer(path, error):
    """Its producer tries again; one that wants no answer is disconnected."""
    with contextlib.closing(Loop()) as loop, member(path) as servers:
        look(servers)  # It coordinates, but does not listen.
        relay = Relay(loop, servers, None, lambda _: error)
        call = SimpleNamespace(version=12, client_id=None, client=SimpleNamespace(principal="User:carl", peer="host:1"))
        for acks in (-1, 0):
            answer = loop.start(relay.produce(call, r.produce("mine", (0, b"x"), transactional_id="tx", acks=acks)))
            answer.then(loop.stop)
            loop.run()
            if acks:
                [[part]] = [topic.partition_responses for topic in answer.value.responses]
                assert part.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            else:
                assert isinstance(answer.error, ClosedByServerError)
        relay.close()
