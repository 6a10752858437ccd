"""Topics, configs, records, log dirs and the cluster, as Kafka's administrators handle them."""

import pyarrow as pa
from server_requests import each_version, fetch, id_of, values

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.storage.catalog.topics import MAX_PARTITIONS
from pyspark_log.storage.folder_store import FolderStore as Store
from tests import requests as r
from tests.requests import NO_ID
from tests.server_tools import Peer, served

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def _create(peer, *topics, version=7, validate_only=False):
    return peer.ask(r.create_topics(*topics, validate_only=validate_only), version).topics


def _topic(name, partitions=3, *args, **how):
    return r.new_topic(name, partitions, *args, **how)


# ---- topics


@each_version(m.CreateTopicsRequest)
def test_each_version_creates(peer, store, name, version):
    [made] = _create(peer, _topic(name, retention_ms="1000"), version=version)
    assert (made.error_code, made.name) == (ErrorCode.NONE, name)
    described = store.describe_topic(name)
    assert (described.partitions, described.configs) == (3, {"retention.ms": "1000"})
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        found = {one.name: (one.value, one.config_source) for one in made.configs}
        assert (found["retention.ms"], found["segment.bytes"]) == (("1000", 1), ("1073741824", 5))
    if version >= 7:
        assert made.topic_id == id_of(store, name)


def test_what_is_left_to_the_server(peer, store, name):
    [made] = _create(peer, _topic(name, -1, -1, min_insync_replicas="1"))
    assert (made.error_code, made.num_partitions) == (ErrorCode.NONE, 1)
    [placed] = _create(peer, _topic(f"{name}-placed", -1, -1, [(1, [1]), (0, [1])]))
    assert (placed.error_code, placed.num_partitions) == (ErrorCode.NONE, 2)


def test_topics_that_cannot_be_made(peer, store, topic, name):
    cases = [
        (_topic(topic), ErrorCode.TOPIC_ALREADY_EXISTS),
        (_topic("no name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (_topic("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (_topic(f"{name}a", 0), ErrorCode.INVALID_PARTITIONS),
        (_topic(f"{name}b", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (_topic(f"{name}c", nonsense="1"), ErrorCode.INVALID_CONFIG),
        (_topic(f"{name}d", retention_ms="x"), ErrorCode.INVALID_CONFIG),
        (_topic(f"{name}e", min_insync_replicas="2"), ErrorCode.INVALID_CONFIG),
        (_topic(f"{name}i", local_retention_ms="1"), ErrorCode.INVALID_CONFIG),
        (_topic(f"{name}j", preallocate="1"), ErrorCode.INVALID_CONFIG),
        (_topic(f"{name}f", 2, 1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
        (_topic(f"{name}g", -1, -1, [(0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_topic(f"{name}h", -1, -1, [(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ]
    answers = _create(peer, *(one for one, _ in cases))
    assert [one.error_code for one in answers] == [code for _, code in cases]
    assert all(one.error_message for one in answers)
    assert [one.error_message for one in answers[7:9]] == [
        "min.insync.replicas = '2': must be 1: a partition has one replica here, in the files of the store",
        "local.retention.ms cannot be set: a partition has one replica here, in the files of the store",
    ]
    assert not [one for one in store.topics() if one.startswith(name)]
    twice = _create(peer, _topic(name), _topic(name))
    assert {one.error_code for one in twice} == {ErrorCode.INVALID_REQUEST}


def test_only_a_check(peer, store, topic, name):
    made, exists = _create(peer, _topic(name), _topic(topic), validate_only=True)
    assert (made.error_code, exists.error_code) == (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert name not in store.topics()


@each_version(m.CreatePartitionsRequest)
def test_each_version_adds_partitions(peer, store, topic, version):
    def grow(count, assignments=None, validate_only=False):
        [answer] = peer.ask(r.create_partitions(topic, count, assignments, validate_only), version).results
        return answer.error_code

    assert grow(2, validate_only=True) == ErrorCode.NONE
    assert store.describe_topic(topic).partitions == 1
    assert grow(2) == ErrorCode.NONE
    assert store.describe_topic(topic).partitions == 2
    assert grow(2) == ErrorCode.INVALID_PARTITIONS
    assert grow(4, [[1]]) == grow(4, [[1], [2]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(4, [[1], [1]]) == ErrorCode.NONE


@each_version(m.DeleteTopicsRequest)
def test_each_version_deletes(peer, store, topic, version):
    if version >= 6:
        state = m.DeleteTopicsRequest.DeleteTopicState
        request = m.DeleteTopicsRequest(topics=[state(topic, NO_ID), state("missing", NO_ID)])
    else:
        request = m.DeleteTopicsRequest(topic_names=[topic, "missing"])
    answers = peer.ask(request, version).responses
    assert [one.error_code for one in answers] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert topic not in store.topics()


def test_topics_are_deleted_by_id(peer, store, topic):
    state = m.DeleteTopicsRequest.DeleteTopicState
    request = m.DeleteTopicsRequest(topics=[state(None, id_of(store, topic)), state(None, b"\x01" * 16)])
    answers = peer.ask(request, 6).responses
    assert [one.error_code for one in answers] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    assert topic not in store.topics()


# ---- configs


def _described(peer, kind, name, *keys, version=4, **fields):
    [found] = peer.ask(r.describe_configs(kind, name, *keys, **fields), version).results
    return found.error_code, {one.name: one for one in found.configs}


@each_version(m.DescribeConfigsRequest)
def test_each_version_describes_configs(peer, store, topic, version):
    store.alter_configs(topic, {"retention.ms": "1000"})
    code, found = _described(peer, _TOPIC, topic, version=version)
    retention = found["retention.ms"]
    assert (code, retention.value, retention.config_source) == (ErrorCode.NONE, "1000", 1)
    assert [tuple(one) for one in retention.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert (found["cleanup.policy"].value, found["min.insync.replicas"].value) == ("delete", "1")
    if version >= 3:
        assert (retention.config_type, found["cleanup.policy"].config_type) == (5, 7)
    code, found = _described(peer, _TOPIC, topic, "segment.bytes", version=version)
    assert [*found] == ["segment.bytes"]


def test_a_config_that_kafka_does_not_have_is_shown_where_it_is_set(peer, store, topic):
    assert "source.position.header" not in _described(peer, _TOPIC, topic)[1]
    assert "source.position.header" not in _described(peer, _BROKER, "1")[1]
    set_it = r.alter_configs(_TOPIC, topic, ("source.position.header", 0, "source"))
    assert [one.error_code for one in peer.ask(set_it, 1).responses] == [ErrorCode.NONE]
    assert _described(peer, _TOPIC, topic)[1]["source.position.header"].value == "source"
    assert store.describe_topic(topic).configs == {"source.position.header": "source"}


def test_configs_of_the_server_and_of_what_is_not_there(peer, server):
    code, found = _described(peer, _BROKER, "1", include_documentation=True)
    assert (code, found["node.id"].value) == (ErrorCode.NONE, "1")
    assert found["advertised.listeners"].value == f"PLAINTEXT://{server.bootstrap}"
    assert (found["log.retention.ms"].value, found["log.retention.ms"].read_only) == ("604800000", True)
    assert all(one.documentation for one in found.values())
    assert _described(peer, _BROKER, "2")[0] == ErrorCode.INVALID_REQUEST
    assert _described(peer, _TOPIC, "missing")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _described(peer, 99, "x")[0] == ErrorCode.INVALID_REQUEST


@each_version(m.AlterConfigsRequest)
def test_each_version_replaces_configs(peer, store, topic, version):
    store.alter_configs(topic, {"retention.ms": "1000"})

    def alter(*configs, validate_only=False):
        request = r.replace_configs(_TOPIC, topic, *configs, validate_only=validate_only)
        [answer] = peer.ask(request, version).responses
        return answer.error_code

    assert alter(("segment.bytes", "nonsense")) == ErrorCode.INVALID_CONFIG
    assert alter(("segment.bytes", "5000"), validate_only=True) == ErrorCode.NONE
    assert store.describe_topic(topic).configs == {"retention.ms": "1000"}
    # A client that read all configs sends those back that mean nothing here, too.
    assert alter(("segment.bytes", "5000"), ("min.insync.replicas", "1")) == ErrorCode.NONE
    assert store.describe_topic(topic).configs == {"segment.bytes": "5000"}


@each_version(m.IncrementalAlterConfigsRequest)
def test_each_version_changes_configs(peer, store, topic, version):

    def alter(*changes, kind=_TOPIC, name=topic):
        [answer] = peer.ask(r.alter_configs(kind, name, *changes), version).responses
        return answer.error_code

    assert alter(("retention.ms", _SET, "1000"), ("segment.bytes", _SET, "5000")) == ErrorCode.NONE
    assert alter(("segment.bytes", _DELETE, None)) == ErrorCode.NONE
    assert alter(("cleanup.policy", _APPEND, "compact")) == ErrorCode.NONE
    assert store.describe_topic(topic).configs == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
    assert alter(("cleanup.policy", _SUBTRACT, "delete")) == ErrorCode.NONE
    assert store.describe_topic(topic).configs["cleanup.policy"] == "compact"
    assert alter(("retention.ms", _APPEND, "1")) == ErrorCode.INVALID_CONFIG
    assert alter(("retention.ms", _SET, None)) == ErrorCode.INVALID_REQUEST
    assert alter(("min.insync.replicas", _SET, "2")) == ErrorCode.INVALID_CONFIG
    # Kafka ignores that it is not there, too.
    assert alter(("nonsense", _DELETE, None), ("retention.ms", _SET, "2000")) == ErrorCode.NONE
    assert store.describe_topic(topic).configs["retention.ms"] == "2000"
    assert alter(("retention.ms", 9, "1")) == ErrorCode.INVALID_REQUEST
    assert alter(("retention.ms", _SET, "1"), ("retention.ms", _SET, "2")) == ErrorCode.INVALID_REQUEST
    assert alter(("log.retention.ms", _SET, "1"), kind=_BROKER, name="1") == ErrorCode.INVALID_REQUEST
    assert alter(("retention.ms", _SET, "1"), name="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- records, log dirs, the cluster


@each_version(m.DeleteRecordsRequest)
def test_each_version_deletes_records(peer, store, topic, version):
    store.append(topic, pa.record_batch({"value": [b"x"] * 10}))

    def delete(offset, name=topic):
        [[answer]] = [one.partitions for one in peer.ask(r.delete_records(name, offset), version).topics]
        return answer.error_code, answer.low_watermark

    assert delete(4) == (ErrorCode.NONE, 4)
    assert delete(11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (ErrorCode.NONE, 10)
    assert store.earliest_offset(topic, 0) == 10
    assert delete(0, "missing")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    store.alter_configs(topic, {"cleanup.policy": "compact"})
    assert delete(-1)[0] == ErrorCode.POLICY_VIOLATION


@each_version(m.DescribeLogDirsRequest)
def test_each_version_describes_log_dirs(peer, store, topic, version):
    store.append(topic, pa.record_batch({"value": [b"x"] * 10}))
    wanted = m.DescribeLogDirsRequest.DescribableLogDirTopic(topic, [0])
    for topics in ([wanted], None):
        [folder] = peer.ask(m.DescribeLogDirsRequest(topics), version).results
        assert (folder.error_code, folder.log_dir) == (ErrorCode.NONE, f"{store.path}/data")
        [found] = [one for one in folder.topics if one.name == topic]
        assert found.partitions[0].partition_size == store.partitions.size(topic, 0) > 0


def test_all_partitions_are_in_a_log_dir_but_those_of_the_engine(peer, store, topic):
    """Also those that have no record yet. The log of decisions is not served."""
    store.add_partitions(topic, 3)
    writer = store.publishes.writer(store.publishes.plan([topic]))
    writer.append(topic, pa.record_batch({"value": [b"x"], "partition": pa.array([1], pa.int32())}))
    store.publishes.publish("p", 0, writer.finish())
    [folder] = peer.ask(m.DescribeLogDirsRequest(None), 4).results
    [found] = [one for one in folder.topics if one.name == topic]
    sizes = {one.partition_index: one.partition_size for one in found.partitions}
    assert sizes == {0: 0, 1: store.partitions.size(topic, 1), 2: 0}
    assert "__pylog_publish" in store.topics(internal=True)
    assert {one.name for one in folder.topics} == {*store.topics(internal=True)} - {"__pylog_publish"}


@each_version(m.DescribeClusterRequest)
def test_each_version_describes_the_cluster(peer, server, store, version):
    found = peer.ask(m.DescribeClusterRequest(), version)
    assert (found.cluster_id, found.controller_id) == (store.cluster_id, 1)
    assert [(one.broker_id, one.host, one.port) for one in found.brokers] == [(1, server.host, server.port)]
    if version >= 1:
        other = peer.ask(m.DescribeClusterRequest(endpoint_type=2), version)
        assert other.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_nothing_is_reassigned(peer):
    answer = peer.ask(m.ListPartitionReassignmentsRequest(), 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.NONE, ())


@each_version(m.AlterPartitionReassignmentsRequest)
def test_each_version_reassigns_to_this_server_alone(peer, topic, version):
    def reassign(replicas, number=0):
        [answer] = peer.ask(r.reassign(topic, number, replicas), version).responses
        return answer.partitions[0].error_code

    assert reassign([1]) == ErrorCode.NONE
    assert reassign([1, 2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign([1], 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@each_version(m.ElectLeadersRequest)
def test_each_version_elects_no_leader(peer, topic, version):
    """As Kafka where a leader is the preferred one; without a list it names only those that have changed."""
    wanted = [m.ElectLeadersRequest.TopicPartitions(topic, [0, 7]), m.ElectLeadersRequest.TopicPartitions("no", [0])]
    first, other = peer.ask(m.ElectLeadersRequest(0, wanted, 60_000), version).replica_election_results
    assert [one.error_code for one in first.partition_result] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert other.partition_result[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    everywhere = peer.ask(m.ElectLeadersRequest(0, None, 60_000), version)
    assert (everywhere.error_code, everywhere.replica_election_results) == (ErrorCode.NONE, ())


def test_what_has_configs_is_listed(peer, topic):
    """Version 0 asks for metrics of clients alone, of which there are none."""
    assert peer.ask(m.ListConfigResourcesRequest(), 0).config_resources == ()
    found = peer.ask(m.ListConfigResourcesRequest(), 1).config_resources
    assert (topic, 2) in found
    assert {tuple(one) for one in found if one.resource_type != 2} == {("1", 4), ("1", 8)}
    assert peer.ask(m.ListConfigResourcesRequest([4, 32]), 1).config_resources == (("1", 4),)
    assert peer.ask(m.ListConfigResourcesRequest([3]), 1).error_code == ErrorCode.UNSUPPORTED_VERSION


@each_version(m.AlterReplicaLogDirsRequest)
def test_each_version_moves_between_log_dirs(tmp_path, version):
    with Store.create(tmp_path / "store", {"log.dirs": f"data,{tmp_path}/other"}) as store:
        store.create_topic("t", 1)
        store.append("t", pa.record_batch({"value": [b"x"] * 10}))
        [first] = [one.path for one in store.describe_log_dirs() if one.partitions]
        [target] = [one.path for one in store.describe_log_dirs() if not one.partitions]
        topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
        folder = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir
        with served(store.path, tmp_path) as server, Peer(server) as peer:

            def move(path, name="t"):
                request = m.AlterReplicaLogDirsRequest([folder(path, [topic(name, [0])])])
                return peer.ask(request, version).results[0].partitions[0].error_code

            assert move("/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
            assert move(target, "missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert move(target) == ErrorCode.NONE
            while [one.path for one in store.describe_log_dirs() if one.partitions] != [target]:
                pass
            assert list(values(fetch(peer, "t", 0))) == list(range(10))
        assert first != target


def test_more_partitions_than_are_possible(peer, store, topic):
    wanted = m.CreatePartitionsRequest.CreatePartitionsTopic(topic, MAX_PARTITIONS + 1, None)
    [answer] = peer.ask(m.CreatePartitionsRequest([wanted], 30_000, True), 3).results
    assert (answer.error_code, store.describe_topic(topic).partitions) == (ErrorCode.INVALID_PARTITIONS, 1)
