"""SASL: what is served before authentication, how failures look, clients that log in again, users that change."""

import dataclasses
import gc
import re
import time
from collections import Counter
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from server_requests import batch, produce_request
from two_clients import pass_on

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.errors import LoginError
from pyspark_log.server.handlers import APIS
from pyspark_log.server.security.users import Users, make_credential, salted_password
from tests.documents import documents_at
from tests.requests import alter_users
from tests.security_tools import PASSWORDS, TlsPeer, log_in, name, scram_log_in, served_with_users, tls_options
from tests.server_tools import PATIENCE, NewServer, Peer, served
from tests.waiting import wait_until

_MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
#: How long a short session is, in seconds.
_SESSION = 4
_ASK = m.ApiVersionsRequest("tests", "1.0")
_METADATA = m.MetadataRequest(())


@pytest.fixture(scope="module")
def server(tmp_path_factory, authority):
    """With TLS and passwords."""
    options = tls_options(*authority.issue("server", name(CN="server")))
    with _served(tmp_path_factory.mktemp("server"), *options, topics=["t"]) as running:
        yield running


@pytest.fixture
def peer(server, authority):
    with TlsPeer(server, authority.context()) as peer:
        yield peer


@pytest.fixture
def plain(tmp_path):
    """A server without TLS."""
    with _served(tmp_path) as running:
        yield running


@pytest.fixture
def short(tmp_path):
    """The same, with short sessions."""
    with _served(tmp_path, "--sasl-max-session", str(_SESSION), topics=["t"]) as running:
        yield running


def _served(folder, *options, **how):
    return served_with_users(folder, *options, "--sasl-mechanisms", ",".join(_MECHANISMS), "--verbose", **how)


# ---- clients


def _librdkafka(server, authority, mechanism, user="anna", password=None):
    return {
        "bootstrap.servers": server.bootstrap, "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.certificate), "sasl.mechanism": mechanism, "sasl.username": user,
        "sasl.password": password or PASSWORDS[user],
    }  # fmt: skip


@pytest.mark.parametrize("mechanism", _MECHANISMS)
@pytest.mark.parametrize("user", PASSWORDS)
def test_librdkafka_and_kafka_python(server, authority, mechanism, user):
    pass_on(server, f"{mechanism} {user}".encode(), _librdkafka(server, authority, mechanism, user), {
        "security_protocol": "SASL_SSL", "ssl_cafile": str(authority.certificate), "sasl_mechanism": mechanism,
        "sasl_plain_username": user, "sasl_plain_password": PASSWORDS[user],
    })  # fmt: skip


@pytest.mark.parametrize("mechanism", _MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("anna", "wrong"), ("nobody", "wrong")])
def test_librdkafka_says_that_authentication_failed(server, authority, mechanism, user, password):
    errors = []
    config = _librdkafka(server, authority, mechanism, user, password)
    producer = confluent_kafka.Producer({**config, "error_cb": errors.append})

    def is_refused():
        producer.poll(0.1)
        return any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors)

    wait_until(is_refused, "authentication fails")
    assert any(f"authentication by {mechanism} failed" in error.str() for error in errors)


# ---- before authentication


@pytest.mark.parametrize("mechanism", _MECHANISMS)
def test_our_client(server, authority, mechanism):
    config = ClientConfig(authority.context(), mechanism, "anna", PASSWORDS["anna"])
    with Connection(server.host, server.port, config) as connection:
        assert connection.ask(_METADATA).brokers
    # Python would warn of a connection that is left open.
    with pytest.raises(LoginError, match=f"authentication by {mechanism} failed"):
        Connection(server.host, server.port, dataclasses.replace(config, password="wrong"))
    gc.collect()


def test_what_a_client_gets_before_authentication(server, authority):
    """A closed connection from each API but those of ApiVersions and SASL, as from Kafka."""
    for key, api in APIS.items():
        if key in (17, 18, 36):
            continue
        with TlsPeer(server, authority.context()) as peer:
            request = b"\0\0\0\x0a" + key.to_bytes(2, "big") + (api.versions.stop - 1).to_bytes(2, "big") + bytes(6)
            peer.socket.sendall(request)
            assert peer.is_closed_by_server()
            port = peer.socket.getsockname()[1]
        server.wait_for(f"127.0.0.1:{port}: closing the connection: a request for the API with key {key} before")


def test_versions_and_mechanisms_are_listed_before_authentication(peer):
    listed = {one.api_key for one in peer.ask(_ASK, 3).api_keys}
    assert listed == set(APIS)
    assert list(peer.ask(m.SaslHandshakeRequest("PLAIN"), 1).mechanisms) == _MECHANISMS
    assert peer.ask(_ASK, 3).error_code == 0


def test_requests_are_small_before_authentication(server, authority):
    for key, size in [(18, 70_000), (36, 70_000), (0, 70_000), (0, 50 << 20)]:
        with TlsPeer(server, authority.context()) as peer:
            peer.socket.sendall(size.to_bytes(4, "big") + key.to_bytes(2, "big") + b"\0\2")
            assert peer.is_closed_by_server()
        server.wait_for(f"a request of {size} bytes before authentication")
    with TlsPeer(server, authority.context()) as peer:
        assert log_in(peer, "anna", PASSWORDS["anna"]).error_code == 0
        assert peer.ask(produce_request("t", batch(b"x" * 70_000)), 9).responses
        peer.socket.sendall((9 << 20).to_bytes(4, "big") + b"\0\x12\0\3")
        assert peer.is_closed_by_server()
    server.wait_for("only produce requests may have more")


def test_a_mechanism_that_is_not_enabled(server, peer):
    answer = peer.ask(m.SaslHandshakeRequest("GSSAPI"), 1)
    assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, _MECHANISMS)
    assert peer.is_closed_by_server()
    server.wait_for("the client wants the SASL mechanism 'GSSAPI', which is not enabled")


def test_messages_without_headers_are_refused(server, peer):
    assert peer.ask(m.SaslHandshakeRequest("PLAIN"), 0).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert peer.is_closed_by_server()


def test_a_message_without_a_mechanism(peer):
    peer.send(m.SaslAuthenticateRequest(b"\0anna\0x"), 2)
    assert peer.is_closed_by_server()


def test_a_second_handshake_in_an_authentication(peer):
    assert peer.ask(m.SaslHandshakeRequest("SCRAM-SHA-256"), 1).error_code == 0
    assert peer.ask(m.SaslHandshakeRequest("PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert peer.is_closed_by_server()


def test_a_server_without_authentication(tmp_path):
    with served(tmp_path / "store", tmp_path) as open_to_all, Peer(open_to_all) as peer:
        answer = peer.ask(m.SaslHandshakeRequest("PLAIN"), 1)
        assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert peer.ask(m.SaslAuthenticateRequest(b"\0anna\0x"), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert peer.ask(_METADATA, 12).cluster_id


# ---- failures


@pytest.mark.parametrize(
    ("log", "how"), [*((log_in, version) for version in range(3)), *((scram_log_in, one) for one in _MECHANISMS[:2])]
)
def test_the_answer_does_not_show_whether_a_user_exists(plain, log, how):
    """test_users.py has what SCRAM says before that."""
    answers = []
    for user, password in [("anna", "wrong"), ("nobody", "wrong"), ("anna", PASSWORDS["bert"])]:
        with Peer(plain) as peer:
            answers.append(log(peer, user, password, how))
            assert peer.is_closed_by_server()
    assert answers[0].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answers[0] == answers[1] == answers[2]


def test_a_user_that_does_not_exist_gets_a_salt(peer):
    assert peer.ask(m.SaslHandshakeRequest("SCRAM-SHA-256"), 1).error_code == 0
    assert peer.ask(m.SaslAuthenticateRequest(b"n,,n=nobody,r=abc"), 2).error_code == 0


def test_a_failure_is_answered_after_a_while_and_delays_no_other(plain):
    with Peer(plain) as failing, Peer(plain) as other:
        failing.ask(m.SaslHandshakeRequest("PLAIN"), 1)
        begun = time.monotonic()
        failing.send(m.SaslAuthenticateRequest(b"\0anna\0wrong"), 2)
        assert log_in(other, "anna", PASSWORDS["anna"]).error_code == 0
        assert failing.response().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert time.monotonic() - begun >= 0.1


def test_guessing_becomes_slow(plain):
    begun = time.monotonic()
    peers = [Peer(plain) for _ in range(30)]
    for peer in peers:
        peer.send(m.SaslHandshakeRequest("PLAIN"), 1)
        peer.send(m.SaslAuthenticateRequest(b"\0anna\0wrong"), 2)
    for peer in peers:
        assert peer.response().error_code == 0
        assert peer.response().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        peer.close()
    # Some twenty at once, and then five in a second.
    assert time.monotonic() - begun >= 1.5
    with Peer(plain) as peer:
        assert log_in(peer, "anna", PASSWORDS["anna"]).error_code == 0


@pytest.mark.parametrize(("mechanism", "message"), [
    *(("PLAIN", one) for one in (
        b"", b"anna", b"\0anna", b"anna\0secret", b"\0\0secret", b"\0anna\0", b"\0anna\0x\0y", b"\xff\0anna\0x",
        b"\0" * 1000, b"bert\0anna\0" + PASSWORDS["anna"].encode(),
    )),
    *(("SCRAM-SHA-512", one) for one in (
        b"", b"n,,", b"n,,n=anna", b"n,,n=,r=x", b"n,a=bert,n=anna,r=x", b"y,,n=anna,r=", b"p=tls-unique,,n=anna,r=x",
        b"n,,n=anna,r=x,tokenauth=true", b"\xff\xff", b"n,,n=an=na,r=x", b"n,,m=x,n=anna,r=x", b"\0" * 1000,
    )),
])  # fmt: skip
def test_what_is_no_first_message(server, authority, mechanism, message):
    with TlsPeer(server, authority.context()) as peer:
        peer.ask(m.SaslHandshakeRequest(mechanism), 1)
        assert peer.ask(m.SaslAuthenticateRequest(message), 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert peer.is_closed_by_server()


def test_a_damaged_list_of_users_lets_none_in(plain, tmp_path):
    path = tmp_path / "store" / "state" / "users.json"
    path.write_text("{")
    with Peer(plain) as peer:
        answer = log_in(peer, "anna", PASSWORDS["anna"])
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with Peer(plain) as peer:
        assert scram_log_in(peer, "anna", PASSWORDS["anna"]).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    plain.wait_for("users cannot be authenticated: ")
    assert plain.output().count("is no valid list of users") == 2


# ---- sessions and users


def test_clients_authenticate_themselves_again(short):
    """librdkafka does, on a connection that stays open longer than a session."""
    producer = confluent_kafka.Producer({
        "bootstrap.servers": short.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "anna", "sasl.password": PASSWORDS["anna"],
    })  # fmt: skip

    def is_logged_in_again():
        producer.produce("t", b"again")
        assert producer.flush(PATIENCE) == 0
        return max(Counter(re.findall(r"(127.0.0.1:\d+): User:anna", short.output())).values(), default=0) >= 2

    wait_until(is_logged_in_again, "a connection outlives a session", every=0.1)


# ---- kafka-configs.sh


def _alter(peer, deletions=(), upsertions=()):
    return [(one.user, one.error_code) for one in peer.ask(alter_users(deletions, upsertions), 0).results]


def _describe(peer, *names):
    wanted = [m.DescribeUserScramCredentialsRequest.UserName(one) for one in names]
    answer = peer.ask(m.DescribeUserScramCredentialsRequest(wanted or None), 0)
    assert answer.error_code == 0
    return {
        one.user: one.error_code or [(row.mechanism, row.iterations) for row in one.credential_infos]
        for one in answer.results
    }


def test_users_by_kafkas_requests(plain):
    with Peer(plain) as peer:
        assert log_in(peer, "anna", PASSWORDS["anna"]).error_code == 0
        salt = bytes(range(20))
        salted = {
            number: salted_password(mechanism, "a password", salt, 4096)
            for number, mechanism in [(1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")]
        }
        assert _alter(peer, (), [("dora", number, 4096, salt, salted[number]) for number in (1, 2)]) == [("dora", 0)]
        assert _describe(peer, "dora") == {"dora": [(1, 4096), (2, 4096)]}
        assert _describe(peer) == {user: [(1, 8192), (2, 8192)] for user in PASSWORDS} | _describe(peer, "dora")
        for mechanism in _MECHANISMS[:2]:
            with Peer(plain) as other:
                assert scram_log_in(other, "dora", "a password", mechanism).error_code == 0
        assert _alter(peer, [("dora", 2)]) == [("dora", 0)]
        assert _describe(peer, "dora", "nobody", "anna", "anna") == {
            "dora": [(1, 4096)], "nobody": ErrorCode.RESOURCE_NOT_FOUND, "anna": ErrorCode.DUPLICATE_RESOURCE,
        }  # fmt: skip
        good = ("erna", 1, 4096, salt, salted[1])
        assert _alter(peer, [("dora", 2), ("nobody", 1), ("anna", 3)], [
            good, ("a\0", *good[1:]), ("", *good[1:]), ("few", 1, 4095, salt, b"x"), ("many", 1, 16385, salt, b"x"),
            ("short", 1, 4096, b"salt", b"x"), ("none", 1, 4096, salt, b""), ("other", 9, 4096, salt, b"x"),
            ("twice", 1, 4096, salt, b"x"), ("twice", 1, 4096, salt, b"x"),
        ]) == [
            ("dora", ErrorCode.RESOURCE_NOT_FOUND), ("nobody", ErrorCode.RESOURCE_NOT_FOUND),
            ("anna", ErrorCode.UNSUPPORTED_SASL_MECHANISM), ("erna", 0),
            ("a\0", ErrorCode.UNACCEPTABLE_CREDENTIAL), ("", ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ("few", ErrorCode.UNACCEPTABLE_CREDENTIAL), ("many", ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ("short", ErrorCode.UNACCEPTABLE_CREDENTIAL), ("none", ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ("other", ErrorCode.UNSUPPORTED_SASL_MECHANISM), ("twice", ErrorCode.DUPLICATE_RESOURCE),
        ]  # fmt: skip
        assert sorted(_describe(peer)) == ["anna", "bert", "dora", "erna"]


def test_librdkafka_changes_users(server, authority):
    client = AdminClient(_librdkafka(server, authority, "SCRAM-SHA-512"))
    change = UserScramCredentialUpsertion(
        "frida", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000), b"a password"
    )
    for result in client.alter_user_scram_credentials([change]).values():
        assert result.result(PATIENCE) is None
    found = client.describe_user_scram_credentials(["frida"])["frida"].result(PATIENCE)
    assert [one.iterations for one in found.scram_credential_infos] == [5000]
    with TlsPeer(server, authority.context()) as peer:
        assert log_in(peer, "frida", "a password").error_code == 0


# ---- secrets


def test_no_secret_is_in_the_log_or_the_list_of_processes(tmp_path):
    """Of a whole session with all that can fail."""
    with _served(tmp_path, kind=NewServer) as running:
        _no_secret_is_shown(running)


def _no_secret_is_shown(plain):
    secret, wrong = "a-very-secret-word", "another-wrong-word"
    Users(documents_at(plain.path)).change(
        {"anna": {one: make_credential(one, secret) for one in ("SCRAM-SHA-256", "SCRAM-SHA-512")}}
    )
    for password in (secret, wrong):
        for log in (log_in, scram_log_in):
            with Peer(plain) as peer:
                log(peer, "anna", password)
        with Peer(plain) as peer:
            peer.ask(m.SaslHandshakeRequest("PLAIN"), 1)
            peer.ask(m.SaslAuthenticateRequest(f"anna\0{password}".encode()), 2)
        with Peer(plain) as peer:
            peer.ask(m.SaslHandshakeRequest("SCRAM-SHA-256"), 1)
            peer.ask(m.SaslAuthenticateRequest(password.encode()), 2)
        with Peer(plain) as peer:
            peer.socket.sendall(b"\0\0\0\x40\0\x24\0\1" + password.encode() * 4)
    plain.wait_for("user 'anna': unknown, or another password")
    shown = plain.output() + Path(f"/proc/{plain.process.pid}/cmdline").read_text()
    for word in (secret, wrong):
        assert word not in shown
    stored = (plain.path / "state" / "users.json").read_text()
    assert secret not in stored
    for one in Users(documents_at(plain.path)).all()["anna"].values():
        assert one.stored_key.hex() not in shown
