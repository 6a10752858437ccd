"""What clients may do: the same ACLs and requests at a real Kafka and at `pylog serve`, the answers side by side."""

import time
from types import SimpleNamespace

import pytest
from kafka_tools import Broker
from test_server_beside_kafka import NO_ID, _plain

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, Resource
from tests.ports import HOST, free_ports
from tests.security_tools import PASSWORDS, add_users
from tests.server_tools import PATIENCE, Peer, served
from tests.unit.record_tools import Record, build

#: anna has rights by name, bert by a prefix, carl none, and dora is a super user.
USERS = ("anna", "bert", "carl", "dora")
_NOW = int(time.time() * 1000)


def _batch(**fields):
    return build([Record(None, b"v", _NOW)], "none", **fields)


def _topics(kind, name, rows, field="topics"):
    return kind(**{field: [rows(name)]})


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
