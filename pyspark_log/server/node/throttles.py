"""Throttles of replication (KIP-73): how fast replicas that are not in sync are copied, as a reassignment limits it."""

from __future__ import annotations

import threading
import time
from typing import Final

from pyspark_log.server.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, Image, Resource
from pyspark_log.server.quotas.rates import Rate
from pyspark_log.types import TopicPartition

_REPLICAS, _RATE = ".replication.throttled.replicas", ".replication.throttled.rate"
_ALL: Final = "*"


class ReplicaThrottle:
    """The throttle of one side: of a node as a leader, or as a follower. Thread-safe."""

    def __init__(self, side: str, node_id: int) -> None:
        """`side`: "leader" or "follower"; `node_id`: this node."""
        self._side, self._resource = side, Resource(BROKER_RESOURCE, str(node_id))
        self._rate, self._mutex = Rate(), threading.Lock()

    def holds_back(self, image: Image, at: TopicPartition, follower: int) -> bool:
        """Whether nothing of a partition may be copied to a follower now, as too much was of late."""
        bound = self._bound(image, at, follower)
        if bound is None:
            return False
        with self._mutex:
            rate, _ = self._rate.measure(_now())
        return rate > bound

    def count(self, image: Image, at: TopicPartition, follower: int, size: int) -> None:
        """Counts bytes that were copied to a follower."""
        if size and self._bound(image, at, follower) is not None:
            with self._mutex:
                self._rate.add(size, _now())

    def _bound(self, image: Image, at: TopicPartition, follower: int) -> float | None:
        """The most bytes a second for a follower that is not in sync; None: it is, or is not throttled."""
        throttled = image.configs.get(Resource(TOPIC_RESOURCE, at.topic), {}).get(self._side + _REPLICAS)
        bound = image.configs.get(self._resource, {}).get(self._side + _RATE)
        if not throttled or bound is None:
            return None
        topic = image.topic(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        if partition is None or follower in partition.isr:
            return None
        # On each side the list names that side's replicas: this node's.
        is_named = throttled == _ALL or f"{at.partition}:{self._resource.name}" in throttled.replace(" ", "").split(",")
        return float(bound) if is_named else None


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
