"""Fetches from one broker, in a thread of its own, what it leads of the copied partitions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from pyspark_log.errors import PylogError
from pyspark_log.kafka.errors import ClusterError, MessageError
from pyspark_log.kafka.fetcher import Fetched, PartitionError, Position, rotated
from pyspark_log.replication.copied_partition import CopiedPartition
from pyspark_log.replication.epoch_gaps import Gap, epochs_in
from pyspark_log.replication.errors import CopyEndedError
from pyspark_log.storage.log.leader_epochs import EpochEnd
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# How long a thread waits that has got nothing, in seconds.
_BACKOFF: Final = 0.5


class Fetches(Protocol):
    """What fetches from a leader: kafka.fetcher.Fetcher, whose methods have the contracts, or a reader of files."""

    def send(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Asks for the next batches of partitions."""

    def receive(self) -> Iterator[Fetched]:
        """The answer to the last `send`."""

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The log start and the log end of partitions."""

    def end_of_epoch(self, at: TopicPartition, leader_epoch: int, epoch: int) -> tuple[int, int]:
        """An epoch at or before `epoch`, and where it ends."""

    def interrupt(self) -> None:
        """Ends what another thread waits for."""

    def close(self) -> None:
        """Ends the use of it."""


class Work(Protocol):
    """What the threads of all brokers share."""

    stopping: threading.Event

    def begin(self, node: int) -> Mapping[TopicPartition, tuple[CopiedPartition, int]]:
        """The partitions to be fetched from a broker now, with its leader epochs: no other thread uses them."""

    def end(self, partitions: Sequence[CopiedPartition]) -> None:
        """Gives them back."""

    def took(self, partition: CopiedPartition, size: int) -> None:
        """Takes that bytes of a partition were copied."""

    def fail(self, at: TopicPartition, error: Exception) -> None:
        """Ends the copy of one partition."""

    def lose(self, node: int, error: Exception) -> None:
        """Notes that a broker does not answer."""

    def crash(self, error: BaseException) -> None:
        """Ends all of it."""


class BrokerThread(threading.Thread):
    """The thread of one broker; it ends when the work is stopping."""

    def __init__(self, node: int, connect: Callable[[int], Fetches], work: Work) -> None:
        """`connect`: makes what fetches from a broker of an id. OSError, ClusterError."""
        super().__init__(name=f"copies of broker {node}", daemon=True)
        self._node, self._connect, self._work = node, connect, work
        self._fetcher: Fetches | None = None
        self._turn = 0
        # Whether it uses no partition: it has ended, or connects, which may take long and is not to be waited for.
        self._is_idle = threading.Event()

    def run(self) -> None:
        """Fetches until the work is stopping."""
        try:
            self._work_on()
        except BaseException as error:
            self._work.crash(error)
            raise
        finally:
            self._drop()
            self._is_idle.set()

    def end(self) -> None:
        """Waits until no partition is used any more, but for no answer of the broker; the work must be stopping."""
        if (fetcher := self._fetcher) is not None:
            fetcher.interrupt()
        self._is_idle.wait()

    def _work_on(self) -> None:
        work = self._work
        while not work.stopping.is_set():
            copies = work.begin(self._node)
            try:
                took = self._round(copies) if copies else False
            except ClusterError as error:
                for at in copies:
                    work.fail(at, error)
                took = False
            except (OSError, MessageError) as error:
                self._drop()
                if not work.stopping.is_set():
                    work.lose(self._node, error)
                took = False
            finally:
                work.end([partition for partition, _ in copies.values()])
            if not took:
                work.stopping.wait(_BACKOFF)

    def _round(self, copies: Mapping[TopicPartition, tuple[CopiedPartition, int]]) -> bool:
        """Fetches once; whether any partition was answered without an error. The others wait for themselves."""
        if self._fetcher is None:
            self._fetcher = self._make_fetcher()
            if self._work.stopping.is_set():
                return False  # `end` has not waited, or has come too early to interrupt it.
        self._turn += 1
        order = rotated(list(copies), self._turn)
        self._fetcher.send({at: copies[at][0].position(copies[at][1]) for at in order})
        answers = list(self._fetcher.receive())
        is_empty = not any(len(answer.records) for answer in answers)
        for answer in answers:
            partition = copies[answer.at][0]
            if is_empty and not answer.error_code and answer.diverging is None:
                # Compaction has removed what was there up to the high watermark.
                partition.nothing_until = max(partition.nothing_until, answer.high_watermark)
            if gaps := self._attempt(partition, partition.take, answer):
                self._take_with_epochs(partition, answer, gaps)
            self._work.took(partition, len(answer.records))
        self._settle([copies[answer.at][0] for answer in answers if copies[answer.at][0].needs_ends])
        return not all(answer.error_code for answer in answers)

    def _make_fetcher(self) -> Fetches:
        self._is_idle.set()
        try:
            return self._connect(self._node)
        finally:
            self._is_idle.clear()

    def _take_with_epochs(self, partition: CopiedPartition, fetched: Fetched, gaps: Iterable[Gap]) -> None:
        """Takes in an answer with gaps, once the leader has said which epochs begin there."""
        assert self._fetcher is not None
        end_of = partial(self._fetcher.end_of_epoch, fetched.at, fetched.position.leader_epoch)
        try:
            starts = [start for gap in gaps for start in epochs_in(gap, lambda epoch: EpochEnd(*end_of(epoch)))]
        except PartitionError as error:
            self._attempt(partition, partition.take, fetched._replace(error_code=error.code))
        else:
            self._attempt(partition, partition.take, fetched, starts)

    def _settle(self, partitions: Sequence[CopiedPartition]) -> None:
        """Finds where the leader's log is, for partitions whose next offset is not in it."""
        if not partitions:
            return
        assert self._fetcher is not None
        ends = self._fetcher.ends([partition.at for partition in partitions])
        for partition in partitions:
            if partition.at in ends:
                self._attempt(partition, partition.settle, *ends[partition.at])

    def _attempt(self, partition: CopiedPartition, action: Callable[..., _T], *arguments: object) -> _T | None:
        """What a change of a partition returns; None: it is ended, or fails."""
        try:
            return action(*arguments)
        except CopyEndedError:
            pass
        except (PylogError, OSError) as error:
            self._work.fail(partition.at, error)
        return None

    def _drop(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
