"""A server over one store: it begins to listen, runs until it is stopped, and leaves the store in order."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from pyspark_log.config import int_config
from pyspark_log.errors import InvalidConfigError
from pyspark_log.monitoring import is_loopback
from pyspark_log.server.broker import Broker
from pyspark_log.server.coordinator import Settings
from pyspark_log.server.handlers import Api, Client, node_apis
from pyspark_log.server.kinds import in_folder, kind_of
from pyspark_log.server.member import Member, Parts
from pyspark_log.server.network import ClosedByServerError, Limits, Listener, Loop, Workers
from pyspark_log.server.node.config import ClusterConfig
from pyspark_log.server.pages.pages import Pages
from pyspark_log.server.quotas import ClientQuotas, Throttles
from pyspark_log.server.security import Acls, Login, PrincipalRules, Sasl, SaslConfig, TlsConfig, Users, subject, user
from pyspark_log.server.security.sasl import BEARER
from pyspark_log.server.served import ServedLogs
from pyspark_log.server.session import ClientSession, SaslSession
from pyspark_log.server.state.appends import Appends
from pyspark_log.server.state.counts import Counts
from pyspark_log.server.state.fetch_sessions import FetchSessions
from pyspark_log.server.state.producer_ids import ProducerIds
from pyspark_log.server.state.topic_ids import TopicIds
from pyspark_log.server.upkeep import Upkeep
from pyspark_log.storage.fs import contextmanager
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    import ssl

    from pyspark_log.storage.folder_store import FolderStore

_log = logging.getLogger(__name__)

# Threads for what may wait. Appends of one partition join each other, so a few are enough for many clients.
_THREADS = 4


@dataclass(frozen=True)
class ServerConfig:
    """How a server is run.

    Attributes:
        host, port: the address that it listens on; port 0: any that is free.
        advertised: host and port that clients get; None: the address at which each has reached the server.
        node_id: Kafka's `broker.id`; None: 1, or any that no other server of the store has, where there may be others.
        sync_acks_all: whether acks=all waits until the records survive a power loss.
        limits: what clients may take.
        tls: how connections are encrypted; None: they are not.
        sasl: how clients authenticate themselves; None: they need not.
        allow_anonymous: whether others than this machine may be served without authentication.
        super_users: the principals that may do everything, whatever the ACLs say; None: there are none, and each client
            may do everything.
        metrics: host and port of HTTP for metrics; None: there is none. It needs prometheus_client.
        ui: host and port of HTTP for the page of the store; None: there is none. It needs Jinja2. Where clients
            authenticate themselves, its readers have to, too.
        ui_schemas: the folder of schemas by which the page shows values in Avro, or the URL of a registry.
        cluster: the Kafka cluster that it is a node of; None: it is one of its own.
        rack: Kafka's `broker.rack` of a server of an object store; "": it has none.
        shared: whether other servers of this machine may serve a folder as well; an object store's always may.
        linger: how long records wait for others before they are decided together, in seconds; None: 0.05 over an
            object store. In a folder none waits.
        groups: the times of groups. Unlike Kafka's default, the first rebalance of a group does not wait for more
            members: one that comes later joins by another one.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    advertised: tuple[str, int] | None = None
    node_id: int | None = None
    sync_acks_all: bool = False
    limits: Limits = field(default_factory=Limits)
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None
    allow_anonymous: bool = False
    super_users: Collection[str] | None = None
    metrics: tuple[str, int] | None = None
    ui: tuple[str, int] | None = None
    ui_schemas: str | None = None
    cluster: ClusterConfig | None = None
    rack: str = ""
    shared: bool = False
    linger: float | None = None
    groups: Settings = field(default_factory=lambda: Settings(initial_rebalance_delay=0))


def serve(store: Store, config: ServerConfig, on_ready: Callable[[tuple[str, int]], object]) -> int:
    """Serves a store until SIGTERM or SIGINT comes.

    Args:
        store: what is served; a folder that this process may not write to, or a broker's, is served for reading.
        config: how.
        on_ready: called with the address once clients can connect.

    Returns:
        The number of the signal.

    Raises:
        StoreError: another server serves the store, or has its id. UnsupportedByStoreError: it is in an object store,
            and is to be served by a node; or it cannot be shared.
        InvalidConfigError: others than this machine would be served without authentication, which is not allowed; or
            the files for TLS, or the mechanisms of SASL, are of no use.
        OSError: the address cannot be used.
    """
    loop = Loop()
    workers = Workers(loop, _THREADS)
    try:
        served = _Served(
            loop,
            workers,
            store,
            *kind_of(store, workers, config.linger, config.node_id, config.rack, shared=config.shared),
        )
        with served.logs.held(_raise_file_limit()):
            if config.cluster is None:
                server = _build_alone(served, config)
            else:
                server = _build_node(served, in_folder(store), config, config.cluster)
            return server.run(on_ready)
    finally:
        workers.close()
        loop.close()


def _raise_file_limit() -> int:
    """Allows as many open files as the system lets this process, and returns how many: each connection is one."""
    low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    if low != high:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (high, high))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class _Served(NamedTuple):
    """What is served, with the loop and the workers for it; `logs` and `join` as of Kind."""

    loop: Loop
    workers: Workers
    store: Store
    logs: ServedLogs
    join: Callable[[Parts], tuple[Member, Mapping[int, Api]]]


def _build_alone(served: _Served, config: ServerConfig) -> _Server:
    """A server that is a cluster of its own. As `serve`."""
    documents = served.logs.documents
    users = Users(documents)
    acls = None if config.super_users is None else Acls(documents, config.super_users)
    access = _Access(users, users, acls, ClientQuotas(documents))
    return _Server(served, config, access, served.join)


def _build_node(served: _Served, store: FolderStore, config: ServerConfig, cluster: ClusterConfig) -> _Server:
    """A node of a cluster. As `serve`, and the errors of clients_of_cluster and Node."""
    from pyspark_log.server.node.cluster_clients import clients_of_cluster  # noqa: PLC0415  (other servers need not load it)
    from pyspark_log.server.node.view import NodeView  # noqa: PLC0415  (likewise)

    documents, rules, acls = served.logs.documents, config.super_users, None
    clients = clients_of_cluster(documents, has_rules=rules is not None)
    if rules is not None:
        acls = Acls(documents, rules, clients.rules(rules))
    # A broker has users with plain passwords in its own settings, and so has a node.
    access = _Access(Users(documents, clients.users), Users(documents), acls, ClientQuotas(documents, clients.quotas))

    def join(parts: Parts) -> tuple[Member, Mapping[int, Api]]:
        node = NodeView(parts, store, served.logs.servers.node_id, cluster, _protocol(config), clients)
        return node, node_apis(node)

    return _Server(served, config, access, join)


class _Access(NamedTuple):
    """What is known of clients: users; those whose passwords are sent as they are; their rights and quotas."""

    users: Users
    plain_users: Users
    acls: Acls | None
    quotas: ClientQuotas


class _Server:
    def __init__(
        self, served: _Served, config: ServerConfig, access: _Access,
        join: Callable[[Parts], tuple[Member, Mapping[int, Api]]],
    ) -> None:  # fmt: skip
        loop, workers, store, logs, _ = served
        self._loop, self._logs, self._signal, self._config = loop, logs, 0, config
        self._rules = PrincipalRules("DEFAULT" if config.tls is None else config.tls.principal_rules)
        self._sasl = None
        if config.sasl is not None:
            users, plain_users = access.users, access.plain_users
            self._sasl = Sasl(loop, config.sasl, plain_users, lambda: logs.clock() / 1000, users)
        tls = None if config.tls is None else _certificates(config.tls, loop)
        throttles = Throttles(access.quotas, loop.time)
        self._listener = Listener(
            loop, config.host, config.port, self._open_session, config.limits, tls, throttles.connection_wait
        )
        host, port = self._listener.address
        _check_reach(config, host, port, "read and write")
        self._upkeep = Upkeep(loop, workers, store, logs)
        self._appends = Appends(loop, logs.events())
        logs.servers.register(config.advertised or (host, port))
        self._failure: BaseException | None = None
        self._on_ready: Callable[[tuple[str, int]], object] = lambda _: None
        parts = Parts(
            loop, workers, store, logs, self._appends, TopicIds(logs), ProducerIds(), config.groups,
            config.sync_acks_all, config.advertised or (host, port), self._serve, self._fail,
            lambda: self.broker,
        )  # fmt: skip
        self._member, apis = join(parts)
        slots = int_config(logs.configs, "max.incremental.fetch.session.cache.slots")
        versions = {key: api.versions for key, api in apis.items()}
        self.broker = Broker(
            store=store,
            logs=logs,
            apis=apis,
            served=versions,
            cluster=self._member,
            node_id=logs.servers.node_id,
            advertised=config.advertised,
            sync_acks_all=config.sync_acks_all,
            loop=loop,
            workers=workers,
            appends=self._appends,
            fetch_sessions=FetchSessions(self._appends, loop.time, 0 if config.cluster is not None else slots),
            topics=parts.topics,
            producer_ids=parts.producer_ids,
            groups=self._member.groups,
            transactions=self._member.transactions,
            gate=self._member.gate,
            users=access.users,
            acls=access.acls,
            quotas=access.quotas,
            throttles=throttles,
            counts=Counts(versions),
        )
        self._pages = Pages(self.broker, self._listener)
        if config.metrics is not None:
            self._pages.add_metrics(config.metrics, _protocol(config))
        if config.ui is not None:
            self._add_ui(config.ui, config)

    def _add_ui(self, address: tuple[str, int], config: ServerConfig) -> None:
        if config.sasl is not None and not set(config.sasl.mechanisms) - {BEARER}:
            raise InvalidConfigError(f"the page needs users with passwords to log in, which {BEARER} does not have")
        from pyspark_log.server.pages.ui_view import UiView  # noqa: PLC0415

        tls = config.tls
        host, port = self._pages.add_ui(
            address,
            UiView(self.broker, self._listener, config.limits, self._sasl, self._rules),
            # Where readers are known, no other site can have a browser read for it.
            names=None if _authenticates(config) else () if config.advertised is None else config.advertised[:1],
            has_login=self._sasl is not None,
            schemas=config.ui_schemas,
            # Of its own: each thread that uses certificates looks whether their files have changed.
            tls=None if tls is None else _certificates(tls, self._loop),
        )
        _check_reach(config, host, port, "read the store")
        if not is_loopback(host) and tls is None:
            _log.warning(
                "the page on %s:%d is not encrypted: others on the way can read it, with passwords", host, port
            )

    def _open_session(self, peer: str, reached_at: tuple[str, int], certificate: bytes | None) -> ClientSession:
        client = Client(peer, reached_at)
        if self._sasl is not None:
            return SaslSession(self.broker, client, Login(self._sasl, client.host))
        if certificate is not None:
            whose = subject(certificate)
            name = self._rules.name(whose)
            if name is None:
                raise ClosedByServerError(f"no rule for principals fits the client's certificate, of {whose}")
            client.principal = user(name)
            _log.debug("%s: %s", peer, client.principal)
        return ClientSession(self.broker, client)

    def run(self, on_ready: Callable[[tuple[str, int]], object]) -> int:
        self._pages.start()
        self._member.load()
        self._upkeep.start()
        self._on_ready = on_ready
        host, port = self._listener.address
        advertised = self.broker.advertised
        _log.info(
            "serving %s as node %d on %s:%d%s%s", self.broker.store.path, self.broker.node_id, host, port,
            "" if advertised is None else f", advertised as {advertised[0]}:{advertised[1]}",
            _describe_access(self._config),
        )  # fmt: skip
        if not self._logs.writable:
            _log.warning("%s is served for reading only: %s", self.broker.store.path, self._logs.why_read_only)
        if not is_loopback(host) and not _authenticates(self._config):
            _log.warning("%s:%d has no authentication: anything that reaches it may read and write", host, port)
        elif not is_loopback(host) and self._config.tls is None:
            _log.warning("connections to %s:%d are not encrypted: others on the way can read them", host, port)
        try:
            with self._signals():
                self._member.start()
                self._loop.run()
        finally:
            self._close()
        if self._failure is not None:
            raise self._failure
        return self._signal

    def _serve(self) -> None:
        """Accepts clients from now on."""
        self._listener.start()
        self._pages.ready()
        self._on_ready(self._listener.address)

    def _fail(self, error: BaseException) -> None:
        """Ends the server, as it cannot be a member of its cluster any more; called by any thread."""
        self._failure = self._failure or error
        self._loop.call_from_elsewhere(self._loop.stop)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the loop."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        wake_fd = signal.set_wakeup_fd(self._loop.wake_fd, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wake_fd)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        is_first, self._signal = not self._signal, self._signal or number
        if is_first:
            self._member.leave(self._loop.stop)
        else:
            self._loop.stop()

    def _close(self) -> None:
        if self._signal:
            _log.info("stopping after %s", signal.Signals(self._signal).name)
        self._pages.stop()
        self._listener.close()
        # Nodes that stop at the same time do not wait for each other's answers, as no connection is left.
        self._member.stop()
        self.broker.groups.close()
        self._upkeep.stop()
        self._member.close()
        self.broker.workers.close()
        if self._sasl is not None:
            self._sasl.close()
        self._appends.close()
        try:
            if self._signal and self._failure is None:
                self._member.note_end()
        finally:
            self._logs.close()
        self._pages.close()
        _log.info("stopped")


def _protocol(config: ServerConfig) -> str:
    """Kafka's `security.protocol` of a server's clients."""
    return ("" if config.sasl is None else "SASL_") + ("PLAINTEXT" if config.tls is None else "SSL")


def check_reach(config: ServerConfig) -> None:
    """Refuses addresses as `serve` does, before there is a store. InvalidConfigError."""
    for address, action in (((config.host, config.port), "read and write"), (config.ui, "read the store")):
        if address is None:
            continue
        # That a name has no address is found where it listens.
        with contextlib.suppress(socket.gaierror):
            addresses = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            _check_reach(config, str(addresses[0][4][0]), address[1], action)


def _check_reach(config: ServerConfig, host: str, port: int, action: str) -> None:
    """Refuses an address where others could do something unauthenticated, unless they may. InvalidConfigError."""
    if not (is_loopback(host) or _authenticates(config) or config.allow_anonymous):
        raise InvalidConfigError(
            f"on {host}:{port} others than this machine could {action} without authentication: have clients "
            "authenticate themselves (docs/guides/security.md), or allow that by --allow-anonymous"
        )


def _authenticates(config: ServerConfig) -> bool:
    """Whether each client is known."""
    tls = config.tls
    return config.sasl is not None or (tls is not None and tls.client_ca is not None and tls.client_required)


def _certificates(config: TlsConfig, loop: Loop) -> Callable[[], ssl.SSLContext]:
    from pyspark_log.server.security.certificates import Certificates  # noqa: PLC0415  (it loads OpenSSL)

    return Certificates(config, loop.time).context


def _describe_access(config: ServerConfig) -> str:
    """How clients connect, for the log."""
    shown = "" if config.tls is None else ", with TLS"
    return shown if config.sasl is None else f"{shown}, SASL: {', '.join(config.sasl.mechanisms)}"


def notify_manager(state: str) -> None:
    """Reports a state to the process manager, by systemd's protocol (sd_notify(3)), if it has asked for it."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as target:
            target.connect("\0" + address[1:] if address.startswith("@") else address)
            target.send(state.encode())
