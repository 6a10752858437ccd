"""The same requests to a real Kafka and to `pylog serve`: the answers are compared field by field.

Ids, times, addresses and the wording of errors are left out. What differs on purpose is listed with its reason.
"""

import struct
import time

import pytest

from pyspark_log.kafka import messages as m
from pyspark_log.storage.record import layout
from tests import requests as r
from tests.server_tools import PATIENCE, Peer, served_anew
from tests.unit.record_tools import Record, build, patched, with_crc

pytestmark = pytest.mark.usefixtures("kafka")

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


def _numbered(*values, producer=77, epoch=0, sequence=0, **fields):
    return _batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields)


def _control():
    return with_crc(patched(_numbered(b"a"), layout.ATTRIBUTES_AT, 2, layout.CONTROL | layout.TRANSACTIONAL))


_TOO_OLD = struct.pack(">qi", 0, 30) + b"\x00" * 4 + b"\x01" + b"\x00" * 25

#: By name: the request, and its version. They are sent in this order.
STEPS = {
    # topics
    "create t": (r.create_topic("t", 2), 7),
    "create t again": (r.create_topic("t", 2), 7),
    "create c, compacted": (r.create_topic("c", cleanup_policy="compact"), 7),
    "create z": (r.create_topic("z"), 7),
    "create: invalid name": (r.create_topic("no name"), 7),
    "create: empty name": (r.create_topic(""), 7),
    "create: internal name": (r.create_topic("__consumer_offsets"), 7),
    "create: no partitions": (r.create_topic("n1", 0), 7),
    "create: negative partitions": (r.create_topic("n2", -2), 7),
    "create: three replicas": (r.create_topic("n3", 1, 3), 7),
    "create: no replicas": (r.create_topic("n4", 1, 0), 7),
    "create: unknown config": (r.create_topic("n5", nonsense="1"), 7),
    "create: bad value": (r.create_topic("n6", retention_ms="x"), 7),
    "create: unknown node": (r.create_topic("n7", -1, -1, [(0, [5])]), 7),
    "create: numbers with an assignment": (r.create_topic("n8", 1, 1, [(0, [1])]), 7),
    "create: a gap in the assignment": (r.create_topic("n9", -1, -1, [(1, [1])]), 7),
    "create: a replica twice": (r.create_topic("n10", -1, -1, [(0, [1, 1])]), 7),
    "create: only a check": (r.create_topic("v", 3, validate_only=True), 7),
    "create: defaults": (r.create_topic("defaults", -1, -1), 7),
    "grow: too few": (r.create_partitions("t", 2), 3),
    "grow: fewer": (r.create_partitions("t", 1), 3),
    "grow: unknown topic": (r.create_partitions("missing", 4), 3),
    "grow: wrong assignment": (r.create_partitions("t", 4, [[1]]), 3),
    "grow: unknown node": (r.create_partitions("t", 3, [[5]]), 3),
    "grow: only a check": (r.create_partitions("t", 3, validate_only=True), 3),
    # metadata
    **{f"metadata {version}": (r.metadata("t", create=True), version) for version in range(14)},
    "metadata: missing": (r.metadata("missing"), 12),
    "metadata: invalid name": (r.metadata("no name"), 12),
    "metadata: empty name": (r.metadata(""), 12),
    "metadata: unknown id": (r.metadata(ids=[b"\x01" * 16]), 12),
    "metadata: operations": (
        r.metadata("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True), 8,
    ),
    # produce
    **{f"produce {version}": (r.produce("t", (0, _batch(b"a", b"b"))), version) for version in range(3, 13)},
    "produce: acks 2": (r.produce("t", (0, _batch(b"a")), acks=2), 9),
    "produce: wrong checksum": (r.produce("t", (0, _batch(b"abc").replace(b"abc", b"abd"))), 9),
    "produce: too large": (r.produce("t", (0, _batch(b"x" * 2_000_000))), 9),
    "produce: unknown partition": (r.produce("t", (9, _batch(b"a"))), 9),
    "produce: unknown topic": (r.produce("missing", (0, _batch(b"a"))), 9),
    "produce: internal topic": (r.produce("__consumer_offsets", (0, _batch(b"a"))), 9),
    "produce: unknown id": (r.produce("", (0, _batch(b"a"))), 13),
    "produce: after the clock": (r.produce("t", (0, _batch(b"a", timestamp=_NOW + 10_000_000))), 9),
    "produce: two batches": (r.produce("t", (0, _batch(b"a") + _batch(b"b"))), 9),
    "produce: no records": (r.produce("t", (0, b"")), 9),
    "produce: null": (r.produce("t", (0, None)), 9),
    "produce: format 1": (r.produce("t", (0, _TOO_OLD)), 9),
    "produce: a control batch": (r.produce("t", (0, _control())), 9),
    "produce: without a key to a compacted topic": (r.produce("c", (0, _batch(b"a"))), 9),
    "produce: zstd in version 6": (r.produce("t", (0, _batch(b"a" * 100, codec="zstd"))), 6),
    "produce: two partitions": (r.produce("t", (0, _batch(b"a")), (1, _batch(b"b"))), 9),
    "produce: numbered": (r.produce("z", (0, _numbered(b"a", b"b"))), 9),
    "produce: numbered again": (r.produce("z", (0, _numbered(b"a", b"b"))), 9),
    "produce: a gap": (r.produce("z", (0, _numbered(b"c", sequence=5))), 9),
    "produce: a new epoch": (r.produce("z", (0, _numbered(b"c", epoch=1))), 9),
    "produce: an old epoch": (r.produce("z", (0, _numbered(b"d", sequence=2))), 9),
    "produce: a new epoch from the middle": (r.produce("z", (0, _numbered(b"d", epoch=2, sequence=3))), 9),
    # fetch
    **{f"fetch {version}": (r.fetch("t", 0), version) for version in range(4, 13)},
    "fetch: the end": (r.fetch("z", 3), 12),
    "fetch: beyond the end": (r.fetch("z", 99), 12),
    "fetch: a negative offset": (r.fetch("z", -1), 12),
    "fetch: unknown topic": (r.fetch("missing", 0), 12),
    "fetch: unknown partition": (r.fetch("z", 0, partition=7), 12),
    "fetch: unknown id": (r.fetch("", 0), 13),
    "fetch: the epoch": (r.fetch("z", 0, 0), 12),
    "fetch: a later epoch": (r.fetch("z", 0, 5), 12),
    "fetch: committed": (r.fetch("z", 0, isolation_level=1), 12),
    "fetch: an unknown session": (r.fetch("z", 0, session_id=99, session_epoch=3), 12),
    # offsets
    **{f"list offsets {version}": (r.list_offsets("z", -1), version) for version in range(1, 11)},
    "list offsets: the first": (r.list_offsets("z", -2), 7),
    "list offsets: by time": (r.list_offsets("z", 0), 7),
    "list offsets: after all": (r.list_offsets("z", _NOW + 1_000_000), 7),
    "list offsets: the largest time": (r.list_offsets("z", -3), 7),
    "list offsets: the largest time in version 6": (r.list_offsets("z", -3), 6),
    "list offsets: local": (r.list_offsets("z", -4), 8),
    "list offsets: unknown topic": (r.list_offsets("missing", -1), 7),
    "list offsets: unknown partition": (r.list_offsets("z", -1, partition=4), 7),
    "list offsets: twice": (r.list_offsets("z", -1, -2), 7),
    "list offsets: an empty partition": (r.list_offsets("c", -1), 7),
    "list offsets: the largest time of nothing": (r.list_offsets("c", -3), 7),
    "list offsets: committed": (r.list_offsets("z", -1, isolation_level=1), 7),
    "epoch: the current one": (r.end_of_epoch("z", 0), 4),
    "epoch: a later one": (r.end_of_epoch("z", 3), 4),
    "epoch: none": (r.end_of_epoch("z", -1), 4),
    "epoch: another current one": (r.end_of_epoch("z", 0, 4), 4),
    "epoch: unknown topic": (r.end_of_epoch("missing", 0), 4),
    # producers and groups
    **{f"producer id {version}": (m.InitProducerIdRequest(None, 1000), version) for version in range(6)},
    **{f"find coordinator {version}": (m.FindCoordinatorRequest("g"), version) for version in range(4)},
    "find coordinators": (m.FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4),
    "find coordinator: unknown kind": (m.FindCoordinatorRequest("g", 7), 3),
    **{f"commit {version}": (r.commit("g", "t", 5, metadata="note"), version) for version in range(2, 10)},
    "commit: unknown topic": (r.commit("g", "missing", 5), 8),
    "commit: unknown partition": (r.commit("g", "t", 5, partition=9), 8),
    "commit: long metadata": (r.commit("g", "t", 5, metadata="x" * 5000), 8),
    "commit: null metadata": (r.commit("g2", "t", 5, metadata=None), 8),
    "commit: no group": (r.commit("", "t", 5), 8),
    "commit: a member of nothing": (r.commit("g", "t", 5, generation=3, member="m"), 8),
    "commit: an unknown group's member": (r.commit("nothing", "t", 5, generation=3, member="m"), 8),
    "commit: an unknown group's member, version 9": (r.commit("nothing", "t", 5, generation=3, member="m"), 9),
    **{f"committed {version}": (r.committed("g", "t", 0, 1), version) for version in range(1, 8)},
    **{f"committed {version}": (r.committed_of("g", "t", 0, 1), version) for version in (8, 9)},
    "committed: all": (r.committed("g", None), 7),
    "committed: all of many": (r.committed_of("g", None), 9),
    "committed: unknown group": (r.committed("nothing", "t", 0), 7),
    "committed: unknown topic": (r.committed("g", "missing", 0), 7),
    "committed: no group": (r.committed("", "t", 0), 7),
    **{f"describe {version}": (m.DescribeGroupsRequest(["g", "nothing"]), version) for version in range(7)},
    "describe: operations": (m.DescribeGroupsRequest(["g"], True), 5),
    "delete offsets": (r.delete_offsets("g2", "t"), 0),
    "delete offsets: unknown group": (r.delete_offsets("nothing", "t"), 0),
    "delete offsets: nothing left": (r.delete_offsets("g2", "t"), 0),
    "delete offsets: nothing committed": (r.delete_offsets("g", "c"), 0),
    "delete offsets: unknown topic": (r.delete_offsets("g", "missing"), 0),
    "delete groups": (m.DeleteGroupsRequest(["g", "nothing", ""]), 2),
    "committed after that": (r.committed("g", "t", 0), 7),
    # administration
    **{
        f"configs {version}": (
            r.describe_configs(2, "c", "cleanup.policy", "segment.bytes", "max.message.bytes"), version,
        )
        for version in range(1, 5)
    },
    "configs: unknown topic": (r.describe_configs(2, "missing"), 4),
    "configs: invalid name": (r.describe_configs(2, "no name"), 4),
    "configs: unknown key": (r.describe_configs(2, "c", "nonsense"), 4),
    "configs: of no node": (r.describe_configs(4, "5"), 4),
    "configs: no number": (r.describe_configs(4, "x"), 4),
    "configs: unknown kind": (r.describe_configs(99, "c"), 4),
    "alter": (r.alter_configs(2, "z", ("retention.ms", 0, "5000000000"), ("segment.bytes", 0, "2000000")), 1),
    "alter: append": (r.alter_configs(2, "z", ("cleanup.policy", 2, "compact")), 1),
    "alter: append to a number": (r.alter_configs(2, "z", ("retention.ms", 2, "1")), 1),
    "alter: delete": (r.alter_configs(2, "z", ("segment.bytes", 1, None)), 1),
    "alter: delete what is not set": (r.alter_configs(2, "z", ("segment.ms", 1, None)), 1),
    "alter: unknown": (r.alter_configs(2, "z", ("nonsense", 0, "1")), 1),
    "alter: bad value": (r.alter_configs(2, "z", ("retention.ms", 0, "x")), 1),
    "alter: null": (r.alter_configs(2, "z", ("retention.ms", 0, None)), 1),
    "alter: unknown change": (r.alter_configs(2, "z", ("retention.ms", 9, "1")), 1),
    "alter: twice": (r.alter_configs(2, "z", ("retention.ms", 0, "1"), ("retention.ms", 0, "2")), 1),
    "alter: unknown topic": (r.alter_configs(2, "missing", ("retention.ms", 0, "1")), 1),
    "alter: unknown kind": (r.alter_configs(99, "z", ("retention.ms", 0, "1")), 1),
    "configs after that": (r.describe_configs(2, "z", "cleanup.policy", "retention.ms", "segment.bytes"), 4),
    "replace": (r.replace_configs(2, "z", ("retention.ms", "6000000000")), 2),
    "replace: unknown": (r.replace_configs(2, "z", ("nonsense", "1")), 2),
    "configs after all": (r.describe_configs(2, "z", "cleanup.policy", "retention.ms", "segment.bytes"), 4),
    "delete records": (r.delete_records("t", 3), 2),
    "delete records: beyond the end": (r.delete_records("t", 999), 2),
    "delete records: negative": (r.delete_records("t", -5), 2),
    "delete records: all": (r.delete_records("t", -1), 2),
    "delete records: unknown topic": (r.delete_records("missing", 3), 2),
    "delete records: compacted": (r.delete_records("c", 0), 2),
    "delete records: internal": (r.delete_records("__consumer_offsets", 0), 2),
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
