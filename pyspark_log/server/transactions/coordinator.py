"""What the handlers of requests ask of transactions, however they are coordinated. All calls come from the loop."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import Wait
from pyspark_log.storage.transactions import NO_EPOCH, NO_PRODUCER, TransactionMetadata
from pyspark_log.types import TopicPartition


class Outcome(NamedTuple):
    """What became of a producer's request: why nothing; or NONE, and the id and epoch that it has now."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER
    epoch: int = NO_EPOCH


class Coordinator(Protocol):
    """The transactions of Kafka's clients.

    What a request begins is done to its end also if its client leaves meanwhile.

    Attributes:
        max_timeout: for how long a transaction may last at most, in ms.
    """

    max_timeout: int

    @property
    def metadata(self) -> Mapping[str, TransactionMetadata]:
        """What is known of each transactional id that is coordinated here."""

    def init_producer(self, transactional_id: str, timeout: int, producer: tuple[int, int]) -> Wait[Outcome]:
        """Gives a producer its id and epoch, and fences earlier ones of the transactional id.

        Args:
            transactional_id: the id.
            timeout: for how long its transactions may last, in ms.
            producer: the producer id and epoch that the client believes to have; -1: it has none.
        """

    def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], version: int
    ) -> Wait[ErrorCode]:
        """Partitions join the producer's transaction, which they begin if none is open.

        `version`: of the protocol of transactions that the client uses.
        """

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, version: int) -> Wait[Outcome]:
        """Commits or aborts the producer's transaction.

        `version`: of the protocol of transactions that the client uses.
        """


class Admission(Protocol):
    """Says what producers may append in transactions."""

    async def admit(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:  # fmt: skip
        """Says of each partition whether the producer may append to it now.

        Until `release`, the transaction does not end: so no record comes after its marker. Call both in a coroutine of
        the loop, which continues when the client has left.

        Args:
            transactional_id, producer_id, epoch: of the producer.
            partitions: to which it appends.
            adds: whether they join the transaction by that, as in the second version of the protocol.
        """

    def release(self, transactional_id: str, producer_id: int) -> None:
        """What was admitted is appended, or refused."""
