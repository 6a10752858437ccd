"""Requests of each API about a topic, a group and a transactional id, to see what clients may do."""

import time
from typing import NamedTuple

from pyspark_log.kafka import messages as m
from pyspark_log.server.security.acls import Operation, Pattern, Permission, Resource
from tests import requests as r
from tests.requests import NO_ID
from tests.unit.record_tools import Record, build

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
    transactional = _batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    return {
        "Produce": (r.produce(at.topic, (0, _batch())), 9),
        "Produce, by id": (r.produce("", (0, _batch()), topic_id=at.topic_id), 13),
        "Produce, in a transaction": (r.produce(at.topic, (0, transactional), transactional_id=at.tid), 9),
        "Fetch": (r.fetch(at.topic, 0), 12),
        "Fetch, by id": (r.fetch("", 0, topic_id=at.topic_id), 13),
        "ListOffsets": (r.list_offsets(at.topic, -1), 7),
        "OffsetForLeaderEpoch": (r.end_of_epoch(at.topic, 0), 4),
        "DeleteRecords": (r.delete_records(at.topic, 0), 2),
        "DescribeProducers": (m.DescribeProducersRequest([m.DescribeProducersRequest.TopicRequest(at.topic, [0])]), 0),
    }


def of_topics(at):
    """Topics and their configs."""
    gone = m.DeleteTopicsRequest.DeleteTopicState(at.gone(), NO_ID)
    operations = {"include_topic_authorized_operations": True}
    return {
        "Metadata": (r.metadata(at.topic, include_cluster_authorized_operations=True, **operations), 10),
        "Metadata, by id": (r.metadata(ids=[at.topic_id], **operations), 12),
        "Metadata, created": (r.metadata(at.made(), create=True), 12),
        "Metadata, of all": (r.metadata(topics=None, **operations), 12),
        "CreateTopics": (r.create_topic(f"{at.topic}-new", validate_only=True), 5),
        "DeleteTopics": (m.DeleteTopicsRequest(topic_names=[at.gone()], timeout_ms=5000), 5),
        "DeleteTopics, again": (m.DeleteTopicsRequest([gone], (), 5000), 6),
        "CreatePartitions": (r.create_partitions(at.topic, 1, validate_only=True), 3),
        "DescribeConfigs": (r.describe_configs(2, at.topic, "retention.ms", with_synonyms=False), 4),
        "DescribeConfigs, of the server": (r.describe_configs(4, "1", "nothing", with_synonyms=False), 4),
        "IncrementalAlterConfigs": (
            r.alter_configs(2, at.topic, ("retention.ms", 0, "1000000"), validate_only=True), 1,
        ),
        "IncrementalAlterConfigs, of the server": (r.alter_configs(4, "1", validate_only=True), 1),
        "AlterConfigs": (r.replace_configs(2, at.topic, ("retention.ms", "1000000"), validate_only=True), 2),
    }  # fmt: skip


def of_groups(at):
    """Groups and their offsets."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\0\0\0\0")
    return {
        "OffsetCommit": (r.commit(at.group, at.topic, 1), 8),
        "OffsetCommit, by id": (r.commit(at.group, "", 1, topic_id=at.topic_id), 10),
        "OffsetFetch": (r.committed(at.group, at.topic, 0), 7),
        "OffsetFetch, of all": (r.committed_of(at.group, None), 8),
        "OffsetFetch, by id": (r.committed_of(at.group, "", 0, topic_id=at.topic_id), 10),
        "OffsetDelete": (r.delete_offsets(at.group, at.topic, 1), 0),
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
    marked = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(at.topic, [0])
    return {
        "FindCoordinator, of a transaction": (m.FindCoordinatorRequest(key_type=1, coordinator_keys=[at.tid]), 4),
        "InitProducerId": (m.InitProducerIdRequest(None, 0), 4),
        "InitProducerId, transactional": (m.InitProducerIdRequest(at.tid, 60_000), 4),
        "AddPartitionsToTxn": (r.add_partitions(at.tid, (5, 0), {at.topic: [0]}), 3),
        "AddOffsetsToTxn": (m.AddOffsetsToTxnRequest(at.tid, 5, 0, at.group), 3),
        "EndTxn": (m.EndTxnRequest(at.tid, 5, 0, True), 3),
        "TxnOffsetCommit": (r.commit_in_transaction(at.tid, at.group, (5, 0), at.topic, 1), 3),
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
        "DescribeLogDirs": (m.DescribeLogDirsRequest([]), 5),
        "AlterReplicaLogDirs": (
            m.AlterReplicaLogDirsRequest([m.AlterReplicaLogDirsRequest.AlterReplicaLogDir("/nowhere", [moved])]), 2,
        ),
        "AlterPartitionReassignments": (m.AlterPartitionReassignmentsRequest(1000, True, [topic]), 1),
        "ListPartitionReassignments": (m.ListPartitionReassignmentsRequest(1000, None), 0),
        "ElectLeaders": (m.ElectLeadersRequest(0, [m.ElectLeadersRequest.TopicPartitions(at.topic, [0])], 1000), 2),
        "ListConfigResources": (m.ListConfigResourcesRequest([4]), 1),
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
