"""The same requests to a real Kafka and to `pylog serve`: the answers are compared field by field.

Ids, times, addresses and the wording of errors are left out. What differs on purpose is listed with its reason.
"""

import struct
import time

import pytest

from pyspark_log.kafka import messages as m
from pyspark_log.storage.record import layout
from tests.server_tools import PATIENCE, Peer, served_anew
from tests.unit.record_tools import Record, build, patched, with_crc

pytestmark = pytest.mark.usefixtures("kafka")

NO_ID = bytes(16)
_NOW = int(time.time() * 1000)
# What is another one on each side.
_MASKED = frozenset({
    "throttle_time_ms", "cluster_id", "topic_id", "host", "port", "producer_id", "error_message", "log_append_time_ms",
    "batch_index_error_message", "node_endpoints",
})  # fmt: skip

#: Steps whose answers differ, and why.
DIFFERENT = {
    **dict.fromkeys(
        ("create t", "create c, compacted", "create z", "create: only a check", "create: defaults"),
        "Kafka lists its configs of replicas and of other storages, too",
    ),
    "create: internal name": "here clients never make it; in Kafka it is there by then",
    "produce: null": "Kafka gives no answer at all",
    "delete offsets: nothing left": "a group is gone with its last committed offset; Kafka forgets it later",
    **dict.fromkeys(
        ("configs after that", "configs after all"), "the default of retention.ms has a name here, log.retention.ms"
    ),
    "alter: unknown change": "Kafka calls it an unknown error of the server",
}


def _plain(value):
    """A response without what is masked: structs as dicts."""
    if hasattr(value, "_fields"):
        return {name: _plain(one) for name, one in value._asdict().items() if name not in _MASKED}
    if isinstance(value, (tuple, list)):
        found = [_plain(one) for one in value]
        # Kafka answers about several topics, groups or configs in an order of its own.
        names = found[0].keys() & {"name", "group_id", "index"} if found and isinstance(found[0], dict) else ()
        return sorted(found, key=lambda one: [(one[name] is not None, one[name]) for name in sorted(names)])
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return value


# ---- the requests


def _batch(*values, key=None, codec="none", timestamp=_NOW, **fields):
    return build([Record(key, value, timestamp) for value in values], codec, **fields)


def _produce(topic, *parts, acks=-1, transactional_id=None):
    partitions = [m.ProduceRequest.PartitionProduceData(number, data) for number, data in parts]
    return m.ProduceRequest(
        transactional_id, acks, 10_000, [m.ProduceRequest.TopicProduceData(topic, NO_ID, partitions)]
    )


def _fetch(topic, offset, epoch=-1, partition=0, **fields):
    part = m.FetchRequest.FetchPartition(partition, epoch, offset, -1, -1, 1 << 20)
    request = m.FetchRequest(
        max_wait_ms=10, min_bytes=0, max_bytes=1 << 20, topics=[m.FetchRequest.FetchTopic(topic, NO_ID, [part])]
    )
    return request._replace(**fields)


def _offsets(topic, *times, partition=0, **fields):
    parts = [m.ListOffsetsRequest.ListOffsetsPartition(partition, -1, time) for time in times]
    return m.ListOffsetsRequest(-1, 0, [m.ListOffsetsRequest.ListOffsetsTopic(topic, parts)])._replace(**fields)


def _epoch(topic, epoch, current=-1, partition=0):
    part = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition, current, epoch)
    return m.OffsetForLeaderEpochRequest(topics=[m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic, [part])])


def _metadata(*names, create=False, **fields):
    wanted = [m.MetadataRequest.MetadataRequestTopic(NO_ID, name) for name in names]
    return m.MetadataRequest(wanted, create)._replace(**fields)


def _create(name, partitions=1, replicas=1, assignments=(), validate_only=False, **configs):
    entries = [m.CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), one) for key, one in configs.items()]
    placed = [m.CreateTopicsRequest.CreatableReplicaAssignment(*one) for one in assignments]
    topic = m.CreateTopicsRequest.CreatableTopic(name, partitions, replicas, placed, entries)
    return m.CreateTopicsRequest([topic], 10_000, validate_only)


def _grow(name, total, assignments=None, validate_only=False):
    if assignments is not None:
        assignments = [m.CreatePartitionsRequest.CreatePartitionsAssignment(one) for one in assignments]
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name, total, assignments)
    return m.CreatePartitionsRequest([topic], 10_000, validate_only)


def _commit(group, topic, offset, partition=0, metadata="", generation=-1, member=""):
    part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition, offset, -1, metadata)
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(topic, NO_ID, [part])]
    return m.OffsetCommitRequest(group, generation, member, topics=topics)


def _committed(group, topic, *partitions):
    return m.OffsetFetchRequest(group, [m.OffsetFetchRequest.OffsetFetchRequestTopic(topic, partitions)])


def _committed_of(group, topic, *partitions):
    topics = [m.OffsetFetchRequest.OffsetFetchRequestTopics(topic, NO_ID, partitions)]
    return m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=topics)])


def _delete_records(topic, offset, partition=0):
    part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition, offset)
    return m.DeleteRecordsRequest([m.DeleteRecordsRequest.DeleteRecordsTopic(topic, [part])], 10_000)


def _configs(kind, name, *keys):
    wanted = m.DescribeConfigsRequest.DescribeConfigsResource(kind, name, keys or None)
    return m.DescribeConfigsRequest([wanted], True)


def _alter(name, *changes, kind=2):
    configs = [m.IncrementalAlterConfigsRequest.AlterableConfig(*one) for one in changes]
    return m.IncrementalAlterConfigsRequest(
        [m.IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)]
    )


def _replace(name, *configs, kind=2):
    entries = [m.AlterConfigsRequest.AlterableConfig(*one) for one in configs]
    return m.AlterConfigsRequest([m.AlterConfigsRequest.AlterConfigsResource(kind, name, entries)])


def _offset_delete(group, topic):
    part = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(0)
    return m.OffsetDeleteRequest(group, [m.OffsetDeleteRequest.OffsetDeleteRequestTopic(topic, [part])])


def _numbered(*values, producer=77, epoch=0, sequence=0, **fields):
    return _batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields)


def _control():
    return with_crc(patched(_numbered(b"a"), layout.ATTRIBUTES_AT, 2, layout.CONTROL | layout.TRANSACTIONAL))


_TOO_OLD = struct.pack(">qi", 0, 30) + b"\x00" * 4 + b"\x01" + b"\x00" * 25

#: By name: the request, and its version. They are sent in this order.
STEPS = {
    # topics
    "create t": (_create("t", 2), 7),
    "create t again": (_create("t", 2), 7),
    "create c, compacted": (_create("c", cleanup_policy="compact"), 7),
    "create z": (_create("z"), 7),
    "create: invalid name": (_create("no name"), 7),
    "create: empty name": (_create(""), 7),
    "create: internal name": (_create("__consumer_offsets"), 7),
    "create: no partitions": (_create("n1", 0), 7),
    "create: negative partitions": (_create("n2", -2), 7),
    "create: three replicas": (_create("n3", 1, 3), 7),
    "create: no replicas": (_create("n4", 1, 0), 7),
    "create: unknown config": (_create("n5", nonsense="1"), 7),
    "create: bad value": (_create("n6", retention_ms="x"), 7),
    "create: unknown node": (_create("n7", -1, -1, [(0, [5])]), 7),
    "create: numbers with an assignment": (_create("n8", 1, 1, [(0, [1])]), 7),
    "create: a gap in the assignment": (_create("n9", -1, -1, [(1, [1])]), 7),
    "create: a replica twice": (_create("n10", -1, -1, [(0, [1, 1])]), 7),
    "create: only a check": (_create("v", 3, validate_only=True), 7),
    "create: defaults": (_create("defaults", -1, -1), 7),
    "grow: too few": (_grow("t", 2), 3),
    "grow: fewer": (_grow("t", 1), 3),
    "grow: unknown topic": (_grow("missing", 4), 3),
    "grow: wrong assignment": (_grow("t", 4, [[1]]), 3),
    "grow: unknown node": (_grow("t", 3, [[5]]), 3),
    "grow: only a check": (_grow("t", 3, validate_only=True), 3),
    # metadata
    **{f"metadata {version}": (_metadata("t", create=True), version) for version in range(14)},
    "metadata: missing": (_metadata("missing"), 12),
    "metadata: invalid name": (_metadata("no name"), 12),
    "metadata: empty name": (_metadata(""), 12),
    "metadata: unknown id": (
        m.MetadataRequest([m.MetadataRequest.MetadataRequestTopic(b"\x01" * 16, None)], False), 12,
    ),
    "metadata: operations": (
        _metadata("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True), 8,
    ),
    # produce
    **{f"produce {version}": (_produce("t", (0, _batch(b"a", b"b"))), version) for version in range(3, 13)},
    "produce: acks 2": (_produce("t", (0, _batch(b"a")), acks=2), 9),
    "produce: wrong checksum": (_produce("t", (0, _batch(b"abc").replace(b"abc", b"abd"))), 9),
    "produce: too large": (_produce("t", (0, _batch(b"x" * 2_000_000))), 9),
    "produce: unknown partition": (_produce("t", (9, _batch(b"a"))), 9),
    "produce: unknown topic": (_produce("missing", (0, _batch(b"a"))), 9),
    "produce: internal topic": (_produce("__consumer_offsets", (0, _batch(b"a"))), 9),
    "produce: unknown id": (_produce("", (0, _batch(b"a"))), 13),
    "produce: after the clock": (_produce("t", (0, _batch(b"a", timestamp=_NOW + 10_000_000))), 9),
    "produce: two batches": (_produce("t", (0, _batch(b"a") + _batch(b"b"))), 9),
    "produce: no records": (_produce("t", (0, b"")), 9),
    "produce: null": (_produce("t", (0, None)), 9),
    "produce: format 1": (_produce("t", (0, _TOO_OLD)), 9),
    "produce: a control batch": (_produce("t", (0, _control())), 9),
    "produce: without a key to a compacted topic": (_produce("c", (0, _batch(b"a"))), 9),
    "produce: zstd in version 6": (_produce("t", (0, _batch(b"a" * 100, codec="zstd"))), 6),
    "produce: two partitions": (_produce("t", (0, _batch(b"a")), (1, _batch(b"b"))), 9),
    "produce: numbered": (_produce("z", (0, _numbered(b"a", b"b"))), 9),
    "produce: numbered again": (_produce("z", (0, _numbered(b"a", b"b"))), 9),
    "produce: a gap": (_produce("z", (0, _numbered(b"c", sequence=5))), 9),
    "produce: a new epoch": (_produce("z", (0, _numbered(b"c", epoch=1))), 9),
    "produce: an old epoch": (_produce("z", (0, _numbered(b"d", sequence=2))), 9),
    "produce: a new epoch from the middle": (_produce("z", (0, _numbered(b"d", epoch=2, sequence=3))), 9),
    # fetch
    **{f"fetch {version}": (_fetch("t", 0), version) for version in range(4, 13)},
    "fetch: the end": (_fetch("z", 3), 12),
    "fetch: beyond the end": (_fetch("z", 99), 12),
    "fetch: a negative offset": (_fetch("z", -1), 12),
    "fetch: unknown topic": (_fetch("missing", 0), 12),
    "fetch: unknown partition": (_fetch("z", 0, partition=7), 12),
    "fetch: unknown id": (_fetch("", 0), 13),
    "fetch: the epoch": (_fetch("z", 0, 0), 12),
    "fetch: a later epoch": (_fetch("z", 0, 5), 12),
    "fetch: committed": (_fetch("z", 0, isolation_level=1), 12),
    "fetch: an unknown session": (_fetch("z", 0, session_id=99, session_epoch=3), 12),
    # offsets
    **{f"list offsets {version}": (_offsets("z", -1), version) for version in range(1, 11)},
    "list offsets: the first": (_offsets("z", -2), 7),
    "list offsets: by time": (_offsets("z", 0), 7),
    "list offsets: after all": (_offsets("z", _NOW + 1_000_000), 7),
    "list offsets: the largest time": (_offsets("z", -3), 7),
    "list offsets: the largest time in version 6": (_offsets("z", -3), 6),
    "list offsets: local": (_offsets("z", -4), 8),
    "list offsets: unknown topic": (_offsets("missing", -1), 7),
    "list offsets: unknown partition": (_offsets("z", -1, partition=4), 7),
    "list offsets: twice": (_offsets("z", -1, -2), 7),
    "list offsets: an empty partition": (_offsets("c", -1), 7),
    "list offsets: the largest time of nothing": (_offsets("c", -3), 7),
    "list offsets: committed": (_offsets("z", -1, isolation_level=1), 7),
    "epoch: the current one": (_epoch("z", 0), 4),
    "epoch: a later one": (_epoch("z", 3), 4),
    "epoch: none": (_epoch("z", -1), 4),
    "epoch: another current one": (_epoch("z", 0, 4), 4),
    "epoch: unknown topic": (_epoch("missing", 0), 4),
    # producers and groups
    **{f"producer id {version}": (m.InitProducerIdRequest(None, 1000), version) for version in range(6)},
    **{f"find coordinator {version}": (m.FindCoordinatorRequest("g"), version) for version in range(4)},
    "find coordinators": (m.FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4),
    "find coordinator: unknown kind": (m.FindCoordinatorRequest("g", 7), 3),
    **{f"commit {version}": (_commit("g", "t", 5, metadata="note"), version) for version in range(2, 10)},
    "commit: unknown topic": (_commit("g", "missing", 5), 8),
    "commit: unknown partition": (_commit("g", "t", 5, partition=9), 8),
    "commit: long metadata": (_commit("g", "t", 5, metadata="x" * 5000), 8),
    "commit: null metadata": (_commit("g2", "t", 5, metadata=None), 8),
    "commit: no group": (_commit("", "t", 5), 8),
    "commit: a member of nothing": (_commit("g", "t", 5, generation=3, member="m"), 8),
    "commit: an unknown group's member": (_commit("nothing", "t", 5, generation=3, member="m"), 8),
    "commit: an unknown group's member, version 9": (_commit("nothing", "t", 5, generation=3, member="m"), 9),
    **{f"committed {version}": (_committed("g", "t", 0, 1), version) for version in range(1, 8)},
    **{f"committed {version}": (_committed_of("g", "t", 0, 1), version) for version in (8, 9)},
    "committed: all": (m.OffsetFetchRequest("g", None), 7),
    "committed: all of many": (
        m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup("g", topics=None)]), 9,
    ),
    "committed: unknown group": (_committed("nothing", "t", 0), 7),
    "committed: unknown topic": (_committed("g", "missing", 0), 7),
    "committed: no group": (_committed("", "t", 0), 7),
    **{f"describe {version}": (m.DescribeGroupsRequest(["g", "nothing"]), version) for version in range(7)},
    "describe: operations": (m.DescribeGroupsRequest(["g"], True), 5),
    "delete offsets": (_offset_delete("g2", "t"), 0),
    "delete offsets: unknown group": (_offset_delete("nothing", "t"), 0),
    "delete offsets: nothing left": (_offset_delete("g2", "t"), 0),
    "delete offsets: nothing committed": (_offset_delete("g", "c"), 0),
    "delete offsets: unknown topic": (_offset_delete("g", "missing"), 0),
    "delete groups": (m.DeleteGroupsRequest(["g", "nothing", ""]), 2),
    "committed after that": (_committed("g", "t", 0), 7),
    # administration
    **{
        f"configs {version}": (_configs(2, "c", "cleanup.policy", "segment.bytes", "max.message.bytes"), version)
        for version in range(1, 5)
    },
    "configs: unknown topic": (_configs(2, "missing"), 4),
    "configs: invalid name": (_configs(2, "no name"), 4),
    "configs: unknown key": (_configs(2, "c", "nonsense"), 4),
    "configs: of no node": (_configs(4, "5"), 4),
    "configs: no number": (_configs(4, "x"), 4),
    "configs: unknown kind": (_configs(99, "c"), 4),
    "alter": (_alter("z", ("retention.ms", 0, "5000000000"), ("segment.bytes", 0, "2000000")), 1),
    "alter: append": (_alter("z", ("cleanup.policy", 2, "compact")), 1),
    "alter: append to a number": (_alter("z", ("retention.ms", 2, "1")), 1),
    "alter: delete": (_alter("z", ("segment.bytes", 1, None)), 1),
    "alter: delete what is not set": (_alter("z", ("segment.ms", 1, None)), 1),
    "alter: unknown": (_alter("z", ("nonsense", 0, "1")), 1),
    "alter: bad value": (_alter("z", ("retention.ms", 0, "x")), 1),
    "alter: null": (_alter("z", ("retention.ms", 0, None)), 1),
    "alter: unknown change": (_alter("z", ("retention.ms", 9, "1")), 1),
    "alter: twice": (_alter("z", ("retention.ms", 0, "1"), ("retention.ms", 0, "2")), 1),
    "alter: unknown topic": (_alter("missing", ("retention.ms", 0, "1")), 1),
    "alter: unknown kind": (_alter("z", ("retention.ms", 0, "1"), kind=99), 1),
    "configs after that": (_configs(2, "z", "cleanup.policy", "retention.ms", "segment.bytes"), 4),
    "replace": (_replace("z", ("retention.ms", "6000000000")), 2),
    "replace: unknown": (_replace("z", ("nonsense", "1")), 2),
    "configs after all": (_configs(2, "z", "cleanup.policy", "retention.ms", "segment.bytes"), 4),
    "delete records": (_delete_records("t", 3), 2),
    "delete records: beyond the end": (_delete_records("t", 999), 2),
    "delete records: negative": (_delete_records("t", -5), 2),
    "delete records: all": (_delete_records("t", -1), 2),
    "delete records: unknown topic": (_delete_records("missing", 3), 2),
    "delete records: compacted": (_delete_records("c", 0), 2),
    "delete records: internal": (_delete_records("__consumer_offsets", 0), 2),
    "reassignments": (m.ListPartitionReassignmentsRequest(10_000), 0),
    "cluster": (m.DescribeClusterRequest(), 1),
    "cluster: controllers": (m.DescribeClusterRequest(endpoint_type=2), 1),
    "cluster: operations": (m.DescribeClusterRequest(True), 1),
    "delete": (m.DeleteTopicsRequest(topic_names=["c", "missing"], timeout_ms=10_000), 5),
    "delete: by id": (
        m.DeleteTopicsRequest([m.DeleteTopicsRequest.DeleteTopicState(None, b"\x01" * 16)], timeout_ms=10_000), 6,
    ),
}  # fmt: skip


def _asked(where):
    answers = {}
    for name, (request, version) in STEPS.items():
        # A step that closes the connection is an answer, too.
        with Peer(where) as peer:
            # Kafka does not answer one of them.
            peer.socket.settimeout(10 if name == "produce: null" else PATIENCE)
            try:
                answers[name] = _plain(peer.ask(request, version))
            except (ConnectionError, TimeoutError) as error:
                answers[name] = type(error).__name__
    return answers


@pytest.fixture(scope="module")
def answers(broker, tmp_path_factory):
    """The answers of both sides to all steps."""
    broker.prepare()
    # A name may be left by other tests.
    with Peer(broker) as peer:
        names = ["t", "c", "z", "defaults"]
        peer.ask(m.DeleteTopicsRequest(topic_names=names, timeout_ms=10_000), 5)
        peer.ask(m.DeleteGroupsRequest(["g", "g2"]), 2)
    with served_anew(tmp_path_factory.mktemp("beside")) as server:
        return _asked(broker), _asked(server)


@pytest.mark.parametrize("name", STEPS)
def test_the_answer_is_kafkas(answers, name):
    kafkas, ours = (side[name] for side in answers)
    if name in DIFFERENT:
        assert ours != kafkas, f"it differs no more: {DIFFERENT[name]}"
    else:
        assert ours == kafkas
