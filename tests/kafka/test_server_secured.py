"""Kafka's own tools at a `pylog serve` with TLS and authentication, with the settings of docs/guides/security.md."""

import json
import re
import time
from collections import Counter

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from kafka_tools import run

from pyspark_log.server.security.users import Users
from tests.amounts import one_in
from tests.documents import documents_at
from tests.paths import ROOT
from tests.security_tools import PASSWORDS, Authority, name, served_with_users, tls_options
from tests.server_tools import PATIENCE, served_anew
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kafka")

_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
_LOGIN = "org.apache.kafka.common.security"
_PAGE = (ROOT / "docs/guides/security.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def server(authority, tmp_path_factory):
    """With SASL over TLS, and short sessions."""
    options = tls_options(*authority.issue("server", name(CN="localhost")))
    options += ("--sasl-mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", "--sasl-max-session", "3", "--verbose")
    with served_with_users(tmp_path_factory.mktemp("secured"), *options, topics=["orders"]) as running:
        yield running


def _sasl(authority, mechanism, user, password):
    """The page's settings for Java, with a user of the test's."""
    [text] = re.findall(r"```properties\n(.*?)```", _PAGE, re.DOTALL)
    text = text.replace("/etc/pylog/ca.pem", str(authority.certificate)).replace("SCRAM-SHA-512", mechanism)
    text = text.replace('"anna"', f'"{user}"').replace("PASSWORD", password)
    if mechanism == "PLAIN":
        # As the page says.
        text = text.replace(f"{_LOGIN}.scram.ScramLoginModule", f"{_LOGIN}.plain.PlainLoginModule")
    return re.sub(r"(?m)^bootstrap.servers=.*\n", "", text)


@pytest.fixture
def tool(tmp_path):
    """Runs one of Kafka's tools with settings; what it prints. AssertionError: it failed."""

    def call(server, settings, main, *arguments, text="", option="--command-config", **how):
        path = tmp_path / "client.properties"
        # Java reads other characters as those of Latin-1.
        path.write_text("".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in settings))
        return run(main, "--bootstrap-server", server.bootstrap, option, path, *arguments, text=text, **how)

    return call


def _write_and_read(tool, server, settings, topic, **how):
    """Writes a record to a new topic, and reads it."""
    tool(server, settings, _PRODUCER, "--topic", topic, text="a value\n", **how)
    arguments = ("--topic", topic, "--from-beginning", "--max-messages", 1, "--timeout-ms", 1000 * PATIENCE)
    assert tool(server, settings, _CONSUMER, *arguments, **how) == "a value\n"


@pytest.mark.parametrize("mechanism", one_in(3, ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]))
def test_users(tool, server, authority, mechanism):
    user = "anna" if mechanism != "PLAIN" else "bert"
    _write_and_read(tool, server, _sasl(authority, mechanism, user, PASSWORDS[user]), mechanism)


@pytest.mark.parametrize(("user", "password"), one_in(2, [("anna", "wrong"), ("nobody", "wrong")]))
def test_a_wrong_password(tool, server, authority, user, password):
    settings = _sasl(authority, "SCRAM-SHA-256", user, password)
    with pytest.raises(AssertionError, match="SaslAuthenticationException: authentication by SCRAM-SHA-256 failed"):
        tool(server, settings, "org.apache.kafka.tools.TopicCommand", "--list")


@pytest.mark.long
def test_a_server_that_is_not_trusted(tool, server, tmp_path):
    settings = _sasl(Authority(tmp_path, "other"), "PLAIN", "anna", PASSWORDS["anna"])
    with pytest.raises(AssertionError, match="SslAuthenticationException"):
        tool(server, settings, "org.apache.kafka.tools.TopicCommand", "--list")


@pytest.mark.long
def test_a_client_authenticates_itself_again(tool, server, authority):
    """Java's clients do, on connections that last longer than a session."""
    settings = _sasl(authority, "SCRAM-SHA-512", "anna", PASSWORDS["anna"])
    arguments = ("--topic", "orders", "--num-records", 500, "--record-size", 10, "--throughput", 50)

    def is_logged_in_again():
        tool(server, settings, "org.apache.kafka.tools.ProducerPerformance", *arguments)
        return max(Counter(re.findall(r"(127.0.0.1:\d+): User:anna", server.output())).values(), default=0) >= 3

    # One that comes too late, as the machine is slow, gets a new connection.
    wait_until(is_logged_in_again, "a connection outlives two sessions")


@pytest.mark.long
def test_kafka_configs_changes_users(tool, server, authority):
    settings = _sasl(authority, "SCRAM-SHA-512", "anna", PASSWORDS["anna"])
    alter = ("kafka.admin.ConfigCommand", "--alter", "--entity-type", "users", "--entity-name", "dora")
    both = "SCRAM-SHA-256=[password=first],SCRAM-SHA-512=[iterations=5000,password=first]"
    tool(server, settings, *alter, "--add-config", both)
    users = Users(documents_at(server.path))
    found = users.all()["dora"]
    assert {mechanism: one.iterations for mechanism, one in found.items()} == {
        "SCRAM-SHA-512": 5000, "SCRAM-SHA-256": 4096,
    }  # fmt: skip
    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        tool(server, _sasl(authority, mechanism, "dora", "first"), "org.apache.kafka.tools.TopicCommand", "--list")
    tool(server, settings, *alter, "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512")
    assert "dora" not in users.all()
    with pytest.raises(AssertionError, match="SaslAuthenticationException"):
        tool(server, _sasl(authority, "PLAIN", "dora", "first"), "org.apache.kafka.tools.TopicCommand", "--list")


def test_a_client_with_a_certificate(tool, authority, tmp_path):
    options = tls_options(*authority.issue("mutual", name(CN="localhost")))
    options += ("--tls-client-ca", authority.certificate, "--verbose")
    options += ("--tls-principal-mapping-rules", "RULE:^CN=(.*?),OU=Shop.*$/$1/L,DEFAULT")
    both = authority.issue_as_one("anna", name(O="Example", OU="Shop", CN="Anna"))
    trust = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.certificate}\n"
    with served_anew(tmp_path, *options, topics=["orders"]) as server:
        _write_and_read(tool, server, f"{trust}ssl.keystore.type=PEM\nssl.keystore.location={both}\n", "certificate")
        assert ": User:anna" in server.output()
        with pytest.raises(AssertionError, match=r"SslAuthenticationException|TimeoutException"):
            tool(
                server, f"{trust}default.api.timeout.ms=20000\nrequest.timeout.ms=10000\n",
                "org.apache.kafka.tools.TopicCommand", "--list",
            )  # fmt: skip
        server.wait_for("peer did not return a certificate")


def test_a_client_with_a_token(tool, authority, tmp_path):
    key = RSAKey.generate_key(2048, {"kid": "one"})
    (tmp_path / "jwks.json").write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    now = int(time.time())
    claims = {"iss": "issuer", "aud": "kafka", "sub": "service", "iat": now, "exp": now + 600, "scope": "x"}
    token = tmp_path / "token"
    token.write_text(jwt.encode({"alg": "RS256", "kid": "one"}, claims, key))
    settings = (
        f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.certificate}\n"
        f"sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=file://{token}\n"
        f"sasl.jaas.config={_LOGIN}.oauthbearer.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler\n"
    )
    options = tls_options(*authority.issue("tokens", name(CN="localhost")))
    options += (
        "--sasl-mechanisms", "OAUTHBEARER", "--oauthbearer-jwks", tmp_path / "jwks.json", "--oauthbearer-issuer",
        "issuer", "--oauthbearer-audience", "kafka", "--verbose",
    )  # fmt: skip
    allowed = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{token}",)
    with served_anew(tmp_path, *options, topics=["orders"]) as server:
        _write_and_read(tool, server, settings, "token", options=allowed)
        assert ": User:service" in server.output()


@pytest.mark.long
def test_kafka_acls_says_what_a_user_may_do(tool, authority, tmp_path):
    options = tls_options(*authority.issue("server", name(CN="localhost")))
    options += ("--sasl-mechanisms", "PLAIN", "--acls", "--super-users", "User:anna")
    anna, bert = (_sasl(authority, "PLAIN", user, PASSWORDS[user]) for user in ("anna", "bert"))
    acls = "org.apache.kafka.tools.AclCommand"
    topics = "org.apache.kafka.tools.TopicCommand"
    with served_with_users(tmp_path, *options) as server:
        with pytest.raises(AssertionError, match="TopicAuthorizationException"):
            tool(server, bert, topics, "--create", "--topic", "orders")
        rights = ("--allow-principal", "User:bert", "--topic", "orders")
        added = tool(server, anna, acls, "--add", *rights, "--producer")
        tool(server, anna, acls, "--add", *rights, "--consumer", "--group", "*")
        assert "principal=User:bert, host=*, operation=CREATE, permissionType=ALLOW" in added
        _write_and_read(tool, server, bert, "orders")
        assert tool(server, bert, topics, "--list") == "orders\n"
        with pytest.raises(AssertionError, match="ClusterAuthorizationException: User:bert may not describe cluster"):
            tool(server, bert, acls, "--list")
        tool(server, anna, acls, "--remove", *rights, "--producer", "--force")
        listed = tool(server, anna, acls, "--list", "--topic", "orders")
        assert sorted(re.findall(r"operation=(\w+)", listed)) == ["READ"]
        with pytest.raises(AssertionError, match="TopicAuthorizationException"):
            tool(server, bert, topics, "--delete", "--topic", "orders")
