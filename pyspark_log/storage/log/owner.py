"""Which process gives the records of a partition their offsets: any that holds its lock, or only its owner.

The owner is in the partition's state: a mirror, or a node of a Kafka cluster. Any process may delete,
compact and move what is there, as the topic's configs say.
"""

from __future__ import annotations

from pyspark_log.errors import PartitionOwnedError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.log.state.partition_state import PartitionState

#: The owner of a partition that any process may append to.
NONE = 0
#: The owner of a partition that is mirrored.
MIRROR = -1
#: No leader epoch: the process leads no partition of a cluster.
NO_EPOCH = -1


def of_node(node_id: int) -> int:
    """The owner of the partitions that a node of a Kafka cluster has replicas of; `node_id` is its broker.id."""
    return node_id + 1


def check_owner(place: PartitionPath, state: PartitionState, leads: int = NO_EPOCH) -> None:
    """Raises PartitionOwnedError if a partition has an owner, so that no other process may append to it.

    `leads`: the leader epoch in which this process, a node of a Kafka cluster, leads it, so that it may.
    """
    if state.owner_node == NONE or (state.owner_node > NONE and state.leader_epoch == leads):
        return
    if state.owner_node == MIRROR:
        raise PartitionOwnedError(
            f"{place} is mirrored, with the offsets of its source: write there; or end the mirror and make "
            f"the topic one of this store with: pylog mirror --promote --topics {place.topic}"
        )
    raise PartitionOwnedError(
        f"{place}: node {state.owner_node - 1} of a Kafka cluster has a replica here: write to the partition's leader, "
        "with a client of Kafka"
    )
