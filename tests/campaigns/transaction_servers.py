"""Three servers over one store in an object store, versitygw or moto with faults, for the campaign of transactions."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import time

import pyarrow as pa

from pyspark_log import Store
from pyspark_log.errors import PylogError
from tests.campaigns.members import PARTITIONS
from tests.server_tools import Server
from tests.store_tools import damages

_COUNT = 3
# After how long a server that is frozen is taken for dead, and a bit, in seconds.
_LONG = 17


def ended(servers):
    """Ends servers in order; gives what is wrong by then."""
    found = [f"a server has ended with {code}" for server in servers if (code := server.stop())]
    for server in servers:
        if "Traceback" in (said := server.output()):
            found.append(f"a server has said: {said[said.index('Traceback') :][:3000]}")
    return found


class Servers:
    """Methods as those of OneServer.

    Attributes:
        bootstrap: where clients find them.
        path: the store.
    """

    def __init__(self, folder, topics, objects):
        self._objects = objects(folder / "gateway")
        os.environ.update(self._objects.environment)
        self._objects.start()
        atexit.register(self._objects.kill)
        self.path = f"s3://{self._objects.bucket}/store"
        self._store = Store.create(self.path)
        for topic in topics:
            self._store.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        self._servers = []
        for number in range(1, _COUNT + 1):
            (folder / f"server-{number}").mkdir()
            self._servers.append(Server(self.path, folder / f"server-{number}", "--node-id", number, "--linger", 5))
        self.bootstrap = ",".join(server.bootstrap for server in self._servers)

    def start(self):
        """Starts them."""
        for server in self._servers:
            server.start()

    def append(self, partition, values):
        """Appends to the topic that is copied, as Spark and Python do."""
        rows = pa.record_batch({"value": values})
        while True:
            # The object server may be gone for a moment; what is not certain is looked up.
            end = self.end_of("in", partition)
            try:
                self._store.append("in", rows, partition=partition)
            except (PylogError, OSError):
                if self.end_of("in", partition) > end:
                    return
            else:
                return

    def end_of(self, topic, partition):
        """Where a partition ends."""
        while True:
            with contextlib.suppress(PylogError, OSError):
                return self._store.latest_offset(topic, partition)

    def hit(self, chance):
        """Attacks a server, or the object server; gives what was done."""
        server, kind = (
            chance.choice(self._servers),
            chance.choice(["kill"] * 4 + ["stop", "blink", "freeze", "objects"]),
        )
        if kind == "kill":
            server.kill()
            time.sleep(chance.choice([0, 0, 0, _LONG]))
            server.start()
        elif kind == "stop":
            server.stop()
            server.start()
        elif kind == "objects":
            self._objects.kill()
            time.sleep(chance.uniform(0, 2))
            self._objects.start()
        else:
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(_LONG if kind == "freeze" else chance.uniform(0.2, 3))
            server.process.send_signal(signal.SIGCONT)
        return f"{kind} of the objects" if kind == "objects" else f"{kind} of a server"

    def committed(self, topic, partition):
        """Records of a partition that are committed: offsets and values."""
        while True:
            with contextlib.suppress(PylogError, OSError):
                found = list(self._store.read(topic, partition))
                return [(row["offset"], row["value"].decode()) for rows in found for row in rows.to_pylist()]

    def finish(self):
        """Ends them in order; gives what is wrong by then."""
        return ended(self._servers)

    def check(self):
        """What is wrong with the store."""
        state = self._store.log.follow()
        yield from (f"the transaction of producer {producer_id} is open" for producer_id in state.open)
        yield from (f"server {node_id} has not left" for node_id in state.servers)
        yield from map(str, damages(self.path))

    def close(self):
        """Ends them at once. The object server ends with this process, as its records are counted at last."""
        for server in self._servers:
            server.kill()
