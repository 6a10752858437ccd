"""A node without data: it drives the state machines of a node over real connections to real controllers."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.schemas import message_of
from pyspark_log.server.cluster import Address, NodeConfig, Observer, ObserverConfig, Registration, State, in_version
from pyspark_log.server.cluster.image import Endpoint
from tests import requests as r
from tests.ports import HOST

#: How long is waited for what must happen, in seconds.
PATIENCE = 240


def now_ms():
    return time.monotonic_ns() // 1_000_000


class Node:
    """A node, or an observer alone if it has no id.

    Attributes:
        observer, registration: its state machines; no registration without an id.
        changes: what the observer has found, in order.
        sent: the names of all requests.
    """

    def __init__(self, controllers, cluster_id, node_id=None, **config):
        """`config`: fields of NodeConfig."""
        self.directory_id = config.pop("directory_id", os.urandom(16))
        self.observer = Observer(
            ObserverConfig(
                tuple(Address(*one) for one in controllers), "CONTROLLER", cluster_id,
                -1 if node_id is None else node_id, self.directory_id, max_wait=100,
            )
        )  # fmt: skip
        self.registration = None
        if node_id is not None:
            given = {
                "incarnation_id": os.urandom(16), "endpoints": (Endpoint("PLAINTEXT", HOST, 9, 0),),
                "log_dirs": (self.directory_id,),
            }  # fmt: skip
            self.registration = Registration(NodeConfig(node_id, cluster_id, **{**given, **config}))
        self.changes, self.sent = [], []
        self._connections = {}

    @property
    def image(self):
        return self.observer.image

    def run_until(self, condition, patience=PATIENCE):
        """Runs it until something holds."""
        end = time.monotonic() + patience
        while not condition():
            troubles = self.observer.trouble, self.registration and self.registration.trouble
            assert time.monotonic() < end, f"waited in vain; the last troubles are {troubles}"
            self.step()

    def run_during(self, call, *arguments):
        """Runs it while something else is done; the result of that."""
        with ThreadPoolExecutor(1) as others:
            done = others.submit(call, *arguments)
            self.run_until(done.done)
            return done.result()

    def step(self):
        """Sends what is to be sent, and takes the answers."""
        send = self.observer.poll(now_ms())
        if send is not None:
            change = self._ask(self.observer, send, send.to)
            self.changes += [] if change is None else [change]
        if self.registration is not None:
            self.registration.follow(self.image, self.observer.is_current)
            while (send := self.registration.poll(now_ms())) is not None:
                self._ask(self.registration, send, self.observer.leader)
        if send is None:
            time.sleep(0.005)

    def unfence(self):
        """Runs it until the controllers have unfenced it."""
        self.registration.be_ready()
        self.run_until(lambda: not self.registration.is_fenced)

    def shut_down(self):
        """Runs it until it may end."""
        self.registration.shut_down()
        self.run_until(lambda: self.registration.state is State.STOPPED)
        self.close()

    def close(self):
        """Closes its connections."""
        for one in self._connections.values():
            one.close()
        self._connections.clear()

    def ask(self, request):
        """The response of the leader of the controllers to a request."""
        return self._connection(self.observer.leader).ask(request)

    def _connection(self, address):
        if address is None:
            raise ConnectionRefusedError("the leader of the controllers is not known")
        if address not in self._connections:
            self._connections[address] = Connection(*address, ClientConfig(), timeout=5)
        return self._connections[address]

    def _ask(self, machine, send, address):
        self.sent.append(type(send.request).__name__)
        try:
            connection = self._connection(address)
            version = connection.version(type(send.request))
            response = connection.ask(in_version(send.request, version), version)
        except OSError as error:
            gone = self._connections.pop(address, None)
            if gone is not None:
                gone.close()
            machine.failed(send.number, str(error), now_ms())
            return None
        return machine.answered(send.number, response, now_ms())


class Admin:
    """A client that changes the cluster of a broker, without the seconds that Kafka's tools take to start."""

    def __init__(self, broker):
        self._connection = Connection(broker.host, broker.port, ClientConfig())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def ask(self, request):
        """The response to a request, which has no errors."""
        response = self._connection.ask(request)
        assert message_of(response).errors_in(response) == [], response
        return response

    def create_topic(self, name, replicas, **configs):
        """Creates a topic; `replicas`: those of each partition."""
        return self.ask(r.create_topic(name, -1, -1, [*enumerate(replicas)], **configs)).topics[0].topic_id

    def delete_topic(self, name):
        of = m.DeleteTopicsRequest
        self.ask(of([of.DeleteTopicState(name)], timeout_ms=30_000))

    def set_configs(self, kind, name, **configs):
        """Sets configs of a resource; None takes one away."""
        changes = [(key.replace("_", "."), int(one is None), one) for key, one in configs.items()]
        self.ask(r.alter_configs(kind, name, *changes))

    def set_quota(self, entity, key, value):
        """Sets a quota of an entity, a mapping; None takes it away."""
        of = m.AlterClientQuotasRequest
        parts = [of.EntityData(*one) for one in entity.items()]
        self.ask(of([of.EntryData(parts, [of.OpData(key, value or 0, value is None)])], False))

    def reassign(self, topic, number, replicas):
        """Begins to move a partition."""
        of = m.AlterPartitionReassignmentsRequest
        self.ask(of(30_000, True, [of.ReassignableTopic(topic, [of.ReassignablePartition(number, replicas)])]))
