"""The copies of partitions that the threads of all brokers share."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark_log.replication.broker_thread import BrokerThread, Fetches
from pyspark_log.replication.copied_partition import CopiedPartition
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_NO_LEADER = -1


class Copies(ABC):
    """Says which broker's thread fetches what (see broker_thread.Work). One thread changes it, those of brokers use it.

    Attributes:
        stopping: set once nothing is to be fetched any more.
    """

    def __init__(self) -> None:
        """There are none yet."""
        self.stopping = threading.Event()
        self._threads: dict[int, BrokerThread] = {}
        self._mutex = threading.Lock()
        # What follows is shared between the threads.
        self._partitions: dict[TopicPartition, CopiedPartition] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}  # node and leader epoch
        self._used = set[CopiedPartition]()
        self._lost = set[int]()

    def _fetch_from(self, nodes: Iterable[int], connect: Callable[[int], Fetches]) -> None:
        """Starts the threads that are missing; `connect` as of BrokerThread."""
        for node in set(nodes) - self._threads.keys() - {_NO_LEADER}:
            thread = self._threads[node] = BrokerThread(node, connect, self)
            thread.start()

    def close(self) -> None:
        """Ends all threads; no partition is used any more."""
        self.stopping.set()
        for thread in self._threads.values():
            thread.end()

    @abstractmethod
    def _may_fetch(self, at: TopicPartition, partition: CopiedPartition) -> bool:
        """Whether more of a partition is wanted now; the mutex is held."""

    def begin(self, node: int) -> Mapping[TopicPartition, tuple[CopiedPartition, int]]:
        """The partitions that a broker leads, of which more is wanted, and that no other thread uses."""
        now = time.monotonic()
        with self._mutex:
            copies = {
                at: (partition, self._leaders[at][1])
                for at, partition in self._partitions.items()
                if self._leaders[at][0] == node
                and partition.not_before <= now
                and partition not in self._used
                and self._may_fetch(at, partition)
            }
            self._used.update(partition for partition, _ in copies.values())
        return copies

    def end(self, partitions: Sequence[CopiedPartition]) -> None:
        """Takes partitions back."""
        with self._mutex:
            self._used.difference_update(partitions)

    def took(self, partition: CopiedPartition, size: int) -> None:  # noqa: B027  (a mirror counts nothing)
        """Takes that bytes of a partition were copied."""

    @abstractmethod
    def fail(self, at: TopicPartition, error: Exception) -> None:
        """Notes that a copy cannot be continued."""

    def lose(self, node: int, error: Exception) -> None:
        """Notes that a broker does not answer."""
        with self._mutex:
            is_new = node not in self._lost
            self._lost.add(node)
        if is_new:
            log.warning("broker %d does not answer: %s", node, error)

    @abstractmethod
    def crash(self, error: BaseException) -> None:
        """Ends all of it with an error that no thread expects."""
