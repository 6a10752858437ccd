"""The document of quotas, what it may have in it, and which of its entries counts."""

import json

import pytest

from pyspark_log import Store
from pyspark_log.errors import DescriptionError, InvalidConfigError, StoreVersionError
from pyspark_log.server.quotas import DEFAULT, ClientQuotas, Entity, check_entity, check_quota
from pyspark_log.server.quotas.table import Bound, Table
from tests.documents import documents_at, place_of

ALL = {
    Entity("anna"): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
    Entity("anna", DEFAULT): {"consumer_byte_rate": 7.0},
    Entity(DEFAULT, "app"): {"controller_mutation_rate": 0.5},
    Entity(ip=DEFAULT): {"connection_creation_rate": 10.0},
    Entity(ip="10.0.0.1"): {"connection_creation_rate": 20.0},
    Entity(ip="::1"): {"connection_creation_rate": 30.0},
}


@pytest.fixture
def kept(place):
    """Where they are."""
    Store.create(place).close()
    return place_of(place)


@pytest.fixture
def quotas(kept):
    return ClientQuotas(documents_at(kept.path))


def test_what_is_written_is_read(kept, quotas):
    assert quotas.table().quotas == {}
    quotas.change(lambda known: {**known, **ALL, Entity("ben"): {}})
    assert ClientQuotas(documents_at(kept.path)).table().quotas == quotas.table().quotas == ALL


def test_a_change_of_another_process_counts(kept, quotas):
    table = quotas.table()
    ClientQuotas(documents_at(kept.path)).change(lambda _: ALL)
    assert quotas.table().quotas == ALL != table.quotas
    assert quotas.table() is quotas.table()


@pytest.mark.parametrize(
    "one",
    [
        {"entity": {}, "values": {"producer_byte_rate": 1}},
        {"entity": {"user": "anna", "colour": "red"}, "values": {}},
        {"entity": {"user": 1}, "values": {}},
        {"entity": {"user": "anna"}, "values": {"producer_byte_rate": "1"}},
        {"entity": {"user": "anna"}, "values": {"producer_byte_rate": True}},
        {"entity": {"user": "anna"}, "values": {"producer_byte_rate": 0}},
        {"entity": {"user": "anna"}, "values": {"connection_creation_rate": 1}},
        {"entity": {"user": "anna"}, "values": {"request_percentage": float("nan")}},
        {"entity": {"user": "anna"}, "values": []},
        {"entity": {"user": "anna", "ip": "10.0.0.1"}, "values": {}},
    ],
)
def test_damage(kept, quotas, one):
    content = json.dumps({"version": 1, "quotas": [one]}).encode()
    kept.write("quotas.json", content)
    with pytest.raises(DescriptionError, match="no valid list of quotas"):
        quotas.table()
    with pytest.raises(DescriptionError):
        quotas.change(lambda _: ALL)
    assert kept.bytes_of("quotas.json") == content


def test_a_later_version(kept, quotas):
    kept.write("quotas.json", b'{"version": 2}')
    with pytest.raises(StoreVersionError, match="use a newer pyspark-log"):
        quotas.table()


@pytest.mark.parametrize(
    "entity", [Entity(), Entity("anna", ip="10.0.0.1"), Entity(ip="10.0.0"), Entity(ip="localhost"), Entity("a" * 1025)]
)
def test_what_is_no_entity(entity):
    with pytest.raises(InvalidConfigError):
        check_entity(entity)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("producer_byte_rate", -1), ("producer_byte_rate", 1.5), ("producer_byte_rate", 1e19),
        ("request_percentage", 0), ("request_percentage", float("inf")), ("request_percentage", float("nan")),
        ("SCRAM-SHA-256", 1), ("connection_creation_rate", 1),
    ],
)  # fmt: skip
def test_what_is_no_quota(name, value):
    with pytest.raises(InvalidConfigError):
        check_quota(Entity("anna"), name, value)


def test_the_first_level_that_has_one_counts():
    table = Table(ALL)
    assert table.bounds("anna", "app") == {
        "producer_byte_rate": Bound(1000, "anna", ""), "request_percentage": Bound(12.5, "anna", ""),
        "consumer_byte_rate": Bound(7, "anna", "app"), "controller_mutation_rate": Bound(0.5, "anna", "app"),
    }  # fmt: skip
    assert table.bounds("ben", "app") == {"controller_mutation_rate": Bound(0.5, "ben", "app")}
    assert table.bounds("ben", "tool") == {}
    # As in Kafka a client without an id has none, also no default one.
    assert set(table.bounds("anna", "")) == {"producer_byte_rate", "request_percentage"}


def test_addresses():
    table = Table(ALL)
    rates = [table.connection_rate(one) for one in ("10.0.0.1", "10.0.0.2", "::1", "0:0::1", "::1%lo", "::2")]
    assert rates == [20, 10, 30, 30, 30, 10]
    assert Table({Entity("anna"): {"producer_byte_rate": 1}}).connection_rate("10.0.0.1") is None


def test_decisions_are_remembered_and_bounded():
    table = Table(ALL)
    assert table.bounds("anna", "app") is table.bounds("anna", "app")
    for number in range(25_000):
        table.bounds("anna", str(number))
    assert len(table._known) <= 10_000
