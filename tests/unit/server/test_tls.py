"""TLS: what is sent arrives, whatever its size; other protocols, wrong and replaced certificates, names of clients."""

import contextlib
import os
import socket
import ssl
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from server_requests import batch, fetch, produce, produce_request, values
from two_clients import pass_on

from pyspark_log.kafka import messages as m
from tests.forked import pylog_in_another_process
from tests.security_tools import Authority, TlsPeer, name, tls_options
from tests.server_tools import PATIENCE, NewServer, Peer, served, served_anew

_ASK = m.ApiVersionsRequest("tests", "1.0")
_RULES = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L"


@pytest.fixture(scope="module")
def server(tmp_path_factory, authority):
    """Without authentication."""
    options = tls_options(*authority.issue("server", name(CN="server")))
    with served_anew(tmp_path_factory.mktemp("server"), *options) as running:
        yield running


@pytest.fixture
def peer(server, authority):
    with TlsPeer(server, authority.context()) as peer:
        yield peer


def test_a_session(peer, store, topic):
    assert produce(peer, topic, batch(b"a", b"b")).base_offset == 0
    assert values(fetch(peer, topic, 0)) == {0: b"a", 1: b"b"}
    assert peer.socket.version() == "TLSv1.3"
    assert [row["value"] for rows in store.read(topic, 0) for row in rows.to_pylist()] == [b"a", b"b"]


def test_tls_of_1_2_and_nothing_before(server, authority):
    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with TlsPeer(server, context) as peer:
        assert peer.socket.version() == "TLSv1.2"
        assert peer.ask(_ASK, 3).error_code == 0
    context = authority.context()
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        TlsPeer(server, context)


@pytest.mark.parametrize("size", [1, 100, 16_383, 16_384, 16_385, 65_530, 65_536, 300_000, 5_000_000])
def test_requests_and_responses_of_all_sizes(peer, store, topic, size):
    store.alter_configs(topic, {"max.message.bytes": "9000000"})
    value = os.urandom(size)
    assert produce(peer, topic, batch(value)).base_offset == 0
    # What comes after it in the same record of TLS is not lost, be it a request or a part of one.
    large = peer.encoded(produce_request(topic, batch(value)), 9)
    peer.socket.sendall(large + peer.encoded(_ASK, 3))
    assert peer.response().responses[0].partition_responses[0].base_offset == 1
    assert peer.response().error_code == 0
    large = peer.encoded(produce_request(topic, batch(value)), 9)
    asked = peer.encoded(_ASK, 3)
    peer.socket.sendall(large + asked[:-1])
    assert peer.response().responses[0].partition_responses[0].base_offset == 2
    peer.socket.sendall(asked[-1:])
    assert peer.response().error_code == 0
    found = fetch(peer, topic, 0, max_bytes=1 << 30, total=1 << 30)
    assert values(found) == dict.fromkeys(range(3), value)


def test_a_large_response_is_the_bytes_of_the_file(peer, store, topic):
    for _ in range(20):
        store.append(topic, pa.record_batch({"value": [os.urandom(900_000), os.urandom(10)]}))
    found = bytes(fetch(peer, topic, 0, max_bytes=1 << 30, total=1 << 30).records)
    [segment] = Path(store.path).glob(f"data/{topic}-0/*.log")
    stored = segment.read_bytes()
    assert len(found) > 18_000_000
    assert stored.startswith(found)


def test_a_client_that_leaves_in_its_handshake(server, peer):
    for data in (b"", b"\x16", b"\x16\x03\x01\x00\xf8\x01"):
        with socket.create_connection((server.host, server.port)) as other:
            other.sendall(data)
    assert peer.ask(_ASK, 3).error_code == 0


def test_the_end_of_a_connection_is_said(server, authority):
    """So that a client can distinguish it from one that was cut."""
    with TlsPeer(server, authority.context()) as peer:
        peer.socket.suppress_ragged_eofs = False
        peer.socket.sendall(struct.pack(">ihh", 4, 18, 0))
        assert peer.socket.recv(1) == b""


# ---- what is not TLS, or not the right one


@pytest.mark.parametrize("data", [Peer.encoded, b"GET / HTTP/1.1\r\n\r\n", b"\0"])
def test_a_client_without_tls(server, peer, data):
    with Peer(server) as other:
        other.socket.sendall(data if isinstance(data, bytes) else other.encoded(_ASK, 3))
        port = other.socket.getsockname()[1]
        assert other.is_closed_by_server()
    server.wait_for(f"127.0.0.1:{port}: closing the connection: the client does not speak TLS")
    assert peer.ask(_ASK, 3).error_code == 0


def test_a_client_with_tls_at_a_port_without(tmp_path, authority):
    with served(tmp_path / "store", tmp_path) as plain:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            TlsPeer(plain, authority.context())
        plain.wait_for("the client speaks TLS, and this port speaks Kafka's protocol")


def test_damaged_handshakes(server, authority, peer):
    """Each closes its connection with one line in the log."""
    greeting, side = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = authority.context().wrap_bio(side, greeting, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = greeting.read()
    for at in range(0, len(hello), 7):
        with socket.create_connection((server.host, server.port), timeout=PATIENCE) as other:
            other.sendall(hello[:at] + bytes([hello[at] ^ 0x55]) + hello[at + 1 :])
            with contextlib.suppress(OSError):  # The server may have closed it.
                other.shutdown(socket.SHUT_WR)
                while other.recv(4096):
                    pass
    assert peer.ask(_ASK, 3).error_code == 0


def test_a_client_that_does_not_trust_the_server(server, tmp_path):
    other = Authority(tmp_path, "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        TlsPeer(server, other.context())
    server.wait_for("TLS failed: tlsv1 alert unknown ca")


# ---- the server's files


def test_a_certificate_that_is_replaced(tmp_path, authority):
    """New connections get the new one, and those that are open continue; a pair that does not fit is not used."""
    certificate, key = authority.issue("replaced", name(CN="first"))
    following = [authority.issue(f"next{number}", name(CN="second")) for number in range(2)]
    with served(tmp_path / "store", tmp_path, *tls_options(certificate, key)) as server:
        with TlsPeer(server, authority.context()) as old:
            assert _name_of(old) == "first"
            os.replace(following[0][0], certificate)
            while "the former certificate stays in use" not in server.output():
                with TlsPeer(server, authority.context()) as peer:
                    assert _name_of(peer) == "first"
            os.replace(following[0][1], key)
            while True:
                with TlsPeer(server, authority.context()) as peer:
                    if _name_of(peer) == "second":
                        break
            assert old.ask(_ASK, 3).error_code == 0
        assert server.output().count("the former certificate stays in use") == 1
        server.wait_for(f"{certificate}: read again, for new connections")


def _name_of(peer):
    [[(_, found)]] = peer.socket.getpeercert()["subject"]
    return found


def _refusal(path, *options, **environment):
    """Why a server does not start."""
    listen = "--listen", "127.0.0.1:0"
    done = pylog_in_another_process("serve", "--store", path, *listen, *options, **environment)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    return done.stderr


def test_files_that_are_of_no_use(tmp_path, authority):
    certificate, key = authority.issue("useful", name(CN="server"))
    _, other_key = authority.issue("other", name(CN="server"))
    empty = tmp_path / "empty.pem"
    empty.touch()
    for options, why in [
        (tls_options(tmp_path / "missing.pem", key), "missing.pem: No such file or directory"),
        (tls_options(certificate, tmp_path / "missing.key"), "missing.key: No such file or directory"),
        (tls_options(certificate, other_key), "are no certificate with its key: key values mismatch"),
        (tls_options(key, certificate), "are no certificate with its key"),
        ((*tls_options(certificate, key), "--tls-client-ca", empty), "has no certificates"),
        (("--tls-certificate", certificate), "belong together"),
        (("--tls-client-ca", certificate), "Options of TLS want"),
        ((*tls_options(certificate, key), "--tls-principal-mapping-rules", "x"), "rules for principals"),
    ]:
        assert why in _refusal(tmp_path / "store", *options)


def test_the_password_of_a_key(tmp_path, authority):
    certificate, key = authority.issue("locked", name(CN="server"), password="open sesame")
    options = tls_options(certificate, key)
    assert "is encrypted, and no password for it was given" in _refusal(tmp_path / "store", *options)
    shown = _refusal(tmp_path / "store", *options, PYLOG_TLS_KEY_PASSWORD="wrong one")
    assert "are no certificate with its key" in shown
    assert "wrong one" not in shown
    (tmp_path / "password").write_text("open sesame\n")
    options += ("--tls-key-password-file", tmp_path / "password")
    with served(tmp_path / "store", tmp_path, *options, kind=NewServer) as server:
        with TlsPeer(server, authority.context()) as peer:
            assert peer.ask(_ASK, 3).error_code == 0
        assert "sesame" not in server.output()
        assert b"sesame" not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()


# ---- clients with certificates


@pytest.fixture(scope="module")
def mutual(tmp_path_factory, authority):
    options = tls_options(*authority.issue("mutual", name(CN="server")))
    options += ("--tls-client-ca", authority.certificate, "--tls-principal-mapping-rules", _RULES, "--verbose")
    with served_anew(tmp_path_factory.mktemp("mutual"), *options, topics=["t"]) as running:
        yield running


def test_a_client_is_known_by_its_certificate(mutual, authority):
    files = authority.issue("anna", name(C="PL", OU="ServiceUsers", CN="Anna"))
    with TlsPeer(mutual, authority.context(*files)) as peer:
        assert produce(peer, "t", batch(b"a")).error_code == 0
        port = peer.socket.getsockname()[1]
    mutual.wait_for(f"127.0.0.1:{port}: User:anna")


def _is_refused(server, context):
    """Whether a client is refused, in its handshake or, with TLS 1.3, right after it."""
    try:
        with TlsPeer(server, context) as peer:
            peer.ask(_ASK, 3)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def test_certificates_that_are_refused(mutual, authority, tmp_path):
    anna = name(OU="ServiceUsers", CN="anna")
    assert _is_refused(mutual, authority.context())
    mutual.wait_for("peer did not return a certificate")
    assert _is_refused(mutual, authority.context(*authority.issue("old", anna, days=-1)))
    mutual.wait_for("the client's certificate: certificate has expired")
    other = Authority(tmp_path, "other")
    context = authority.context(*other.issue("anna", anna))
    assert _is_refused(mutual, context)
    mutual.wait_for("the client's certificate: unable to get local issuer certificate")
    assert _is_refused(mutual, authority.context(*authority.issue("bert", name(OU="Others", CN="bert"))))
    mutual.wait_for("no rule for principals fits the client's certificate, of CN=bert,OU=Others")


def test_a_certificate_that_is_asked_for_only(tmp_path, authority):
    options = tls_options(*authority.issue("asking", name(CN="server")))
    options += ("--tls-client-ca", authority.certificate, "--tls-client-auth", "requested", "--verbose")
    with served(tmp_path / "store", tmp_path, *options) as server:
        assert not _is_refused(server, authority.context())
        assert not _is_refused(server, authority.context(*authority.issue("anna", name(C="PL", CN="Anna"))))
        server.wait_for(": User:CN=Anna,C=PL")
        assert _is_refused(server, authority.context(*authority.issue("old", name(CN="Anna"), days=-1)))


def test_librdkafka_and_kafka_python_with_certificates(mutual, authority):
    certificate, key = authority.issue("client", name(OU="ServiceUsers", CN="client"))
    pass_on(mutual, b"librdkafka", {
        "security.protocol": "SSL", "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(certificate), "ssl.key.location": str(key),
    }, {
        "security_protocol": "SSL", "ssl_cafile": str(authority.certificate),
        "ssl_certfile": str(certificate), "ssl_keyfile": str(key),
    })  # fmt: skip
