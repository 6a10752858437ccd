"""What encryption, authentication and ACLs cost, of `pylog serve` and of Kafka, at Kafka's own tools.

    python benchmarks/secured.py [--rounds 3] [--quick] [--document]

Kafka has its shipped settings and 2 GB, and a port for each kind of connection; of `pylog serve` there is one for each
kind, over stores of their own. Clients are at one of them at a time, and each second round goes the other way round.
Figures are medians of the rounds. A ratio is ours by Kafka's within a round, with the least and the largest.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import tables
from server import KAFKA, OURS, QUICK, Figures
from server_clients import Load, create_topic, delete_topic, java_consumer, java_producer

from pyspark_log import Store
from pyspark_log.kafka import messages as m

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.kafka.kafka_tools import Broker, missing, run
from tests.ports import HOST, free_ports
from tests.security_tools import Authority, TlsPeer, add_users, name, scram_log_in, tls_options
from tests.server_tools import Peer, Server

_USER, _PASSWORD = "anna", "correct horse battery"
_MECHANISM = "SCRAM-SHA-512"
PLAIN, TLS, ALL = "plain", "TLS", "TLS, SCRAM-SHA-512 and ACLs"
_SIZE, _AMOUNT = 1000, 250_000_000
# Clients that connect one after the other.
_CONNECTIONS = 200
_ACLS = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_JAAS = f'sasl.jaas.config={_LOGIN} username="{_USER}" password="{_PASSWORD}";'


class Port(NamedTuple):
    """Where clients connect.

    Attributes:
        name: OURS or KAFKA.
        kind: PLAIN, TLS or ALL.
        bootstrap: host and port.
    """

    name: str
    kind: str
    bootstrap: str


class Clients:
    """Clients of ports, with the settings that they want there."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        """`folder`: for their settings; `authority`: the one that they trust."""
        self._context = authority.context()
        trusted = str(authority.certificate)
        encrypted = ["ssl.truststore.type=PEM", f"ssl.truststore.location={trusted}"]
        java = {
            PLAIN: [],
            TLS: ["security.protocol=SSL", *encrypted],
            ALL: ["security.protocol=SASL_SSL", *encrypted, f"sasl.mechanism={_MECHANISM}", _JAAS],
        }
        self._java = {kind: folder / f"{number}.properties" for number, kind in enumerate(java)}
        for kind, path in self._java.items():
            path.write_text("\n".join(java[kind]))
        login = {"sasl.mechanism": _MECHANISM, "sasl.username": _USER, "sasl.password": _PASSWORD}
        self._python: dict[str, dict[str, str]] = {
            PLAIN: {},
            TLS: {"security.protocol": "SSL", "ssl.ca.location": trusted},
            ALL: {"security.protocol": "SASL_SSL", "ssl.ca.location": trusted, **login},
        }

    def create_topic(self, port: Port, topic: str) -> None:
        """Makes a topic of one partition."""
        create_topic(port.bootstrap, topic, 1, self._python[port.kind])

    def delete_topic(self, port: Port, topic: str) -> None:
        """Deletes it."""
        delete_topic(port.bootstrap, topic, self._python[port.kind])

    def produce(self, port: Port, load: Load) -> float:
        """Records a second of Java's producer."""
        return java_producer(port.bootstrap, load, ("--command-config", str(self._java[port.kind]))).speed

    def consume(self, port: Port, load: Load) -> float:
        """Records a second of Java's consumer."""
        return java_consumer(port.bootstrap, load, ("--command-config", str(self._java[port.kind]))).fetched

    def connect(self, port: Port, times: int) -> float:
        """The time until a client has connected, authenticated itself and got its first answer, in ms; the median."""
        host, number = port.bootstrap.split(":")
        where, taken = SimpleNamespace(host=host, port=int(number)), []
        for _ in range(times):
            started = time.perf_counter()
            with Peer(where) if port.kind == PLAIN else TlsPeer(where, self._context) as peer:
                if port.kind == ALL:
                    assert scram_log_in(peer, _USER, _PASSWORD, _MECHANISM).error_code == 0
                assert peer.ask(m.MetadataRequest(()), 9).brokers
                taken.append((time.perf_counter() - started) * 1e3)
        return statistics.median(taken)


@contextlib.contextmanager
def _ours(folder: Path, authority: Authority) -> Iterator[list[Port]]:
    options = tls_options(*authority.issue("ours", name(CN="localhost")))
    kinds: Mapping[str, Sequence[object]] = {
        PLAIN: (),
        TLS: options,
        ALL: (*options, "--sasl-mechanisms", _MECHANISM, "--acls", "--super-users", f"User:{_USER}"),
    }
    with contextlib.ExitStack() as stack:
        ports = []
        for number, (kind, given) in enumerate(kinds.items()):
            place = folder / f"ours-{number}"
            place.mkdir()
            Store.create(place / "store").close()
            add_users(place / "store", {_USER: _PASSWORD})
            server = Server(place / "store", place, *given).start()
            stack.callback(server.kill)
            ports.append(Port(OURS, kind, server.bootstrap))
        yield ports


@contextlib.contextmanager
def _kafkas(folder: Path, authority: Authority) -> Iterator[list[Port]]:
    *numbers, controller = free_ports(4)
    listeners = dict(zip((PLAIN, TLS, ALL), numbers, strict=True))
    protocols = {PLAIN: "PLAINTEXT", TLS: "SSL", ALL: "SASL_SSL"}
    addresses = ",".join(f"{protocols[kind]}://{HOST}:{port}" for kind, port in listeners.items())
    listed = ",".join(f"{one}:{one}" for one in protocols.values())
    (folder / "kafka").mkdir()
    broker = Broker(folder / "kafka", as_shipped=True, settings={
        "listeners": f"{addresses},CONTROLLER://{HOST}:{controller}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": f"{listed},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT", "sasl.enabled.mechanisms": _MECHANISM,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_LOGIN};",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": authority.issue_as_one("kafka", name(CN="localhost")),
        "authorizer.class.name": _ACLS, "super.users": f"User:{_USER};User:ANONYMOUS",
    })  # fmt: skip
    broker.bootstrap = f"{HOST}:{listeners[PLAIN]}"
    try:
        broker.start()
        user = f"{_MECHANISM}=[iterations=8192,password={_PASSWORD}]"
        run(
            "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "users",
            "--entity-name", _USER, "--add-config", user,
        )  # fmt: skip
        yield [Port(KAFKA, kind, f"{HOST}:{port}") for kind, port in listeners.items()]
    finally:
        broker.kill()


def measure(ports: Sequence[Port], clients: Clients, amount: float, rounds: int) -> tuple[Figures, Figures]:
    """Records a second, and times to connect in ms."""
    speeds, times = Figures(), Figures()
    load = Load("fetched", _SIZE, round(_AMOUNT * amount / _SIZE))
    for port in ports:
        topic = f"{load.topic}-{len(port.kind)}"
        clients.create_topic(port, topic)
        clients.produce(port, load._replace(topic=topic))
    for number in range(rounds):
        # Each kind of both servers one after the other, and the other way round in every second round.
        for port in ports if number % 2 == 0 else reversed(ports):
            topic, fetched = f"t{number}-{len(port.kind)}", f"{load.topic}-{len(port.kind)}"
            clients.create_topic(port, topic)
            speeds.add(f"Java's producer, {port.kind}", port, clients.produce(port, load._replace(topic=topic)))
            clients.delete_topic(port, topic)
            speeds.add(f"Java's consumer, {port.kind}", port, clients.consume(port, load._replace(topic=fetched)))
            times.add(f"a connection, {port.kind}", port, clients.connect(port, max(round(_CONNECTIONS * amount), 3)))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return speeds, times


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="as little as possible of everything, one round")
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    if problem := missing():
        raise SystemExit(problem)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        authority = Authority(Path(folder))
        with _ours(Path(folder), authority) as ours, _kafkas(Path(folder), authority) as kafkas:
            ports = [port for pair in zip(ours, kafkas, strict=True) for port in pair]
            amount, rounds = (QUICK, 1) if given.quick else (1, given.rounds)
            speeds, times = measure(ports, Clients(Path(folder), authority), amount, rounds)
    sides = [OURS, KAFKA, "ratio"]
    rows = [[line, *speeds.cells(line, 0)] for line in speeds.lines()]
    tables.show("security: throughput", ["records/s", *sides], rows, document=given.document)
    rows = [[line, *times.cells(line, 2)] for line in times.lines()]
    tables.show("security: connections", ["ms", *sides], rows, document=given.document)


if __name__ == "__main__":
    main()
