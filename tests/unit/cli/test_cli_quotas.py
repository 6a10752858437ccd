"""`pylog quotas`: how much clients may use, set, listed and removed."""

import json

import pytest
from cli_tools import output, pylog

from pyspark_log.server.quotas import DEFAULT, ClientQuotas, Entity
from pyspark_log.storage.store import Store
from tests.documents import documents_at


@pytest.fixture
def known(store):
    return lambda: ClientQuotas(documents_at(store.path)).table().quotas


def test_set_list_remove(either):
    def known():
        return ClientQuotas(documents_at(either.path)).table().quotas

    assert output(either, "quotas", "list") == "USER  CLIENT-ID  IP  QUOTA  VALUE\n"
    printed = output(either, "quotas", "set", "--user", "anna", "producer_byte_rate=1000000", "request_percentage=12.5")
    assert printed == "Set producer_byte_rate, request_percentage of user anna.\n"
    output(either, "quotas", "set", "--user", "anna", "--client-defaults", "consumer_byte_rate=5")
    output(either, "quotas", "set", "--ip-defaults", "connection_creation_rate=7")
    output(either, "quotas", "set", "--user", "anna", "producer_byte_rate=2e6")
    assert known() == {
        Entity("anna"): {"producer_byte_rate": 2e6, "request_percentage": 12.5},
        Entity("anna", DEFAULT): {"consumer_byte_rate": 5.0},
        Entity(ip=DEFAULT): {"connection_creation_rate": 7.0},
    }
    assert [line.rstrip() for line in output(either, "quotas", "list").splitlines()] == [
        "USER  CLIENT-ID  IP         QUOTA                       VALUE",
        "                 <default>  connection_creation_rate        7",
        "anna                        producer_byte_rate        2000000",
        "anna                        request_percentage           12.5",
        "anna  <default>             consumer_byte_rate              5",
    ]
    assert json.loads(output(either, "quotas", "list", "--json"))[-1] == {
        "entity": {"user": "anna", "client-id": None}, "values": {"consumer_byte_rate": 5.0}
    }  # fmt: skip
    printed = output(either, "quotas", "remove", "--user", "anna", "request_percentage", "--yes")
    assert printed == "Removed request_percentage of user anna.\n"
    assert known()[Entity("anna")] == {"producer_byte_rate": 2e6}
    output(either, "quotas", "remove", "--user", "anna", "--yes")
    assert set(known()) == {Entity("anna", DEFAULT), Entity(ip=DEFAULT)}


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("set", "producer_byte_rate=1"), 1, "a quota is for a user, a client id, both, or an address"),
        (("set", "--user", "anna"), 2, "Missing argument"),
        (("set", "--user", "", "producer_byte_rate=1"), 2, "A name is not empty"),
        (("set", "--user", "anna", "--user-defaults", "producer_byte_rate=1"), 2, "A name is not empty"),
        (("set", "--user", "anna", "producer_byte_rate"), 2, "not of the form NAME=VALUE"),
        (("set", "--user", "anna", "producer_byte_rate=fast"), 2, "not of the form NAME=VALUE"),
        (("set", "--user", "anna", "producer_byte_rate=0"), 1, "must be a number greater than 0"),
        (("set", "--user", "anna", "connection_creation_rate=1"), 1, "no quota of users and client ids"),
        (("set", "--ip", "10.0.0.1", "producer_byte_rate=1"), 1, "no quota of addresses"),
        (("set", "--ip", "localhost", "connection_creation_rate=1"), 1, "no address of IP"),
        (("set", "--ip", "10.0.0.1", "--user", "anna", "connection_creation_rate=1"), 1, "an address has no user"),
        (("remove", "--user", "anna", "--yes"), 1, "there is no such quota"),
        (("remove", "--user", "anna", "--yes", "colour"), 2, "'colour' is not one of"),
    ],
)
def test_what_is_refused(store, known, arguments, code, why):
    result = pylog(store, "quotas", *arguments)
    assert (result.exit_code, why in result.output) == (code, True), result.output
    assert known() == {}


def test_a_store_for_reading(tmp_path, store):
    """It has no quotas, as nothing can be set."""
    broker = tmp_path / "broker"
    (broker / "t-0").mkdir(parents=True)
    (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    (broker / "t-0" / "00000000000000000000.log").touch()
    with Store.open(broker) as read_only:
        result = pylog(read_only, "quotas", "list")
    assert result.exit_code == 1
    assert "cannot be written to" in result.output


def test_verify_and_backup(tmp_path, store):
    store.create_topic("t", 1)
    store.append("t", [{"value": b"v"}])
    output(store, "quotas", "set", "--user", "anna", "producer_byte_rate=1000")
    assert "no damage" in output(store, "verify")
    output(store, "backup", "--into", str(tmp_path / "copy"))
    assert not (tmp_path / "copy" / "state" / "quotas.json").exists()
