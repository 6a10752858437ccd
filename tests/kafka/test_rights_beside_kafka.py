"""What clients may do: the same ACLs and requests at a real Kafka and at `pylog serve`, the answers side by side."""

import time
from types import SimpleNamespace

import pytest
from kafka_tools import Broker

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, Resource
from tests.ports import HOST, free_ports
from tests.security_tools import PASSWORDS, add_users
from tests.server_tools import PATIENCE, Peer, served
from tests.unit.record_tools import Record, build

#: anna has rights by name, bert by a prefix, carl none, and dora is a super user.
NO_ID = bytes(16)
USERS = ("anna", "bert", "carl", "dora")
_NOW = int(time.time() * 1000)


def _batch(**fields):
    return build([Record(None, b"v", _NOW)], "none", **fields)


def _requests(topic, group, tid):
    """By API: requests about a topic, a group and a transactional id."""
    produce = m.ProduceRequest.TopicProduceData(topic, NO_ID, [m.ProduceRequest.PartitionProduceData(0, _batch())])
    transactional = _batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    part = m.ProduceRequest.PartitionProduceData(0, transactional)
    in_transaction = m.ProduceRequest.TopicProduceData(topic, NO_ID, [part])
    fetch = m.FetchRequest.FetchTopic(topic, NO_ID, [m.FetchRequest.FetchPartition(0, -1, 0, -1, -1, 1000)])
    offsets = m.ListOffsetsRequest.ListOffsetsTopic(topic, [m.ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)])
    epoch = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, -1, 0)
    commit = m.OffsetCommitRequest.OffsetCommitRequestPartition(0, 1, -1, "")
    txn_commit = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 1, -1, "")
    grown = m.CreatePartitionsRequest.CreatePartitionsTopic(topic, 1, None)
    config = m.DescribeConfigsRequest.DescribeConfigsResource
    change = m.IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "1000000")
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\0\0\0\0")
    deleted = m.DeleteRecordsRequest.DeleteRecordsPartition(0, 0)
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
        5, 0, False, [m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(topic, [0])], 0
    )
    return {
        "Produce": (m.ProduceRequest(None, -1, 1000, [produce]), 9),
        "Produce, in a transaction": (m.ProduceRequest(tid, -1, 1000, [in_transaction]), 9),
        "Fetch": (m.FetchRequest(max_wait_ms=1, min_bytes=0, max_bytes=1000, topics=[fetch]), 12),
        "ListOffsets": (m.ListOffsetsRequest(-1, 0, [offsets]), 7),
        "Metadata": (m.MetadataRequest([m.MetadataRequest.MetadataRequestTopic(NO_ID, topic)], False), 12),
        "Metadata, missing": (
            m.MetadataRequest([m.MetadataRequest.MetadataRequestTopic(NO_ID, f"{topic}-missing")], True), 12,
        ),
        "OffsetForLeaderEpoch": (
            m.OffsetForLeaderEpochRequest(
                topics=[m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic, [epoch])]
            ), 4,
        ),
        "OffsetCommit": (
            m.OffsetCommitRequest(
                group, -1, "", topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(topic, NO_ID, [commit])]
            ), 8,
        ),
        "OffsetFetch": (
            m.OffsetFetchRequest(group, [m.OffsetFetchRequest.OffsetFetchRequestTopic(topic, [0])]), 7,
        ),
        "OffsetFetch, all": (
            m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=None)]), 8,
        ),
        "FindCoordinator, group": (m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4),
        "FindCoordinator, transaction": (m.FindCoordinatorRequest(key_type=1, coordinator_keys=[tid]), 4),
        "JoinGroup": (m.JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", [protocol]), 7),
        "SyncGroup": (m.SyncGroupRequest(group, 1, "stranger"), 5),
        "Heartbeat": (m.HeartbeatRequest(group, 1, "stranger"), 4),
        "LeaveGroup": (m.LeaveGroupRequest(group, "stranger"), 2),
        "DescribeGroups": (m.DescribeGroupsRequest([group]), 5),
        "DeleteGroups": (m.DeleteGroupsRequest([f"{group}-missing"]), 2),
        "CreateTopics": (
            m.CreateTopicsRequest([m.CreateTopicsRequest.CreatableTopic(f"{topic}-new", 1, 1)], 1000, True), 5,
        ),
        "DeleteTopics": (m.DeleteTopicsRequest(topic_names=[f"{topic}-missing"], timeout_ms=1000), 5),
        "CreatePartitions": (m.CreatePartitionsRequest([grown], 1000, True), 3),
        "DeleteRecords": (
            m.DeleteRecordsRequest([m.DeleteRecordsRequest.DeleteRecordsTopic(topic, [deleted])], 1000), 2,
        ),
        "DescribeConfigs": (m.DescribeConfigsRequest([config(2, topic, ["retention.ms"])], False), 4),
        "DescribeConfigs, broker": (m.DescribeConfigsRequest([config(4, "1", ["nothing"])], False), 4),
        "IncrementalAlterConfigs": (
            m.IncrementalAlterConfigsRequest(
                [m.IncrementalAlterConfigsRequest.AlterConfigsResource(2, topic, [change])], True
            ), 1,
        ),
        "InitProducerId": (m.InitProducerIdRequest(None, 0), 4),
        "InitProducerId, transactional": (m.InitProducerIdRequest(tid, 60_000), 4),
        "AddPartitionsToTxn": (
            m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=tid, v3_and_below_producer_id=5, v3_and_below_producer_epoch=0,
                v3_and_below_topics=[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, [0])],
            ), 3,
        ),
        "AddOffsetsToTxn": (m.AddOffsetsToTxnRequest(tid, 5, 0, group), 3),
        "EndTxn": (m.EndTxnRequest(tid, 5, 0, True), 3),
        "TxnOffsetCommit": (
            m.TxnOffsetCommitRequest(
                tid, group, 5, 0, topics=[m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic, [txn_commit])]
            ), 3,
        ),
        "WriteTxnMarkers": (m.WriteTxnMarkersRequest([marker]), 1),
        "DescribeProducers": (
            m.DescribeProducersRequest([m.DescribeProducersRequest.TopicRequest(topic, [0])]), 0,
        ),
        "DescribeTransactions": (m.DescribeTransactionsRequest([tid]), 0),
        "ListPartitionReassignments": (m.ListPartitionReassignmentsRequest(1000, None), 0),
        "DescribeAcls": (m.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3),
        "DescribeUserScramCredentials": (m.DescribeUserScramCredentialsRequest([]), 0),
    }  # fmt: skip


def _errors(value):
    """All error codes of an answer, in the order of its fields."""
    if hasattr(value, "_fields"):
        found = []
        for name, one in value._asdict().items():
            if name.endswith("error_code"):
                found.append(int(one))
            else:
                found += _errors(one)
        return found
    if isinstance(value, (list, tuple)):
        return [code for one in value for code in _errors(one)]
    return []


def _login(where, user):
    peer = Peer(where)
    peer.ask(m.SaslHandshakeRequest("PLAIN"), 1)
    answer = peer.ask(m.SaslAuthenticateRequest(f"\0{user}\0{PASSWORDS.get(user, user)}".encode()), 2)
    assert answer.error_code == 0
    return peer


# ---- the two sides, with the same entries

TOPIC, GROUP, TRANSACTION = "team-a", "team-g", "team-t"
#: Rights by name, which anna has; bert has those of topics, groups and transactional ids by the prefix "team-".
_RIGHTS = {
    Resource.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (Operation.READ, Operation.DELETE),
    Resource.TRANSACTIONAL_ID: (Operation.WRITE,),
    Resource.CLUSTER: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
}  # fmt: skip
_NAMES = {
    Resource.TOPIC: (TOPIC, f"{TOPIC}-missing", f"{TOPIC}-new"), Resource.GROUP: (GROUP, f"{GROUP}-missing"),
    Resource.TRANSACTIONAL_ID: (TRANSACTION,), Resource.CLUSTER: (CLUSTER_NAME,),
}  # fmt: skip


def _entries():
    """Of anna by name, and of bert by a prefix."""
    found = []
    for resource, operations in _RIGHTS.items():
        for operation in operations:
            found += [(resource, name, Pattern.LITERAL, "User:anna", operation) for name in _NAMES[resource]]
            if resource is not Resource.CLUSTER:
                found.append((resource, "team-", Pattern.PREFIXED, "User:bert", operation))
    return [
        m.CreateAclsRequest.AclCreation(resource, name, pattern, user, "*", operation, Permission.ALLOW)
        for resource, name, pattern, user, operation in found
    ]


def _prepare(where):
    """Makes the topic, and the entries."""
    with _login(where, "dora") as peer:
        made = m.CreateTopicsRequest([m.CreateTopicsRequest.CreatableTopic(TOPIC, 1, 1)], 10_000, False)
        assert peer.ask(made, 5).topics[0].error_code == 0
        results = peer.ask(m.CreateAclsRequest(_entries()), 3).results
        assert {one.error_code for one in results} == {0}
        end = time.monotonic() + PATIENCE
        # Kafka has made its coordinators and takes the entries in some time later.
        while len(peer.ask(m.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3).resources) < len(_NAMES) + 2:
            assert time.monotonic() < end
            time.sleep(0.1)
        for kind, key in ((0, GROUP), (1, TRANSACTION)):
            find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            while peer.ask(find, 4).coordinators[0].error_code:
                assert time.monotonic() < end
                time.sleep(0.1)


@pytest.fixture(scope="module")
def sides(kafka, tmp_path_factory):
    """Kafka, and then a server, with the same users and entries."""
    port, controller = free_ports(2)
    passwords = {user: PASSWORDS.get(user, user) for user in (*USERS, "broker")}
    users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    broker = Broker(tmp_path_factory.mktemp("broker"), settings={
        "listeners": f"SASL_PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:dora;User:broker;User:ANONYMOUS",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config":
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="broker" password="broker" {users};',
    })  # fmt: skip
    folder = tmp_path_factory.mktemp("server")
    Store.create(folder / "store").close()
    add_users(folder / "store", passwords)
    options = ("--sasl-mechanisms", "PLAIN", "--acls", "--super-users", "User:dora")
    try:
        broker.start()
        with served(folder / "store", folder, *options) as server:
            where = SimpleNamespace(host=HOST, port=port), server
            for side in where:
                _prepare(side)
            yield where
        broker.stop()
    finally:
        broker.kill()


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", _requests(TOPIC, GROUP, TRANSACTION))
def test_the_answer_is_kafkas(sides, user, name):
    request, version = _requests(TOPIC, GROUP, TRANSACTION)[name]
    answers = []
    for where in sides:
        with _login(where, user) as peer:
            answers.append(_errors(peer.ask(request, version)))
    kafkas, ours = answers
    assert ours == kafkas
