"""Transactions that no server coordinates: each of several servers decides on what is known at that moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from pyspark_log.config import int_config
from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import Loop, Wait
from pyspark_log.server.served.logs import Changed, Rule, ServedLogs, SharedTransactions
from pyspark_log.server.transactions import transitions
from pyspark_log.server.transactions.coordinator import Outcome
from pyspark_log.storage.publish_log.entries.changes import Step
from pyspark_log.storage.transactions import NO_EPOCH, TransactionMetadata, TransactionState
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

# How often open transactions are looked at, in seconds.
_CHECK = 1.0
_NO_PARTITIONS = frozenset[TopicPartition]()


class DecidedTransactions:
    """See Coordinator and Admission.

    An end is one decision, and there are no markers, so no id is ever between two states.

    Attributes:
        max_timeout: for how long a transaction may last at most, in ms.
    """

    def __init__(
        self, loop: Loop, logs: ServedLogs, shared: SharedTransactions, new_producer_id: Callable[[], int]
    ) -> None:
        """`new_producer_id`: gives ids for producers."""
        self._loop, self._logs, self._shared, self._new_producer_id = loop, logs, shared, new_producer_id
        self.max_timeout = int_config(logs.configs, "transaction.max.timeout.ms")
        # The ids that this server is changing; and since when it has seen which transaction of an id open (s).
        self._changing = set[str]()
        self._seen = dict[str, tuple[TransactionMetadata, float]]()

    @property
    def metadata(self) -> dict[str, TransactionMetadata]:
        """What is known of the ids for which clients are to ask this server."""
        servers = self._logs.servers
        return {
            name: replace(metadata, partitions=self._shared.partitions(metadata.producer_id))
            for name, metadata in self._shared.known().items()
            if (server := servers.of_transactions(name)) is not None and server.node_id == servers.node_id
        }

    # ---- requests

    def init_producer(self, transactional_id: str, timeout: int, producer: tuple[int, int]) -> Wait[Outcome]:
        """See Coordinator."""
        now, new_id = self._logs.clock(), self._new_producer_id()

        def rule(current: TransactionMetadata | None) -> Changed | Outcome:
            metadata = current or TransactionMetadata(new_id, NO_EPOCH, timeout, TransactionState.EMPTY, updated=now)
            if metadata.state is TransactionState.ONGOING:
                if producer[0] not in (-1, metadata.producer_id):
                    return Outcome(ErrorCode.PRODUCER_FENCED)
                # As in Kafka: the client asks again, and then its epoch is another one.
                return _fenced(metadata, now, Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))
            changed = transitions.initialized(metadata, timeout, producer, new_id, now)
            if isinstance(changed, ErrorCode):
                return Outcome(changed)
            return Changed(changed, Outcome(ErrorCode.NONE, changed.producer_id, changed.epoch))

        return self._loop.start(self._change(transactional_id, rule, Outcome))

    def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], version: int
    ) -> Wait[ErrorCode]:
        """See Coordinator. Which partitions are in it follows from what is written."""
        return self._loop.start(self._add(transactional_id, producer_id, epoch, version))

    async def _add(self, name: str, producer_id: int, epoch: int, version: int) -> ErrorCode:
        now = self._logs.clock()

        def rule(current: TransactionMetadata | None) -> Changed | ErrorCode:
            if current is None:
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if error := transitions.check_producer(current, producer_id, epoch):
                return error
            changed = transitions.extended(current, _NO_PARTITIONS, version, now)
            if isinstance(changed, ErrorCode) or changed is current:
                return changed if isinstance(changed, ErrorCode) else ErrorCode.NONE
            return Changed(changed, ErrorCode.NONE, Step.BEGIN, (producer_id, epoch))

        error: ErrorCode = await self._change(name, rule, lambda error: error)
        return error

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, version: int) -> Wait[Outcome]:
        """See Coordinator."""
        now, new_id = self._logs.clock(), self._new_producer_id()

        def rule(current: TransactionMetadata | None) -> Changed | Outcome:
            if current is None:
                return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            decided = transitions.ended(
                current, producer_id, epoch, commit=commit, version=version, new_id=new_id, now=now
            )
            if isinstance(decided, ErrorCode):
                return Outcome(decided)
            if decided is current:
                return Outcome(ErrorCode.NONE, current.producer_id, current.epoch)
            after, step = transitions.completed(decided, now), Step.NONE
            if current.state is TransactionState.ONGOING:
                step = Step.COMMIT if commit else Step.ABORT
            answer = Outcome(ErrorCode.NONE, after.producer_id, after.epoch)
            return Changed(after, answer, step, (current.producer_id, current.epoch))

        return self._loop.start(self._change(transactional_id, rule, Outcome))

    async def _change(self, name: str, rule: Rule, failed: Callable[[ErrorCode], Any]) -> Any:  # noqa: ANN401  (what the rule answers)
        """What the rule answers; what `failed` makes of an error, after which clients try again."""
        if name in self._changing:
            return failed(ErrorCode.CONCURRENT_TRANSACTIONS)
        self._changing.add(name)
        try:
            return await self._shared.change(name, rule)
        except (PylogError, OSError, ValueError) as error:
            _log.error("transactional id %s: its state could not be written: %s", name, error)
            return failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        finally:
            self._changing.discard(name)

    # ---- what is appended in a transaction

    async def admit(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:  # fmt: skip
        """See Admission. What is appended counts only if the transaction is open when that is decided."""
        current = self._shared.of(transactional_id)
        is_open = current is not None and current.state is TransactionState.ONGOING
        if is_open and current is not None and (current.producer_id, current.epoch) == (producer_id, epoch):
            return dict.fromkeys(partitions, ErrorCode.NONE)
        if adds:
            error = await self._add(transactional_id, producer_id, epoch, transitions.EPOCH_EACH)
        else:
            error = await self._change(
                transactional_id, lambda newest: _may_append(newest, producer_id, epoch), lambda failure: failure
            )
        return dict.fromkeys(partitions, error)

    def release(self, transactional_id: str, producer_id: int) -> None:
        """See Admission. Nothing waits for it."""

    # ---- time

    def watch(self) -> None:
        """Looks after time-outs from now on."""
        self._loop.call_later(_CHECK, self._check)

    def _check(self) -> None:
        self._loop.call_later(_CHECK, self._check)
        seen, now = self._seen, self._loop.time()
        self._seen = {}
        for name, metadata in self._shared.open().items():
            # No clocks are compared: it lasts as long as this server has seen it. In the first version of the protocol
            # the next one has the same epoch, but another begin.
            before, since = seen.get(name, (None, now))
            if before != metadata:
                since = now
            self._seen[name] = metadata, since
            if (now - since) * 1000 > metadata.timeout:
                _log.info("transactional id %s: aborting its transaction after %d s", name, now - since)
                self._loop.start(self._abort(name, metadata))

    async def _abort(self, name: str, late: TransactionMetadata) -> None:
        now = self._logs.clock()

        def rule(current: TransactionMetadata | None) -> Changed | None:
            return _fenced(current, now, None) if current is not None and current == late else None

        await self._change(name, rule, lambda _: None)


def _fenced(metadata: TransactionMetadata, now: int, answer: object) -> Changed:
    """The open transaction is aborted, and its producer fenced."""
    after = transitions.completed(transitions.fenced(metadata, now), now)
    return Changed(after, answer, Step.ABORT, (metadata.producer_id, metadata.epoch))


def _may_append(current: TransactionMetadata | None, producer_id: int, epoch: int) -> ErrorCode:
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if error := transitions.check_producer(current, producer_id, epoch):
        return error
    return ErrorCode.NONE if current.state is TransactionState.ONGOING else ErrorCode.INVALID_TXN_STATE
