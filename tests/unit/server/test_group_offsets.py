"""Committed offsets, as requests write and read them."""

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode


def commit(peer, group, topic, offset, version=7):
    """Commits an offset of partition 0 without being a member; the error code."""
    part = m.OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, -1, "note")
    request = m.OffsetCommitRequest(
        group, topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(topic, partitions=[part])]
    )
    [answer] = peer.ask(request, version).topics
    return answer.partitions[0].error_code


def committed(peer, group, topic, version=7):
    """The offset and the text that are committed for partition 0."""
    wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(topic, [0])
    [answer] = peer.ask(m.OffsetFetchRequest(group, [wanted]), version).topics
    return answer.partitions[0].committed_offset, answer.partitions[0].metadata


def test_the_group_without_a_name(peer, topic):
    """Kafka lets it commit, too: clients without a group have used it."""
    assert committed(peer, "", topic) == (-1, "")
    assert commit(peer, "", topic, 5) == ErrorCode.NONE
    assert committed(peer, "", topic) == (5, "note")
