"""docs/guides/from-kafka.md: its commands mirror our server in place of a cluster, log in, and end the mirror."""

import re

import pytest

from pyspark_log import Store
from tests.pages import blocks, run_shell
from tests.security_tools import Authority, add_users, name, tls_options
from tests.server_tools import Server
from tests.store_tools import rows

_SH = blocks("guides/from-kafka.md", "sh")
[_PROPERTIES] = blocks("guides/from-kafka.md", "properties")


@pytest.fixture
def cluster(tmp_path):
    """A server over a store with the page's topics; not started yet."""
    with Store.create(tmp_path / "cluster") as store:
        for topic in ("flights", "clicks-a", "others"):
            store.create_topic(topic, 2)
            store.append(topic, rows(topic.encode()))
    servers = []

    def start(*options):
        servers.append(Server(tmp_path / "cluster", tmp_path, *options).start())
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def run(code, folder, server):
    """Runs a block of the page; what it prints."""
    here = re.sub(r"kafka\.example:\d+", f"localhost:{server.port}", code).replace("/data/store", f"{folder}/mirror")
    return run_shell(here, folder)


def test_the_first_mirror_and_its_end(cluster, tmp_path):
    server = cluster()
    printed = run(_SH[0], tmp_path, server)
    assert "flights" in printed
    assert "clicks-a" in printed
    assert "others" not in printed
    assert "flights-0 ends at offset" in run(_SH[2], tmp_path, server)
    with Store.open(tmp_path / "mirror") as store:
        store.append("flights", rows(b"ours"))


@pytest.mark.parametrize("names", ["librdkafka's", "Java's"])
def test_the_login(cluster, tmp_path, names):
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    add_users(tmp_path / "cluster", {"anna": "secret"})
    server = cluster(
        *tls_options(*authority.issue("server", name(CN="localhost"))), "--sasl-mechanisms", "SCRAM-SHA-512"
    )
    properties = _PROPERTIES.replace("/etc/pylog/ca.pem", str(authority.certificate)).replace("PASSWORD", "secret")
    if names == "Java's":
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        properties = re.sub(r"sasl\.(username|password)=.*\n", "", properties).replace("ssl.ca.", "ssl.truststore.")
        properties += (
            f'ssl.truststore.type=PEM\nsasl.jaas.config={module} required \\\n  username="anna" password="secret";\n'
        )
    (tmp_path / "client.properties").write_text(properties)
    run(_SH[1], tmp_path, server)
    with Store.open(tmp_path / "mirror") as store:
        assert store.topics() == ["flights"]
