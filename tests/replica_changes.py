"""What a change of the image means for one broker: which replicas it begins, leads, follows and gives up."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from pyspark_log.server.cluster.fold import Change
from pyspark_log.server.cluster.image import Image, Partition, Topic


class Action(Enum):
    """What a broker does with its replica of a partition."""

    DELETE = "delete"  # the topic is gone
    STOP = "stop"  # it is a replica no more, after a reassignment: its log goes, the topic remains
    LEAD = "lead"  # from a new leader epoch on
    FOLLOW = "follow"  # from a new leader epoch on: another broker, or none for now
    UPDATE = "update"  # as before, but other facts: the ISR, a reassignment, log dirs


class Replica(NamedTuple):
    """A partition that a broker has a replica of."""

    topic: str
    topic_id: bytes
    number: int
    partition: Partition


class ReplicaChange(NamedTuple):
    """What is new of a replica of a broker.

    Attributes:
        before, after: the partition. None: the broker had no replica of it, or has none.
    """

    action: Action
    topic: str
    topic_id: bytes
    number: int
    before: Partition | None
    after: Partition | None


def replicas_of(image: Image, broker_id: int) -> Iterator[Replica]:
    """All replicas of a broker."""
    for topic in image.topics.values():
        for number, one in topic.partitions.items():
            if broker_id in one.replicas:
                yield Replica(topic.name, topic.id, number, one)


def replica_changes(change: Change, broker_id: int) -> list[ReplicaChange]:
    """What changes for the replicas of a broker: what it gives up first, so that names are free for what it begins."""
    found: list[ReplicaChange] = []
    for topic_id in change.topics:
        _collect(change.before.topics.get(topic_id), change.after.topics.get(topic_id), broker_id, found)
    return sorted(found, key=lambda one: one.after is not None)


def _collect(before: Topic | None, after: Topic | None, broker_id: int, found: list[ReplicaChange]) -> None:
    topic = after or before
    if topic is None:  # it was created and deleted in one step
        return
    old, new = _own(before, broker_id), _own(after, broker_id)
    for number in old.keys() | new.keys():
        one, other = old.get(number), new.get(number)
        if one == other:
            continue
        if other is None:
            action = Action.DELETE if after is None else Action.STOP
        elif one is not None and one.leader_epoch == other.leader_epoch:
            action = Action.UPDATE
        else:
            action = Action.LEAD if other.leader == broker_id else Action.FOLLOW
        found.append(ReplicaChange(action, topic.name, topic.id, number, one, other))


def _own(topic: Topic | None, broker_id: int) -> dict[int, Partition]:
    """The partitions of a topic that a broker has a replica of."""
    return {} if topic is None else {n: one for n, one in topic.partitions.items() if broker_id in one.replicas}
