"""Which APIs there are, and what a client learns of topics and of the server."""

import struct

import pytest
from server_requests import id_of

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import api
from pyspark_log.server.handlers import APIS
from pyspark_log.types import TopicPartition
from tests import requests as r
from tests.server_tools import Peer, served

API_VERSIONS = 18
_PRODUCE = 0
_NOT_ASKED = -(1 << 31)


def _metadata(peer, *names, version=9, create=False, **fields):
    return peer.ask(r.metadata(*names, create=create, **fields), version)


# ---- ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_the_apis_are_listed(peer, version):
    response = peer.ask(m.ApiVersionsRequest("tests", "1.0"), version)
    listed = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert response.error_code == ErrorCode.NONE
    assert listed == {key: (one.versions.start, one.versions.stop - 1) for key, one in APIS.items()}


def test_the_lowest_versions_are_those_of_kafka():
    """Feature maps of old clients want them to the letter. Produce: as Kafka lists it, not as it can be."""
    lowest = {key: one.versions.start for key, one in APIS.items()}
    expected = {key: api(key)[0].versions.start for key in APIS}
    assert lowest == expected | {_PRODUCE: 0}


def test_an_unknown_version_is_answered_in_version_0(peer):
    """KIP-511: a newer client comes down to what is served."""
    frame = bytearray(peer.encoded(m.ApiVersionsRequest("tests", "1.0"), 4))
    frame[6:8] = (99).to_bytes(2, "big")
    peer.socket.sendall(frame)
    peer._versions[1] = API_VERSIONS, 0
    response = peer.response()
    assert (response.error_code, [one[:3] for one in response.api_keys]) == (35, [(18, 0, 4)])
    assert peer.ask(m.ApiVersionsRequest("tests", "1.0"), 4).error_code == ErrorCode.NONE


def test_software_without_a_name_is_refused(peer):
    assert peer.ask(m.ApiVersionsRequest("", "1.0"), 3).error_code == ErrorCode.INVALID_REQUEST
    assert peer.ask(m.ApiVersionsRequest("a b", "1.0"), 3).error_code == ErrorCode.INVALID_REQUEST


def test_what_is_not_served_closes_the_connection_and_is_logged(server):
    with Peer(server) as other:
        other.ask(m.ApiVersionsRequest("some-client", "1.0"), 4)
        other.socket.sendall(struct.pack(">ihhih", 10, 999, 2, 1, -1))
        assert other.is_closed_by_server()
    server.wait_for("the client (some-client 1.0) sends what is not served: an API with the key 999")


# ---- Metadata


@pytest.mark.parametrize("version", range(14))
def test_each_version(peer, server, store, topic, version):
    store.add_partitions(topic, 3)
    response = _metadata(peer, topic, version=version, create=True)
    [broker] = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, server.host, server.port)
    [found] = response.topics
    assert (found.error_code, found.name, found.is_internal) == (ErrorCode.NONE, topic, False)
    assert [part.partition_index for part in found.partitions] == [0, 1, 2]
    places = {(part.error_code, part.leader_id, *part.replica_nodes, *part.isr_nodes) for part in found.partitions}
    assert places == {(0, 1, 1, 1)}
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == store.cluster_id
    if version >= 7:
        assert {part.leader_epoch for part in found.partitions} == {0}
    if version >= 10:
        assert found.topic_id == id_of(store, topic)


def test_all_topics(peer, topic):
    every = _metadata(peer, topics=None)
    assert topic in {one.name for one in every.topics}
    assert "__pylog_publish" not in {one.name for one in every.topics}
    assert _metadata(peer, version=4).topics == ()
    # Version 0 has no null.
    assert topic in {one.name for one in _metadata(peer, version=0, create=True).topics}


def test_by_id(peer, store, topic):
    response = _metadata(peer, ids=[id_of(store, topic), b"\x01" * 16], version=12)
    found = [(one.error_code, one.name) for one in response.topics]
    assert found == [(ErrorCode.NONE, topic), (ErrorCode.UNKNOWN_TOPIC_ID, None)]


@pytest.mark.parametrize("version", [10, 11])
def test_versions_with_ids_in_vain(peer, version):
    """They have a field for ids, and their answers must have names: Kafka closes the connection, too."""
    peer.send(r.metadata(ids=[b"\x01" * 16]), version)
    assert peer.is_closed_by_server()


def test_a_missing_topic_is_made_if_the_client_wants_it(peer, store):
    assert _metadata(peer, "made").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _metadata(peer, "made", create=True).topics[0].error_code == ErrorCode.NONE
    assert "made" in store.topics()


@pytest.mark.parametrize("name", ["not a name", "", "x" * 250, "."])
def test_names_that_no_topic_can_have(peer, name):
    assert _metadata(peer, name, create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_internal_topics(peer, store, topic):
    store.groups["g"].commit({TopicPartition(topic, 0): 0})
    assert {one.name for one in _metadata(peer, topics=None).topics if one.is_internal} == {"__consumer_offsets"}


def test_operations_are_listed_if_asked(peer, topic):
    quiet = _metadata(peer, topic, version=8)
    assert {quiet.cluster_authorized_operations, quiet.topics[0].topic_authorized_operations} == {_NOT_ASKED}
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    listed = _metadata(peer, topic, version=8, **asked)
    assert listed.cluster_authorized_operations > 0
    assert listed.topics[0].topic_authorized_operations > 0


def test_what_is_advertised(tmp_path):
    options = ("--advertise", "kafka.example:1234", "--node-id", "7")
    with served(tmp_path / "store", tmp_path, *options) as server, Peer(server) as peer:
        [broker] = _metadata(peer).brokers
        assert (broker.node_id, broker.host, broker.port) == (7, "kafka.example", 1234)
