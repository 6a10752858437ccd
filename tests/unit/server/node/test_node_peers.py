"""How a node asks other brokers, which are a server of ours here."""

import signal

import pytest

from pyspark_log import Store
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.messages import FetchRequest, FetchResponse, MetadataRequest, MetadataResponse
from pyspark_log.server.network import Loop
from pyspark_log.server.node.peers import Peers
from pyspark_log.storage.catalog.topics import id_bytes
from tests.server_tools import PATIENCE, served_anew

BROKER = 1


@pytest.fixture
def server(tmp_path):
    with served_anew(tmp_path) as server:
        yield server


class Asking:
    """A loop in which a broker is asked. `connects`: how often a connection was made, `timeout`: of the next."""

    def __init__(self, server, timeout):
        self._server, self.timeout, self.connects = server, timeout, 0
        self.loop = Loop()
        self.peers = Peers(self.loop, self._connect)

    def _connect(self, _broker):
        self.connects += 1
        return Connection(self._server.host, self._server.port, ClientConfig(), timeout=self.timeout)

    def run(self, coroutine):
        """Runs a coroutine to its end; its result."""
        result = self.loop.start(coroutine)
        result.then(self.loop.stop)
        self.loop.run()
        self.peers.close()
        assert result.error is None
        return result.value


def test_requests_of_another_kind_do_not_wait(server, tmp_path):
    with Store.open(tmp_path / "store") as store:
        store.create_topic("t", 1)
        topic_id = id_bytes(store.describe_topic("t").topic_id)
    of, asking = FetchRequest, Asking(server, 30)
    order = []

    async def fetch():
        wanted = of.FetchTopic(topic_id=topic_id, partitions=[of.FetchPartition(0, partition_max_bytes=1000)])
        answer = await asking.peers.ask(BROKER, of(topics=[wanted], max_wait_ms=25_000, min_bytes=1))
        order.append(type(answer))

    async def ask():
        fetched = asking.loop.start(fetch())
        order.append(type(await asking.peers.ask(BROKER, MetadataRequest([]))))
        with Store.open(tmp_path / "store") as store:
            store.append("t", [{"value": b"what the fetch waits for"}])
        await fetched

    asking.run(ask())
    assert order == [MetadataResponse, FetchResponse]


def test_what_waits_for_a_request_without_an_answer_fails_with_it(server):
    asking = Asking(server, 0.5)

    async def error_of(wait):
        try:
            await wait
        except OSError as error:
            return error
        return None

    async def ask():
        server.process.send_signal(signal.SIGSTOP)
        try:
            waits = [asking.peers.ask(BROKER, MetadataRequest([])) for _ in range(5)]
            failed = [await error_of(one) for one in waits]
        finally:
            server.process.send_signal(signal.SIGCONT)
            asking.timeout = PATIENCE
        assert all(failed)
        assert asking.connects == 1
        # Later ones are asked.
        return [await error_of(asking.peers.ask(BROKER, MetadataRequest([])))]

    assert asking.run(ask()) == [None]
