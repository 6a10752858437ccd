"""What clients get before and during authentication: from `pylog serve` and from Kafka, side by side."""

import contextlib

import pytest
from kafka_tools import running_broker, sasl_settings

from pyspark_log.kafka import messages as m
from pyspark_log.server.handlers import APIS
from tests.security_tools import PASSWORDS, served_with_users
from tests.server_tools import Peer

_USER, _PASSWORD = "anna", PASSWORDS["anna"]
_METADATA = (m.MetadataRequest(()), 12)
_VERSIONS = (m.ApiVersionsRequest("tests", "1.0"), 3)


def _handshake(mechanism, version=1):
    return m.SaslHandshakeRequest(mechanism), version


def _plain(user=_USER, password=_PASSWORD, version=2):
    return m.SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), version


#: Requests of one connection each.
SESSIONS = {
    "plain": [_VERSIONS, _handshake("PLAIN"), _plain(), _METADATA],
    "plain, version 1": [_handshake("PLAIN"), _plain(version=1), _METADATA],
    "plain, version 0": [_handshake("PLAIN"), _plain(version=0), _METADATA],
    "a wrong password": [_handshake("PLAIN"), _plain(password="wrong"), _METADATA],
    "an unknown user": [_handshake("PLAIN"), _plain("nobody"), _METADATA],
    "an empty message": [_handshake("PLAIN"), (m.SaslAuthenticateRequest(b""), 2)],
    "another's name": [_handshake("PLAIN"), (m.SaslAuthenticateRequest(f"x\0{_USER}\0{_PASSWORD}".encode()), 2)],
    "no handshake": [_plain()],
    "versions, and no handshake": [_VERSIONS, _plain()],
    "an unknown mechanism": [_handshake("NONSENSE"), _handshake("PLAIN")],
    "a mechanism that is not enabled": [_handshake("SCRAM-SHA-512"), _handshake("PLAIN")],
    "two handshakes": [_handshake("PLAIN"), _handshake("PLAIN")],
    "a request after the handshake": [_handshake("PLAIN"), _METADATA],
    "a handshake at once after authentication": [_handshake("PLAIN"), _plain(), _handshake("PLAIN")],
    "another user again": [_handshake("PLAIN"), _plain(), _handshake("PLAIN"), _plain("bert", PASSWORDS["bert"])],
    "another mechanism again": [_handshake("PLAIN"), _plain(), _handshake("SCRAM-SHA-256"), _METADATA],
    "a wrong password again": [_handshake("PLAIN"), _plain(), _handshake("PLAIN"), _plain(password="wrong"), _METADATA],
    "versions while it is done again": [_handshake("PLAIN"), _plain(), _handshake("PLAIN"), _VERSIONS],
    "a message after authentication": [_handshake("PLAIN"), _plain(), _plain(), _METADATA],
}
#: Those that differ, with the reason.
DIFFERENT = {
    "another mechanism again": "Kafka refuses the message after it",
    "a request after the handshake": "Kafka answers it with an error in all its parts, and closes the connection then",
}


def _asked(where, requests):
    """The answers to requests of one connection, as far as they are about authentication."""
    answers = []
    with Peer(where) as peer:
        for request, version in requests:
            try:
                answer = peer.ask(request, version)
            except ConnectionError:
                answers.append("closed")
                break
            if isinstance(request, m.SaslHandshakeRequest):
                answers.append((answer.error_code, sorted(answer.mechanisms)))
            elif isinstance(request, m.SaslAuthenticateRequest):
                answers.append((answer.error_code, bytes(answer.auth_bytes), answer.session_lifetime_ms))
            else:
                answers.append("answered")
    return answers


def _is_closed(where, key, version):
    """Whether a request without authentication closes the connection, and gets no answer."""
    with Peer(where) as peer:
        header = b"\0\0\0\x0a" + key.to_bytes(2, "big") + version.to_bytes(2, "big")
        with contextlib.suppress(ConnectionError):
            peer.socket.sendall(header + bytes(6))
        return peer.is_closed_by_server()


@pytest.fixture(scope="module")
def sides(kafka, tmp_path_factory):
    """Kafka, and then a server, with the same users."""
    settings = sasl_settings(PASSWORDS) | {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "connections.max.reauth.ms": 3_600_000,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config":
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    }  # fmt: skip
    options = ("--sasl-mechanisms", "PLAIN,SCRAM-SHA-256", "--sasl-max-session", "3600")
    with (
        running_broker(tmp_path_factory.mktemp("broker"), settings=settings, protocol="SASL_PLAINTEXT") as broker,
        served_with_users(tmp_path_factory.mktemp("server"), *options) as server,
    ):
        yield broker, server


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_is_kafkas(sides, name):
    kafkas, ours = (_asked(side, SESSIONS[name]) for side in sides)
    if name in DIFFERENT:
        assert ours != kafkas, f"it differs no more: {DIFFERENT[name]}"
    else:
        assert ours == kafkas


def test_without_authentication_both_close_the_connection(sides):
    for key, api in APIS.items():
        if key not in (17, 18, 36):
            for version in (api.versions.start, api.versions.stop - 1):
                assert [_is_closed(side, key, version) for side in sides] == [True, True], (key, version)
