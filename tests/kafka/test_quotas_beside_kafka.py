"""Quotas at a real Kafka and at `pylog serve`: the same changes, questions and mistakes, the answers side by side."""

import itertools
import math
import time

import pytest

from pyspark_log.kafka import messages as m
from pyspark_log.server.quotas import Entity
from tests import requests as r
from tests.server_tools import Peer, served_anew
from tests.unit.record_tools import Record, build
from tests.waiting import wait_until

_Alter, _Describe = m.AlterClientQuotasRequest, m.DescribeClientQuotasRequest
EXACT, DEFAULT, ANY = range(3)
VERSIONS = (0, 1)

#: What is set at both, and described then.
QUOTAS = {
    Entity("anna"): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
    Entity("anna", "app"): {"consumer_byte_rate": 2000.0},
    Entity("anna", ""): {"producer_byte_rate": 3000.0},
    Entity(""): {"controller_mutation_rate": 0.5},
    Entity("", "app"): {"request_percentage": 200.0},
    Entity("", ""): {"producer_byte_rate": 9e18},
    Entity(client_id="app"): {"producer_byte_rate": 4000.0},
    Entity(client_id=""): {"producer_byte_rate": 5000.0},
    Entity(ip="10.0.0.1"): {"connection_creation_rate": 6.0},
    Entity(ip=""): {"connection_creation_rate": 7000.0},
}
_PARTS = [(kind, EXACT, name) for kind, name in (("user", "anna"), ("client-id", "app"), ("ip", "10.0.0.1"))] + [
    (kind, match, None) for kind in ("user", "client-id", "ip") for match in (DEFAULT, ANY)
]
#: Filters: of up to two parts each, also those that make no sense.
FILTERS = [(), *((one,) for one in _PARTS), *itertools.combinations(_PARTS, 2)] + [
    (one,)
    for one in (
        ("user", EXACT, None), ("user", EXACT, ""), ("user", EXACT, "nobody"), ("user", DEFAULT, "anna"),
        ("user", ANY, "anna"), ("user", 3, None), ("user", -1, None), ("", ANY, None), ("group", ANY, None),
        ("USER", ANY, None),
    )
]  # fmt: skip
_RATE, _CONNECTIONS = ("producer_byte_rate", 1000.0, False), ("connection_creation_rate", 5.0, False)
#: Changes that are checked and not made: entities with what is altered of each.
CHANGES = {
    "one": [({"user": "x"}, [_RATE])],
    "each kind": [
        ({"user": "x", "client-id": None}, [_RATE]),
        ({"client-id": "x"}, [_RATE]),
        ({"ip": "::2"}, [_CONNECTIONS]),
    ],
    "no entity": [({}, [_RATE])],
    "an unknown kind": [({"group": "x"}, [_RATE])],
    "an empty kind": [({"": "x"}, [_RATE])],
    "an empty user": [({"user": ""}, [_RATE])],
    "an empty client id": [({"client-id": ""}, [_RATE])],
    "an empty address": [({"ip": ""}, [_CONNECTIONS])],
    "no address": [({"ip": "300.1.1.1.1"}, [_CONNECTIONS])],
    "an address of IPv6": [({"ip": "::1"}, [_CONNECTIONS])],
    "an address with a user": [({"ip": "10.0.0.1", "user": "x"}, [_CONNECTIONS])],
    "bytes of an address": [({"ip": "10.0.0.1"}, [_RATE])],
    "connections of a user": [({"user": "x"}, [_CONNECTIONS])],
    "an unknown quota": [({"user": "x"}, [("colour", 1.0, False)])],
    "an unknown quota is removed": [({"user": "x"}, [("colour", 1.0, True)])],
    "a credential": [({"user": "x"}, [("SCRAM-SHA-256", 1.0, False)])],
    "nothing": [({"user": "x"}, [])],
    "zero": [({"user": "x"}, [("producer_byte_rate", 0.0, False)])],
    "less than zero": [({"user": "x"}, [("request_percentage", -1.0, False)])],
    "a part of a byte": [({"user": "x"}, [("consumer_byte_rate", 1.5, False)])],
    "a part of a percent": [({"user": "x"}, [("request_percentage", 0.01, False)])],
    "a part of a partition": [({"user": "x"}, [("controller_mutation_rate", 0.01, False)])],
    "a part of a connection": [({"ip": "10.0.0.1"}, [("connection_creation_rate", 0.5, False)])],
    "too many bytes": [({"user": "x"}, [("producer_byte_rate", 1e19, False)])],
    "too many connections": [({"ip": "10.0.0.1"}, [("connection_creation_rate", 3e9, False)])],
    "a quota twice": [({"user": "x"}, [_RATE, _RATE])],
    "set and removed": [({"user": "x"}, [_RATE, ("producer_byte_rate", 0.0, True)])],
    "one of two is wrong": [({"user": "x"}, [("colour", 1.0, False)]), ({"user": "y"}, [_RATE])],
    "an entity twice": [({"user": "x"}, [_RATE]), ({"user": "y"}, [_RATE]), ({"user": "x"}, [_RATE])],
}  # fmt: skip


def _altered(peer, changes, version=1, *, validate_only=False):
    """Alters quotas; the error codes by entity."""
    entries = [
        _Alter.EntryData(
            [_Alter.EntityData(*part) for part in entity.items()], [_Alter.OpData(*change) for change in values]
        )
        for entity, values in changes
    ]
    answer = peer.ask(_Alter(entries, validate_only), version)
    return sorted((sorted(map(str, one.entity)), one.error_code) for one in answer.entries)


def _described(peer, parts, version=1, *, strict=False):
    """The quotas that a filter is true for, or the error code."""
    answer = peer.ask(_Describe([_Describe.ComponentData(*part) for part in parts], strict), version)
    if answer.entries is None:
        return answer.error_code
    assert answer.error_code == 0
    return sorted((sorted(map(str, one.entity)), sorted(map(str, one.values))) for one in answer.entries)


def _set(where, quotas):
    """Sets quotas, and waits until they count: at Kafka, a moment later."""
    with Peer(where) as peer:
        changes = [
            ({kind: name or None for kind, name in entity.parts()}, [(*one, False) for one in values.items()])
            for entity, values in quotas.items()
        ]
        assert {code for _, code in _altered(peer, changes)} == {0}
        wait_until(lambda: len(_described(peer, ())) >= len(quotas), "the quotas are described")


@pytest.fixture(scope="module")
def sides(broker, tmp_path_factory):
    """Kafka, and then a server, with the same quotas."""
    with served_anew(tmp_path_factory.mktemp("server")) as server:
        where = broker, server
        for side in where:
            _set(side, QUOTAS)
        yield where
    with Peer(where[0]) as peer:
        removed = [
            ({kind: name or None for kind, name in entity.parts()}, [(one, 0.0, True) for one in values])
            for entity, values in QUOTAS.items()
        ]
        assert {code for _, code in _altered(peer, removed)} == {0}


def _both(sides, ask):
    answers = []
    for where in sides:
        with Peer(where) as peer:
            answers.append(ask(peer))
    return answers


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_described(sides, version, strict):
    found = _both(sides, lambda peer: [_described(peer, parts, version, strict=strict) for parts in FILTERS])
    wrong = [one for one in zip(FILTERS, *found, strict=True) if one[1] != one[2]]
    assert wrong == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_refused(sides, name, version):
    kafkas, ours = _both(sides, lambda peer: _altered(peer, CHANGES[name], version, validate_only=True))
    assert ours == kafkas
    before, after = _both(sides, lambda peer: _described(peer, ()))
    assert before == after


def test_what_is_refused_here_alone(sides):
    """A host by its name, and a number that is none."""
    changes = [({"ip": "localhost"}, [_CONNECTIONS]), ({"user": "x"}, [("request_percentage", math.nan, False)])]
    kafkas, ours = _both(sides, lambda peer: _altered(peer, changes, validate_only=True))
    assert [code for _, code in kafkas] == [0, 0]
    assert [code for _, code in ours] == [42, 42]


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed(sides, name):
    """What is altered beside a mistake, too. All that is new is removed again."""
    changed = CHANGES[name]
    kafkas, ours = _both(sides, lambda peer: _altered(peer, changed))
    assert ours == kafkas
    _until_equal(sides)
    entities = [entity for entity, values in changed if values and _is_entity(entity)]
    keys = {key for _, values in changed for key, *_ in values}
    # Kafka takes keys that it does not know, if they are removed; and an entity once.
    removed = [(entity, [(key, 0.0, True) for key in keys]) for entity in entities if entity not in _KEPT]
    _both(sides, lambda peer: [_altered(peer, [one]) for one in removed])
    _until_equal(sides)


#: Entities that have quotas throughout.
_KEPT = [{kind: name or None for kind, name in entity.parts()} for entity in QUOTAS]


def _is_entity(parts):
    return bool(parts) and parts.keys() <= {"user", "client-id", "ip"} and "" not in parts.values()


def _until_equal(sides):
    """Waits until both have the same quotas: Kafka describes a change a moment later."""

    def are_equal():
        kafkas, ours = _both(sides, lambda peer: _described(peer, ()))
        return kafkas == ours

    wait_until(are_equal, lambda: _both(sides, lambda peer: _described(peer, ())))


# ---- how long a client has to wait


def _produce(peer, size):
    records = build([Record(None, b"x" * size, int(time.time() * 1000))], "none")
    return peer.ask(r.produce("waits", (0, records)), 9)


def test_pauses_are_kafkas(sides):
    """Of the first request that counts: later ones depend on the moment, as a window has ten to eleven seconds."""
    user = {"user": "ANONYMOUS"}
    rates = ("producer_byte_rate", "consumer_byte_rate")

    def ask(peer):
        made = peer.ask(r.create_topic("waits"), 5)
        assert made.topics[0].error_code == 0
        _altered(peer, [(user, [(one, 1000.0, False) for one in rates])])
        try:
            pause = wait_until(lambda: _produce(peer, 15_000).throttle_time_ms, "the producer has to wait", every=0)
            fetched = peer.ask(r.fetch("waits", 0, max_wait_ms=0, min_bytes=1), 12)
        finally:
            _altered(peer, [(user, [(one, 0.0, True) for one in rates])])
        return pause, fetched.throttle_time_ms, fetched.error_code, len(fetched.responses)

    kafkas, ours = _both(sides, ask)
    # How long a broker waits between two looks at its clock counts, too; test_quota_decisions.py has the ms.
    assert kafkas[0] > 2000
    assert ours[:2] == pytest.approx(kafkas[:2], rel=0.3)
    assert ours[2:] == kafkas[2:] == (0, 0)
