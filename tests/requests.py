"""Requests of Kafka's protocol about one topic, group or resource, as tests ask them."""

from __future__ import annotations

from pyspark_log.kafka import messages as m

NO_ID = bytes(16)
#: How long a server may take, in ms.
_TIMEOUT = 10_000


# ---- records


def produce(topic, *parts, acks=-1, transactional_id=None, topic_id=NO_ID):
    """`parts` are partitions, each with the bytes of its batches."""
    partitions = [m.ProduceRequest.PartitionProduceData(number, data) for number, data in parts]
    data = m.ProduceRequest.TopicProduceData(topic, topic_id, partitions)
    return m.ProduceRequest(transactional_id, acks, _TIMEOUT, [data])


def fetch(topic, offset, epoch=-1, partition=0, *, topic_id=NO_ID, **fields):
    """`epoch`: that of the leader, as the client knows it; `fields` are those of the request."""
    part = m.FetchRequest.FetchPartition(partition, epoch, offset, -1, -1, 1 << 20)
    topics = [m.FetchRequest.FetchTopic(topic, topic_id, [part])]
    return m.FetchRequest(max_wait_ms=10, min_bytes=0, max_bytes=1 << 20, topics=topics)._replace(**fields)


def list_offsets(topic, *times, partition=0, **fields):
    parts = [m.ListOffsetsRequest.ListOffsetsPartition(partition, -1, time) for time in times]
    return m.ListOffsetsRequest(-1, 0, [m.ListOffsetsRequest.ListOffsetsTopic(topic, parts)])._replace(**fields)


def end_of_epoch(topic, epoch, current=-1, partition=0):
    """`current`: the leader epoch, as the client knows it."""
    part = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition, current, epoch)
    return m.OffsetForLeaderEpochRequest(topics=[m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic, [part])])


def delete_records(topic, offset, partition=0):
    part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition, offset)
    return m.DeleteRecordsRequest([m.DeleteRecordsRequest.DeleteRecordsTopic(topic, [part])], _TIMEOUT)


# ---- topics and configs


def metadata(*names, create=False, ids=(), **fields):
    """Of topics by their names and by their ids."""
    of = m.MetadataRequest.MetadataRequestTopic
    wanted = [*(of(NO_ID, name) for name in names), *(of(one, None) for one in ids)]
    return m.MetadataRequest(wanted, create)._replace(**fields)


def new_topic(name, partitions=1, replicas=1, assignments=(), **configs):
    """A topic for `create_topics`; names of configs have underscores in place of dots."""
    entries = [m.CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), one) for key, one in configs.items()]
    placed = [m.CreateTopicsRequest.CreatableReplicaAssignment(*one) for one in assignments]
    return m.CreateTopicsRequest.CreatableTopic(name, partitions, replicas, placed, entries)


def create_topics(*topics, validate_only=False):
    return m.CreateTopicsRequest(topics, _TIMEOUT, validate_only)


def create_topic(name, *args, validate_only=False, **how):
    """One, as `new_topic` makes it."""
    return create_topics(new_topic(name, *args, **how), validate_only=validate_only)


def create_partitions(name, total, assignments=None, validate_only=False):
    if assignments is not None:
        assignments = [m.CreatePartitionsRequest.CreatePartitionsAssignment(one) for one in assignments]
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name, total, assignments)
    return m.CreatePartitionsRequest([topic], _TIMEOUT, validate_only)


def reassign(topic, partition, replicas):
    """Moves a partition to these servers; None: ends the move."""
    part = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition, replicas)
    wanted = m.AlterPartitionReassignmentsRequest.ReassignableTopic(topic, [part])
    return m.AlterPartitionReassignmentsRequest(_TIMEOUT, topics=[wanted])


def describe_configs(kind, name, *keys, with_synonyms=True, **fields):
    """All configs of a resource, or those that are named."""
    wanted = m.DescribeConfigsRequest.DescribeConfigsResource(kind, name, keys or None)
    return m.DescribeConfigsRequest([wanted], with_synonyms)._replace(**fields)


def alter_configs(kind, name, *changes, validate_only=False):
    """`changes` are names, each with the kind of change and a value."""
    of = m.IncrementalAlterConfigsRequest
    resource = of.AlterConfigsResource(kind, name, [of.AlterableConfig(*one) for one in changes])
    return of([resource], validate_only)


def replace_configs(kind, name, *configs, validate_only=False):
    """`configs` are names, each with a value."""
    of = m.AlterConfigsRequest
    return of([of.AlterConfigsResource(kind, name, [of.AlterableConfig(*one) for one in configs])], validate_only)


# ---- groups


def commit(group, topic, offset, partition=0, *, metadata="", generation=-1, member="", topic_id=NO_ID, epoch=-1):
    """`epoch`: the leader epoch of the offset."""
    part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition, offset, epoch, metadata)
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(topic, topic_id, [part])]
    return m.OffsetCommitRequest(group, generation, member, topics=topics)


def committed(group, topic, *partitions):
    """For versions before 8; no topic: of all."""
    of = m.OffsetFetchRequest
    return of(group, None if topic is None else [of.OffsetFetchRequestTopic(topic, partitions)])


def committed_of(group, topic, *partitions, topic_id=NO_ID, member=None, epoch=-1, stable=False):
    """The same for later versions, which ask about any number of groups."""
    of = m.OffsetFetchRequest
    topics = None if topic is None else [of.OffsetFetchRequestTopics(topic, topic_id, partitions)]
    return of(groups=[of.OffsetFetchRequestGroup(group, member, epoch, topics)], require_stable=stable)


def delete_offsets(group, topic, partition=0):
    part = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition)
    return m.OffsetDeleteRequest(group, [m.OffsetDeleteRequest.OffsetDeleteRequestTopic(topic, [part])])


# ---- users


def alter_users(deletions=(), upsertions=()):
    """Fields of each: name, number of the mechanism; then iterations, salt and salted password."""
    of = m.AlterUserScramCredentialsRequest
    return of(
        [of.ScramCredentialDeletion(*one) for one in deletions],
        [of.ScramCredentialUpsertion(*one) for one in upsertions],
    )


# ---- transactions


def add_partitions(transactional_id, producer, topics):
    """Before version 4: to the transaction of a producer, its id and epoch; numbers of partitions by topic."""
    of = m.AddPartitionsToTxnRequest
    return of(
        v3_and_below_transactional_id=transactional_id, v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[of.AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in topics.items()],
    )  # fmt: skip


def commit_in_transaction(transactional_id, group, producer, topic, offset, partition=0):
    """`producer`: its id and epoch."""
    of = m.TxnOffsetCommitRequest
    part = of.TxnOffsetCommitRequestPartition(partition, offset, -1, "")
    return of(transactional_id, group, *producer, topics=[of.TxnOffsetCommitRequestTopic(topic, [part])])
