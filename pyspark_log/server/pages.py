"""HTTP for what a server shows beside Kafka's protocol. Only a server loads its parts that is asked for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark_log.monitoring import GroupSnapshot, HttpServer, Snapshots, paths
from pyspark_log.server.broker import Broker
from pyspark_log.server.loop_calls import in_loop
from pyspark_log.server.network import Listener

_log = logging.getLogger(__name__)


class Pages:
    """The metrics of a server, on an address of their own. prometheus_client takes some 7 MB."""

    def __init__(self, broker: Broker, listener: Listener, protocol: str, address: tuple[str, int]) -> None:
        """Binds the address; `protocol`: Kafka's `security.protocol` of the server's clients. OSError."""
        from pyspark_log.server.metrics import ServerMetrics  # noqa: PLC0415

        self._metrics = ServerMetrics(broker, listener, protocol, Snapshots(broker.store, lambda: _live_groups(broker)))
        self._http = HttpServer(*address, paths(self._metrics.pages()))

    def start(self) -> None:
        """Answers from now on."""
        self._http.start()
        _log.info("metrics on http://%s:%d/metrics", *self._http.address)

    def not_ready(self, why: str) -> None:
        """Clients cannot be served yet, or any more; "": they can."""
        self._metrics.not_ready = why

    def close(self) -> None:
        """Answers nothing any more."""
        self._http.close()


def _live_groups(broker: Broker) -> Mapping[str, GroupSnapshot]:
    """The groups of the server. LoopStuckError."""
    return {
        name: GroupSnapshot(*one) for name, one in in_loop(broker.loop, broker.groups.coordinator.summaries).items()
    }
