"""OAUTHBEARER: which tokens are accepted, where their keys come from, and clients that send them."""

import base64
import hmac
import http.server
import json
import socket
import threading
import time

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
from kafka_peer import kafka
from two_clients import pass_on

from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import Workers
from pyspark_log.server.security import TokenConfig
from pyspark_log.server.security import tokens as subject
from pyspark_log.server.security.tokens import TokenKeys, check_source
from tests.security_tools import Authority, name, tls_options
from tests.server_tools import Peer, served, served_anew

_ISSUER, _AUDIENCE = "https://issuer.example", "pylog"
_SHARED = b'{"alg": "HS256", "kid": "rsa"}'
_METADATA = m.MetadataRequest(())


def _now():
    """The time of day as the server has it, also where a test's own moves (tests/moved_time.py)."""
    return int(time.clock_gettime(time.CLOCK_REALTIME))


class _Issuer:
    """Has keys, and signs tokens."""

    def __init__(self):
        self.keys = {
            "rsa": RSAKey.generate_key(2048, {"kid": "rsa"}), "ec": ECKey.generate_key("P-256", {"kid": "ec"}),
            "ed": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
        }  # fmt: skip

    def jwks(self):
        return json.dumps(KeySet(list(self.keys.values())).as_dict(private=False)).encode()

    def token(self, algorithm="RS256", kid="rsa", key=None, **claims):
        now = _now()
        said = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": "anna", "iat": now, "exp": now + 300} | claims
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode({"alg": algorithm, "kid": kid}, said, key or self.keys[kid], algorithms=[algorithm])


@pytest.fixture(scope="module")
def issuer():
    return _Issuer()


def _options(jwks, *options):
    return (
        "--sasl-mechanisms", "OAUTHBEARER", "--oauthbearer-jwks", str(jwks), "--oauthbearer-issuer", _ISSUER,
        "--oauthbearer-audience", _AUDIENCE, "--verbose", *options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory, issuer):
    folder = tmp_path_factory.mktemp("server")
    (folder / "jwks.json").write_bytes(issuer.jwks())
    with served_anew(folder, *_options(folder / "jwks.json")) as running:
        yield running


def _log_in(peer, token, form="n,,\1auth=Bearer {}\1\1"):
    assert peer.ask(m.SaslHandshakeRequest("OAUTHBEARER"), 1).error_code == 0
    return peer.ask(m.SaslAuthenticateRequest(form.format(token).encode()), 2)


def _port(peer):
    return peer.socket.getsockname()[1]


@pytest.mark.parametrize(("algorithm", "kid"), [
    ("RS256", "rsa"), ("RS512", "rsa"), ("PS256", "rsa"), ("ES256", "ec"), ("Ed25519", "ed"),
])  # fmt: skip
def test_a_token(server, issuer, algorithm, kid):
    with Peer(server) as peer:
        answer = _log_in(peer, issuer.token(algorithm, kid))
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
        # As long as the token, and the tolerance of clocks.
        assert 200_000 < answer.session_lifetime_ms <= 330_000
        assert peer.ask(_METADATA, 12).cluster_id
        server.wait_for(f"127.0.0.1:{_port(peer)}: User:anna")


@pytest.mark.parametrize("form", [
    "n,a=anna,\1auth=Bearer {}\1\1", "n,,\1auth=bearer {}\1extension=value\1\1",
    "n,,\1host=x\1port=9092\1auth=Bearer {}\1\1",
])  # fmt: skip
def test_forms_of_the_message(server, issuer, form):
    with Peer(server) as peer:
        assert _log_in(peer, issuer.token(), form).error_code == 0


def _of_another(issuer):
    return issuer.token(key=RSAKey.generate_key(2048))


def _with_shared_key(issuer):
    """Signed with the public key as a secret, which every client has."""
    body = issuer.token().split(".")[1]
    said = f"{_base64(_SHARED)}.{body}"
    return f"{said}.{_base64(hmac.digest(issuer.keys['rsa'].as_pem(private=False), said.encode(), 'sha256'))}"


def _base64(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _unsigned(issuer):
    body = issuer.token().split(".")[1]
    return f"eyJhbGciOiJub25lIn0.{body}."


def _changed(issuer):
    head, body, signature = issuer.token().split(".")
    return f"{head}.{body[:-4]}AAAA.{signature}"


@pytest.mark.parametrize(("make", "why"), [
    (lambda issuer: issuer.token(exp=_now() - 60), "expired"),
    (lambda issuer: issuer.token(exp=None), "exp"),
    (lambda issuer: issuer.token(exp="tomorrow"), "exp"),
    (lambda issuer: issuer.token(nbf=_now() + 600), "not yet valid"),
    (lambda issuer: issuer.token(iat=_now() + 600), "issued in the future"),
    (lambda issuer: issuer.token(iss="https://other.example"), "iss"),
    (lambda issuer: issuer.token(iss=None), "iss"),
    (lambda issuer: issuer.token(aud="other"), "aud"),
    (lambda issuer: issuer.token(aud=None), "aud"),
    (lambda issuer: issuer.token(sub=None), "no 'sub'"),
    (lambda issuer: issuer.token(sub=""), "sub"),
    (lambda issuer: issuer.token(sub=17), "sub"),
    (_of_another, "BadSignatureError"),
    (_with_shared_key, "lgorithm"),
    (_unsigned, ""),
    (_changed, "BadSignatureError"),
    (lambda _: "a.b.c", "no JWT"),
    (lambda _: "nonsense", "no JWT"),
    (lambda _: "", "another form"),
])  # fmt: skip
def test_tokens_that_are_refused(server, issuer, make, why):
    token = make(issuer)
    said = len(server.output())  # of clients that may have had the same port
    with Peer(server) as peer:
        answer = _log_in(peer, token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "authentication by OAUTHBEARER failed"
        assert peer.is_closed_by_server()
        start = f"127.0.0.1:{_port(peer)}: closing the connection: authentication by OAUTHBEARER failed: "
    server.wait_for(start, said)
    [line] = [line for line in server.output()[said:].splitlines() if start in line]
    assert why in line.partition(start)[2]
    assert not token or token not in server.output()


def test_another_user_than_that_of_the_token(server, issuer):
    with Peer(server) as peer:
        answer = _log_in(peer, issuer.token(), "n,a=bert,\1auth=Bearer {}\1\1")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    server.wait_for("'anna' wants to act as 'bert'")


def test_a_clock_that_is_late_and_an_audience_among_others(server, issuer):
    with Peer(server) as peer:
        assert _log_in(peer, issuer.token(exp=_now() - 1, aud=["x", _AUDIENCE])).error_code == 0


def test_a_token_that_lasts_for_ever(server, issuer):
    with Peer(server) as peer:
        assert _log_in(peer, issuer.token(exp=10**300)).session_lifetime_ms > 0


def test_another_claim_and_the_end_of_a_token(tmp_path, issuer):
    (tmp_path / "jwks.json").write_bytes(issuer.jwks())
    options = ("--oauthbearer-principal-claim", "client_id", "--oauthbearer-clock-skew", "0")
    with served(tmp_path / "store", tmp_path, *_options(tmp_path / "jwks.json", *options)) as server:
        with Peer(server) as peer:
            answer = _log_in(peer, issuer.token(client_id="service", exp=_now() + 100))
            # Without a tolerance of clocks it ends with the token.
            assert 0 < answer.session_lifetime_ms <= 100_000
        server.wait_for(": User:service")


# ---- clients


def test_librdkafka_and_kafka_python(tmp_path, issuer):
    authority = Authority(tmp_path)
    (tmp_path / "jwks.json").write_bytes(issuer.jwks())
    options = tls_options(*authority.issue("server", name(CN="server")))

    def token(_config):
        return issuer.token(), _now() + 300

    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):
        def token(self):
            return issuer.token()

    with served(tmp_path / "store", tmp_path, *_options(tmp_path / "jwks.json", *options)) as server:
        pass_on(server, b"librdkafka", {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
            "ssl.ca.location": str(authority.certificate), "oauth_cb": token,
        }, {
            "security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER",
            "ssl_cafile": str(authority.certificate), "sasl_oauth_token_provider": Provider(),
        })  # fmt: skip


# ---- keys


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked += 1
        status, content, place = self.server.answers[self.path]
        self.send_response(status)
        if place:
            self.send_header("Location", place)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def page():
    """A server of keys; `answers` is what it has, `asked` how often it was asked."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Page) as server:
        server.answers, server.asked = {}, 0
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _run(loop, coroutine):
    """Runs a coroutine that awaits Waits to its end."""
    results = []

    def step():
        try:
            wait = coroutine.send(None)
        except StopIteration as end:
            results.append(end.value)
            loop.stop()
        else:
            wait.then(lambda: loop.call_soon(step))

    loop.call_soon(step)
    loop.run()
    return [key.kid for key in results[0]]


def test_keys_are_fetched_again_for_one_that_is_unknown_but_not_often(loop, page):
    issuer, workers, clock = _Issuer(), Workers(loop, 1), [1000.0]
    page.answers["/keys"] = 200, issuer.jwks(), None
    keys = TokenKeys(TokenConfig(f"{page.url}/keys", _ISSUER, _AUDIENCE), workers, lambda: clock[0])
    assert _run(loop, keys.for_key("rsa")) == ["rsa", "ec", "ed"]
    assert _run(loop, keys.for_key("ec")) == ["rsa", "ec", "ed"]
    assert page.asked == 1
    issuer.keys["new"] = ECKey.generate_key("P-256", {"kid": "new"})
    page.answers["/keys"] = 200, issuer.jwks(), None
    for _ in range(3):
        assert _run(loop, keys.for_key("new")) == ["rsa", "ec", "ed"]
    assert page.asked == 1
    clock[0] += 61
    assert _run(loop, keys.for_key("new")) == ["rsa", "ec", "ed", "new"]
    assert page.asked == 2
    # A failure leaves what was there.
    page.answers["/keys"] = 500, b"", None
    clock[0] += 61
    assert _run(loop, keys.for_key("newer")) == ["rsa", "ec", "ed", "new"]
    assert page.asked == 3
    # One that is withdrawn is forgotten some time later, without a wait of those that have another.
    del issuer.keys["rsa"]
    page.answers["/keys"] = 200, issuer.jwks(), None
    clock[0] += 601
    assert _run(loop, keys.for_key("ec")) == ["rsa", "ec", "ed", "new"]
    workers.close()
    loop.call_soon(loop.stop)
    loop.run()
    assert [key.kid for key in keys._keys] == ["ec", "ed", "new"]


@pytest.mark.parametrize(("status", "content", "place"), [
    (404, b"", None), (302, b"", "/keys"), (200, b"{}", None), (200, b"[1]", None), (200, b"{", None),
    (200, b'{"keys": [{"kty": "x"}]}', None), (200, b'{"keys": 1}', None), (200, b" " * (2 << 20), None),
])  # fmt: skip
def test_answers_that_are_no_keys(loop, page, caplog, status, content, place):
    workers = Workers(loop, 1)
    page.answers["/keys"] = 200, _Issuer().jwks(), None
    page.answers["/other"] = status, content, place
    keys = TokenKeys(TokenConfig(f"{page.url}/other", _ISSUER, _AUDIENCE), workers, loop.time)
    assert _run(loop, keys.for_key("rsa")) == []
    assert "the keys of tokens cannot be read" in caplog.text
    assert page.asked == 1
    workers.close()


def test_a_server_of_keys_that_does_not_answer(loop, monkeypatch):
    monkeypatch.setattr(subject, "_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        workers = Workers(loop, 1)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/keys"
        keys = TokenKeys(TokenConfig(url, _ISSUER, _AUDIENCE), workers, loop.time)
        assert _run(loop, keys.for_key("rsa")) == []
        workers.close()


@pytest.mark.parametrize("source", ["ftp://x/keys", "missing.json"])
def test_where_no_keys_can_be(source):
    with pytest.raises(InvalidConfigError):
        check_source(source)
