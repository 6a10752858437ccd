"""Requests of each API about a topic, a group and a transactional id, to see what clients may do."""

import time
from typing import NamedTuple

from pyspark_log.kafka import messages as m
from pyspark_log.server.security.acls import Operation, Pattern, Permission, Resource
from tests.unit.record_tools import Record, build

NO_ID = bytes(16)
_NOW = int(time.time() * 1000)
_ANY = 1


class Names(NamedTuple):
    """What requests are about; each user has a topic to create, one to miss and one to delete."""

    topic: str
    topic_id: bytes
    group: str
    tid: str
    user: str

    def made(self):
        """The topic that is created when its metadata are asked for."""
        return f"{self.topic}-made-{self.user}"

    def gone(self):
        """The topic that is deleted by its name."""
        return f"{self.topic}-gone-{self.user}"

    def modern(self):
        """The group of KIP-848."""
        return f"{self.group}-modern"


def _batch(**fields):
    return build([Record(None, b"v", _NOW)], "none", **fields)


def of_records(at):
    """Writing and reading records."""
    part = m.ProduceRequest.PartitionProduceData
    transactional = part(0, _batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0))
    data = m.ProduceRequest.TopicProduceData
    fetch = m.FetchRequest.FetchPartition(0, -1, 0, -1, -1, 1000)
    topic = m.FetchRequest.FetchTopic
    offsets = m.ListOffsetsRequest.ListOffsetsTopic(at.topic, [m.ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)])
    epoch = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, -1, 0)
    epochs = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(at.topic, [epoch])
    deleted = m.DeleteRecordsRequest.DeleteRecordsPartition(0, 0)
    return {
        "Produce": (m.ProduceRequest(None, -1, 1000, [data(at.topic, NO_ID, [part(0, _batch())])]), 9),
        "Produce, by id": (m.ProduceRequest(None, -1, 1000, [data("", at.topic_id, [part(0, _batch())])]), 13),
        "Produce, in a transaction": (
            m.ProduceRequest(at.tid, -1, 1000, [data(at.topic, NO_ID, [transactional])]), 9,
        ),
        "Fetch": (
            m.FetchRequest(max_wait_ms=1, min_bytes=0, max_bytes=1000, topics=[topic(at.topic, NO_ID, [fetch])]), 12,
        ),
        "Fetch, by id": (
            m.FetchRequest(max_wait_ms=1, min_bytes=0, max_bytes=1000, topics=[topic("", at.topic_id, [fetch])]), 13,
        ),
        "ListOffsets": (m.ListOffsetsRequest(-1, 0, [offsets]), 7),
        "OffsetForLeaderEpoch": (m.OffsetForLeaderEpochRequest(topics=[epochs]), 4),
        "DeleteRecords": (
            m.DeleteRecordsRequest([m.DeleteRecordsRequest.DeleteRecordsTopic(at.topic, [deleted])], 1000), 2,
        ),
        "DescribeProducers": (m.DescribeProducersRequest([m.DescribeProducersRequest.TopicRequest(at.topic, [0])]), 0),
    }  # fmt: skip


def of_topics(at):
    """Topics and their configs."""
    wanted = m.MetadataRequest.MetadataRequestTopic
    new = m.CreateTopicsRequest.CreatableTopic(f"{at.topic}-new", 1, 1)
    gone = m.DeleteTopicsRequest.DeleteTopicState(at.gone(), NO_ID)
    grown = m.CreatePartitionsRequest.CreatePartitionsTopic(at.topic, 1, None)
    described = m.DescribeConfigsRequest.DescribeConfigsResource
    change = m.IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "1000000")
    altered = m.IncrementalAlterConfigsRequest.AlterConfigsResource
    value = m.AlterConfigsRequest.AlterableConfig("retention.ms", "1000000")
    return {
        "Metadata": (m.MetadataRequest([wanted(NO_ID, at.topic)], False, True, True), 10),
        "Metadata, by id": (m.MetadataRequest([wanted(at.topic_id, None)], False, False, True), 12),
        "Metadata, created": (m.MetadataRequest([wanted(NO_ID, at.made())], True), 12),
        "Metadata, of all": (m.MetadataRequest(None, False, False, True), 12),
        "CreateTopics": (m.CreateTopicsRequest([new], 1000, True), 5),
        "DeleteTopics": (m.DeleteTopicsRequest(topic_names=[at.gone()], timeout_ms=5000), 5),
        "DeleteTopics, again": (m.DeleteTopicsRequest([gone], (), 5000), 6),
        "CreatePartitions": (m.CreatePartitionsRequest([grown], 1000, True), 3),
        "DescribeConfigs": (m.DescribeConfigsRequest([described(2, at.topic, ["retention.ms"])], False), 4),
        "DescribeConfigs, of the server": (m.DescribeConfigsRequest([described(4, "1", ["nothing"])], False), 4),
        "IncrementalAlterConfigs": (m.IncrementalAlterConfigsRequest([altered(2, at.topic, [change])], True), 1),
        "IncrementalAlterConfigs, of the server": (m.IncrementalAlterConfigsRequest([altered(4, "1", [])], True), 1),
        "AlterConfigs": (
            m.AlterConfigsRequest([m.AlterConfigsRequest.AlterConfigsResource(2, at.topic, [value])], True), 2,
        ),
    }  # fmt: skip


def of_groups(at):
    """Groups and their offsets."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\0\0\0\0")
    commit = m.OffsetCommitRequest.OffsetCommitRequestPartition(0, 1, -1, "")
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup
    by_id = m.OffsetFetchRequest.OffsetFetchRequestTopics("", at.topic_id, [0])
    deleted = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(1)
    return {
        "OffsetCommit": (m.OffsetCommitRequest(at.group, -1, "", topics=[topic(at.topic, NO_ID, [commit])]), 8),
        "OffsetCommit, by id": (m.OffsetCommitRequest(at.group, -1, "", topics=[topic("", at.topic_id, [commit])]), 10),
        "OffsetFetch": (
            m.OffsetFetchRequest(at.group, [m.OffsetFetchRequest.OffsetFetchRequestTopic(at.topic, [0])]), 7,
        ),
        "OffsetFetch, of all": (m.OffsetFetchRequest(groups=[group(at.group, topics=None)]), 8),
        "OffsetFetch, by id": (m.OffsetFetchRequest(groups=[group(at.group, None, -1, [by_id])]), 10),
        "OffsetDelete": (
            m.OffsetDeleteRequest(at.group, [m.OffsetDeleteRequest.OffsetDeleteRequestTopic(at.topic, [deleted])]), 0,
        ),
        "FindCoordinator": (m.FindCoordinatorRequest(key_type=0, coordinator_keys=[at.group]), 4),
        "FindCoordinator, of one": (m.FindCoordinatorRequest(at.group), 3),
        "JoinGroup": (m.JoinGroupRequest(at.group, 10_000, 10_000, "", None, "consumer", [protocol]), 7),
        "SyncGroup": (m.SyncGroupRequest(at.group, 1, "stranger", None, "consumer", "range"), 5),
        "Heartbeat": (m.HeartbeatRequest(at.group, 1, "stranger"), 4),
        "LeaveGroup": (m.LeaveGroupRequest(at.group, "stranger"), 2),
        "DescribeGroups": (m.DescribeGroupsRequest([at.group], True), 5),
        "ConsumerGroupHeartbeat": (
            m.ConsumerGroupHeartbeatRequest(
                at.modern(), f"{at.user}-member", 0, None, None, 60_000, [at.topic], None, None, []
            ), 1,
        ),
        "ConsumerGroupDescribe": (m.ConsumerGroupDescribeRequest([at.modern()], True), 1),
        "ListGroups": (m.ListGroupsRequest(), 5),
        "DeleteGroups": (m.DeleteGroupsRequest([f"{at.group}-missing"]), 2),
    }  # fmt: skip


def of_transactions(at):
    """Producers and their transactions."""
    commit = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 1, -1, "")
    committed = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(at.topic, [commit])
    marked = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(at.topic, [0])
    return {
        "FindCoordinator, of a transaction": (m.FindCoordinatorRequest(key_type=1, coordinator_keys=[at.tid]), 4),
        "InitProducerId": (m.InitProducerIdRequest(None, 0), 4),
        "InitProducerId, transactional": (m.InitProducerIdRequest(at.tid, 60_000), 4),
        "AddPartitionsToTxn": (
            m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=at.tid, v3_and_below_producer_id=5, v3_and_below_producer_epoch=0,
                v3_and_below_topics=[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(at.topic, [0])],
            ), 3,
        ),
        "AddOffsetsToTxn": (m.AddOffsetsToTxnRequest(at.tid, 5, 0, at.group), 3),
        "EndTxn": (m.EndTxnRequest(at.tid, 5, 0, True), 3),
        "TxnOffsetCommit": (m.TxnOffsetCommitRequest(at.tid, at.group, 5, 0, topics=[committed]), 3),
        "WriteTxnMarkers": (
            m.WriteTxnMarkersRequest([m.WriteTxnMarkersRequest.WritableTxnMarker(5, 0, False, [marked], 0)]), 1,
        ),
        "DescribeTransactions": (m.DescribeTransactionsRequest([at.tid]), 0),
        "ListTransactions": (m.ListTransactionsRequest((), (), -1), 1),
    }  # fmt: skip


def of_cluster(at):
    """The server, its users and its ACLs."""
    moved = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(at.topic, [0])
    kept = m.AlterPartitionReassignmentsRequest.ReassignablePartition(0, None)
    topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic(at.topic, [kept])
    entry = m.CreateAclsRequest.AclCreation(
        Resource.TOPIC, "nothing", Pattern.LITERAL, "User:nobody", "*", Operation.READ, Permission.ALLOW
    )
    found = m.DeleteAclsRequest.DeleteAclsFilter(_ANY, None, _ANY, "User:nobody", None, _ANY, _ANY)
    nobody = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion("nobody", 1)
    return {
        "DescribeCluster": (m.DescribeClusterRequest(True), 1),
        "DescribeLogDirs": (m.DescribeLogDirsRequest([]), 4),
        "AlterReplicaLogDirs": (
            m.AlterReplicaLogDirsRequest([m.AlterReplicaLogDirsRequest.AlterReplicaLogDir("/nowhere", [moved])]), 2,
        ),
        "AlterPartitionReassignments": (m.AlterPartitionReassignmentsRequest(1000, True, [topic]), 1),
        "ListPartitionReassignments": (m.ListPartitionReassignmentsRequest(1000, None), 0),
        "CreateAcls": (m.CreateAclsRequest([entry]), 3),
        "DescribeAcls": (m.DescribeAclsRequest(_ANY, None, _ANY, "User:nobody", None, _ANY, _ANY), 3),
        "DeleteAcls": (m.DeleteAclsRequest([found]), 3),
        "DescribeClientQuotas": (m.DescribeClientQuotasRequest([], False), 1),
        "AlterClientQuotas": (
            m.AlterClientQuotasRequest(
                [
                    m.AlterClientQuotasRequest.EntryData(
                        [m.AlterClientQuotasRequest.EntityData("user", "nobody")],
                        [m.AlterClientQuotasRequest.OpData("producer_byte_rate", 1000.0, False)],
                    )
                ], True,
            ), 1,
        ),
        "DescribeUserScramCredentials": (
            m.DescribeUserScramCredentialsRequest([m.DescribeUserScramCredentialsRequest.UserName("nobody")]), 0,
        ),
        "AlterUserScramCredentials": (m.AlterUserScramCredentialsRequest([nobody]), 0),
    }  # fmt: skip


def requests(at):
    """All of them, with their versions, by name."""
    return {**of_records(at), **of_topics(at), **of_groups(at), **of_transactions(at), **of_cluster(at)}
