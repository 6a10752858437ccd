"""HTTP for what a server shows beside Kafka's protocol. Only a server loads its parts that is asked for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from pyspark_log.monitoring import GroupSnapshot, HttpServer, Snapshots, paths
from pyspark_log.server.broker import Broker
from pyspark_log.server.network import Listener
from pyspark_log.server.pages.loop_calls import in_loop

if TYPE_CHECKING:
    import ssl

    from pyspark_log.server.pages.metrics import ServerMetrics
    from pyspark_log.server.pages.ui_view import UiView
    from pyspark_log.ui import Ui

_log = logging.getLogger(__name__)

# How old what is shown of the store may be, in seconds: a page renews itself more often than Prometheus asks.
_FRESH = 2.0


class Pages:
    """The metrics of a server, and the page of its store, each on an address of its own."""

    def __init__(self, broker: Broker, listener: Listener) -> None:
        """There are none yet."""
        self._broker, self._listener = broker, listener
        self._snapshots = Snapshots(broker.store, lambda: _live_groups(broker), _FRESH)
        self._metrics: tuple[ServerMetrics, HttpServer] | None = None
        self._ui: tuple[Ui, HttpServer, str] | None = None

    def add_metrics(self, address: tuple[str, int], protocol: str) -> None:
        """Binds an address for metrics; prometheus_client takes some 7 MB.

        Args:
            address: host and port.
            protocol: Kafka's `security.protocol` of the server's clients.

        Raises:
            OSError: the address cannot be used.
        """
        from pyspark_log.server.pages.metrics import ServerMetrics  # noqa: PLC0415

        metrics = ServerMetrics(self._broker, self._listener, protocol, self._snapshots)
        self._metrics = metrics, HttpServer(*address, paths(metrics.pages()))

    def add_ui(
        self,
        address: tuple[str, int],
        view: UiView,
        *,
        names: Collection[str] | None,
        has_login: bool,
        schemas: str | None,
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> tuple[str, int]:
        """Binds an address for the page of the store; returns it.

        Args:
            address: host and port.
            view: what it shows of the server.
            names: by which browsers may reach it, beside the host of the address; None: any.
            has_login: whether its readers log in as users of the server.
            schemas: the folder of schemas for Avro, or the URL of a registry.
            tls: the server's side of TLS for a new connection.

        Raises:
            OSError: the address cannot be used.
        """
        from pyspark_log.ui import Guard, Schemas, Ui  # noqa: PLC0415

        hosts = None if names is None else [address[0], *names]
        guard = Guard(hosts, view.log_in if has_login else None, view.admit)
        # A client that may change configs of topics must not choose what the server asks.
        app = Ui(self._snapshots, guard, schemas=Schemas(schemas, takes_registries=False), server=view)
        http = HttpServer(*address, app.answer, tls)
        self._ui = app, http, "http" if tls is None else "https"
        return http.address

    def start(self) -> None:
        """Answers for metrics from now on."""
        if self._metrics is not None:
            http = self._metrics[1]
            http.start()
            _log.info("metrics on http://%s:%d/metrics", *http.address)

    def ready(self) -> None:
        """Clients can be served: shows the store from now on."""
        if self._metrics is not None:
            self._metrics[0].not_ready = ""
        if self._ui is not None:
            app, http, scheme = self._ui
            app.start()
            http.start()
            host, port = http.address
            _log.info("the page is on %s://%s:%d/", scheme, f"[{host}]" if ":" in host else host, port)

    def stop(self) -> None:
        """Clients cannot be served any more."""
        if self._metrics is not None:
            self._metrics[0].not_ready = "the server is stopping"
        if self._ui is not None:
            app, http, _ = self._ui
            app.close()
            http.close()

    def close(self) -> None:
        """Answers nothing any more."""
        if self._metrics is not None:
            self._metrics[1].close()


def _live_groups(broker: Broker) -> Mapping[str, GroupSnapshot]:
    """The groups of the server. LoopStuckError."""
    groups = in_loop(broker.loop, broker.groups.coordinator.summaries)
    return {name: GroupSnapshot(*summary) for name, summary in groups.items()}
