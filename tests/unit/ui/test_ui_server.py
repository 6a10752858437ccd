"""The page of a server: its clients, transactions and what it holds back; its login, over TLS, too."""

import base64
import functools
import http.client
import json
import re
import ssl
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer
from joserfc.jwk import ECKey, KeySet

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.server.quotas import ClientQuotas, Entity
from tests.documents import documents_at
from tests.ports import HOST, free_ports
from tests.processes import run_at_once
from tests.security_tools import PASSWORDS, Authority, add_users, name, tls_options
from tests.server_tools import PATIENCE, Peer, Server, served
from tests.ui_tools import ask, without_tags


class ShownServer(Server):
    """`pylog serve` with the page.

    Attributes:
        ui_port: where it is.
    """

    def __init__(self, path, folder, *options):
        [self.ui_port] = free_ports(1)
        super().__init__(path, folder, *options, "--ui-listen", f"{HOST}:{self.ui_port}")

    def text(self, path, **headers):
        status, _, body = ask(self.ui_port, path, **headers)
        assert status == 200, body
        return without_tags(body)


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store") as store:
        yield store


def login(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def until(found):
    end = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_client_that_has_used_up_its_quota(store, tmp_path):
    store.create_topic("t", 1)
    limits = {Entity(client_id="reports"): {"producer_byte_rate": 1000.0}}
    ClientQuotas(documents_at(store.path)).change(lambda _: limits)
    with served(store.path, tmp_path, kind=ShownServer) as server:
        settings = {"bootstrap.servers": server.bootstrap, "client.id": "reports", "enable.idempotence": False}
        producer = Producer(settings)
        server.text("/server")  # The first page takes longer, and a client is held back for seconds only.
        producer.produce("t", value=bytes(20_000))
        assert producer.flush(PATIENCE) == 0
        text = server.text("/server")
        found = re.search(r"Quota of bytes produced, client reports (\S+ KiB)/s (\S+ B)/s holds clients back", text)
        assert found, text
        assert found[2] == "1000 B"


def test_clients_and_transactions(store, tmp_path):
    with served(store.path, tmp_path, kind=ShownServer) as server:
        assert "No client is connected" in server.text("/server")
        names = {"transactional.id": "billing-1", "client.id": "billing"}
        producer = Producer({"bootstrap.servers": server.bootstrap, **names})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce("t", value=b"open")
        assert producer.flush(PATIENCE) == 0
        text = server.text("/server")
        assert re.search(r"billing-1 Ongoing \d+, epoch 0 (just now|\d+ s ago) 1 min t-0", text)
        assert re.search(r"billing 127\.0\.0\.1:\d+ confluent-kafka-python", text)
        assert "ANONYMOUS" in text
        assert "Connections" in text
        assert "holds clients back" not in text
        assert " open " in server.text("/topics/t/records")
        until(lambda: "In open transactions 1" in server.text("/topics/t"))
        producer.commit_transaction(PATIENCE)
        until(lambda: " commit " in server.text("/topics/t/records"))
        until(lambda: "CompleteCommit" in server.text("/server"))


def test_the_state_of_groups_is_the_servers(store, tmp_path):
    store.create_topic("t", 1)
    with served(store.path, tmp_path, kind=ShownServer) as server:
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        end = time.monotonic() + PATIENCE
        while "Stable 1" not in server.text("/groups"):
            consumer.poll(0.1)
            assert time.monotonic() < end
        consumer.close()


def test_users_log_in(store, tmp_path):
    add_users(store.path)
    with served(store.path, tmp_path, "--sasl-mechanisms", "SCRAM-SHA-512", kind=ShownServer) as server:
        status, headers, body = ask(server.ui_port, "/")
        assert status == 401
        assert headers["WWW-Authenticate"].startswith("Basic ")
        assert store.path not in body
        for user, password in PASSWORDS.items():
            assert store.path in ask(server.ui_port, "/server", Authorization=login(user, password))[2]
        # With a login there are no other names to be known by.
        assert ask(server.ui_port, "/", Authorization=login("anna", PASSWORDS["anna"]), Host="any.example")[0] == 200
        for value, status in (
            (login("anna", "wrong"), 401), (login("nobody", "x"), 401), (login("", ""), 401), ("Basic !", 400),
            ("Bearer x", 401), ("Basic " + base64.b64encode(b"\xff").decode(), 400),
        ):  # fmt: skip
            assert ask(server.ui_port, "/", Authorization=value)[0] == status
            assert ask(server.ui_port, "/static/page.js", Authorization=value)[0] == status
        server.wait_for("a login to the page failed: user 'anna'")
        assert "wrong" not in server.output()


def test_guesses_are_slowed(store, tmp_path):
    add_users(store.path)
    with served(store.path, tmp_path, "--sasl-mechanisms", "SCRAM-SHA-512", kind=ShownServer) as server:

        def guess(number):
            assert ask(server.ui_port, "/", Authorization=login(f"user{number}", "wrong"))[0] == 401

        for number in range(10):
            guess(number)
        began = time.monotonic()
        # Of an address four connections are waited for; the oldest of more is closed.
        threads = [threading.Thread(target=lambda: [guess(0), guess(1)]) for _ in range(4)]
        run_at_once(threads)
        # One after the other, with a pause of 0.2 s between two.
        assert time.monotonic() - began >= 7 * 0.2
        text = without_tags(ask(server.ui_port, "/server", Authorization=login("anna", PASSWORDS["anna"]))[2])
        assert "Addresses with too many failed logins 1 10 failures holds clients back" in text


def test_tls(store, tmp_path):
    authority = Authority(tmp_path)
    files = authority.issue("server", name(CN="kafka.example"))
    add_users(store.path)
    options = (*tls_options(*files), "--sasl-mechanisms", "PLAIN")
    with served(store.path, tmp_path, *options, kind=ShownServer) as server:
        connection = functools.partial(http.client.HTTPSConnection, context=authority.context())
        status, _, body = ask(
            server.ui_port, "/", connection=connection, host="localhost", Authorization=login("anna", PASSWORDS["anna"])
        )
        assert (status, "No topics yet" in body) == (200, True)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            ask(server.ui_port, "/")


def test_certificates_of_readers(store, tmp_path):
    authority = Authority(tmp_path)
    files = authority.issue("server", name(CN="kafka.example"))
    rules = "RULE:^CN=(.*?),OU=Shop$/$1/"
    options = (*tls_options(*files), "--tls-client-ca", authority.certificate, "--tls-principal-mapping-rules", rules)
    with served(store.path, tmp_path, *options, kind=ShownServer) as server:
        for subject, status in ((name(OU="Shop", CN="anna"), 200), (name(OU="Other", CN="anna"), 403)):
            own = authority.issue("client", subject)
            connection = functools.partial(http.client.HTTPSConnection, context=authority.context(*own))
            assert ask(server.ui_port, "/", connection=connection, host="localhost")[0] == status
        connection = functools.partial(http.client.HTTPSConnection, context=authority.context())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(server.ui_port, "/", connection=connection, host="localhost")


def test_with_acls_super_users_alone_see_the_page(store, tmp_path):
    """The page has all topics and groups together; what others may see of them is not decided one by one."""
    add_users(store.path)
    options = ("--sasl-mechanisms", "SCRAM-SHA-512", "--acls", "--super-users", "User:anna")
    with served(store.path, tmp_path, *options, kind=ShownServer) as server:
        assert store.path in ask(server.ui_port, "/", Authorization=login("anna", PASSWORDS["anna"]))[2]
        assert ask(server.ui_port, "/")[0] == 401
        for path in ("/", "/topics/none", "/server", "/static/page.js"):
            status, _, body = ask(server.ui_port, path, Authorization=login("bert", PASSWORDS["bert"]))
            assert (status, "User:bert is no super user" in body) == (403, True)


def test_with_acls_and_without_a_login(store, tmp_path):
    for super_users, status in (("User:anna", 403), ("User:ANONYMOUS", 200)):
        with served(store.path, tmp_path, "--acls", "--super-users", super_users, kind=ShownServer) as server:
            assert ask(server.ui_port, "/")[0] == status
            assert ask(server.ui_port, "/", Host="evil.example")[0] == 421


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--ui-listen", "0.0.0.0:0"), "others than this machine could read the store without authentication"),
        (("--ui-listen", "nowhere.invalid:1"), "cannot listen on nowhere.invalid:1"),
    ],
)
def test_a_server_that_does_not_start(store, tmp_path, options, why):
    with pytest.raises(RuntimeError, match=why):
        Server(store.path, tmp_path, *options).start()


def test_a_page_for_others_without_encryption_is_warned_of(store, tmp_path):
    server = ShownServer(store.path, tmp_path, "--sasl-mechanisms", "PLAIN")
    server.options = tuple(option.replace(HOST, "0.0.0.0") for option in server.options)
    server.start()
    try:
        assert "is not encrypted: others on the way can read it, with passwords" in server.output()
        assert ask(server.ui_port, "/")[0] == 401
        assert server.stop() == 0
    finally:
        server.kill()


def test_users_without_passwords_cannot_log_in(store, tmp_path):
    (tmp_path / "jwks.json").write_text(json.dumps(KeySet([ECKey.generate_key("P-256")]).as_dict(private=False)))
    options = ("--oauthbearer-jwks", tmp_path / "jwks.json", "--oauthbearer-issuer", "i", "--oauthbearer-audience", "a")
    server = ShownServer(store.path, tmp_path, "--sasl-mechanisms", "OAUTHBEARER", *options)
    with pytest.raises(RuntimeError, match="users with passwords to log in"):
        server.start()


def test_a_server_that_hangs_or_stops(store, tmp_path):
    server = ShownServer(store.path, tmp_path)
    code = f"""
from pyspark_log.server import session
from pyspark_log.server.pages import loop_calls
import os, time
loop_calls._PATIENCE = 0.3
async def hang(self, frame):
    while not os.path.exists({str(tmp_path / "go")!r}):
        time.sleep(0.01)
session.ClientSession.answer = hang
from pyspark_log.cli.start import main
main()
"""
    server.program = ("-c", code, "serve")
    server.start()
    try:
        until(lambda: ask(server.ui_port, "/server")[0] == 200)
        with Peer(server) as peer:
            peer.send(m.ApiVersionsRequest(), 0)
            until(lambda: (found := ask(server.ui_port, "/server"))[0] == 503 and "not answered for 0.3 s" in found[2])
            (tmp_path / "go").touch()
        assert server.stop() == 0
    finally:
        server.kill()
