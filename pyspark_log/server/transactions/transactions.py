"""The transactions of a server: it decides, writes what it decides, and writes the markers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

from pyspark_log.config import int_config
from pyspark_log.errors import PartitionOwnedError, PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import Loop, Wait, Workers
from pyspark_log.server.served import ServedLogs
from pyspark_log.server.transactions import transitions
from pyspark_log.server.transactions.coordinator import Outcome
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.transactions import NO_EPOCH, NO_PRODUCER, TransactionMetadata, TransactionState
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

# How often open transactions are looked at, in seconds, and after how many of those times ids that nothing uses.
_CHECK, _CHECKS_OF_IDS = 1.0, 3600
# How long an answer waits for the markers, so that the client's next transaction need not; in seconds.
_PATIENCE = 0.5
# After what time a marker is tried again that could not be written, in seconds.
_AGAIN = 1.0
_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_AT_REST = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class Cluster(Protocol):
    """What the coordinator of a cluster waits for; one of a store alone needs nothing of it."""

    async def written(self, transactional_id: str) -> ErrorCode:
        """Waits until other replicas have what was written of an id."""

    async def mark(self, at: TopicPartition, producer_id: int, epoch: int, marker: EndTxnMarker) -> bool:
        """Writes a marker to the leader of a partition; whether it is written."""


@dataclass
class _Id:
    """A transactional id.

    Attributes:
        metadata: as the log has it; None: nothing is written yet.
        is_changing: whether a change of it is being written.
        is_ending: whether that is the end of its transaction, or waits for what is being appended.
        appending: how many requests append to partitions in its transaction.
        on_rest: called when that is none.
    """

    metadata: TransactionMetadata | None = None
    is_changing: bool = False
    is_ending: bool = False
    appending: int = 0
    on_rest: list[Wait[None]] = field(default_factory=list)


class Transactions:
    """Coordinates the transactions of a store: see Coordinator and Admission.

    Attributes:
        log: the log of transactions.
        max_timeout: for how long a transaction may last at most, in ms.
    """

    def __init__(
        self, loop: Loop, workers: Workers, logs: ServedLogs, new_producer_id: Callable[[], int], *, sync: bool,
        cluster: Cluster | None = None,
    ) -> None:  # fmt: skip
        """Knows no transactions yet.

        Args:
            loop, workers: of the server.
            logs: what is served.
            new_producer_id: gives ids for producers.
            sync: whether decisions and markers survive a power loss before they are answered.
            cluster: that the server is a node of; None: it is none.
        """
        self._loop, self._workers, self._logs = loop, workers, logs
        self._new_producer_id, self._sync, self._cluster = new_producer_id, sync, cluster
        self.log = logs.transactions
        self._ids = dict[str, _Id]()
        self.max_timeout = int_config(logs.configs, "transaction.max.timeout.ms")
        self._expiration = int_config(logs.configs, "transactional.id.expiration.ms")
        self._checks = 0

    @property
    def metadata(self) -> dict[str, TransactionMetadata]:
        """What is known of each transactional id."""
        return {name: entry.metadata for name, entry in self._ids.items() if entry.metadata is not None}

    # ---- the beginning

    def load(self) -> None:
        """Takes in what the log has, before any request; what a killed server had decided is completed."""
        if not self.log.writable:
            return
        self.take_over(self.log.load())
        self.watch()

    def watch(self) -> None:
        """Looks after time-outs from now on."""
        self._loop.call_later(_CHECK, self._check)

    def take_over(self, loaded: Mapping[str, TransactionMetadata]) -> None:
        """Takes in what the log has of ids that are coordinated here from now on."""
        for name, metadata in loaded.items():
            entry = self._ids[name] = _Id(metadata)
            if metadata.state in _PREPARED:
                _log.info("transactional id %s: writing the markers of its last transaction", name)
                self._loop.call_soon(self._resume, name, entry)

    def give_up(self, names: Iterable[str]) -> None:
        """Forgets ids that another server coordinates now; what is under way for them ends."""
        for name in names:
            self._ids.pop(name, None)

    def names(self) -> list[str]:
        """The ids that are known."""
        return list(self._ids)

    def _resume(self, name: str, entry: _Id) -> None:
        self._loop.start(self._complete(name, entry))

    def _now(self) -> int:
        return self._logs.clock()

    # ---- requests

    def init_producer(self, transactional_id: str, timeout: int, producer: tuple[int, int]) -> Wait[Outcome]:
        """See Coordinator."""
        return self._loop.start(self._init_producer(transactional_id, timeout, producer))

    async def _init_producer(self, name: str, timeout: int, producer: tuple[int, int]) -> Outcome:
        entry = self._ids.setdefault(name, _Id())
        now = self._now()
        metadata = entry.metadata or TransactionMetadata(
            self._new_producer_id(), NO_EPOCH, timeout, TransactionState.EMPTY, updated=now
        )
        if entry.is_changing or metadata.state in _PREPARED:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if metadata.state is TransactionState.ONGOING:
            if producer[0] not in (NO_PRODUCER, metadata.producer_id):
                return Outcome(ErrorCode.PRODUCER_FENCED)
            await self._end(name, entry, transitions.fenced(metadata, now))
            # As in Kafka: the client asks again, and then its epoch is another one.
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        changed = transitions.initialized(metadata, timeout, producer, self._new_producer_id(), now)
        if isinstance(changed, ErrorCode):
            return Outcome(changed)
        error = await self._write(name, entry, changed)
        return Outcome(error) if error else Outcome(error, changed.producer_id, changed.epoch)

    def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], version: int
    ) -> Wait[ErrorCode]:
        """See Coordinator."""
        return self._loop.start(self._add(transactional_id, producer_id, epoch, partitions, version))

    async def _add(
        self, name: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], version: int
    ) -> ErrorCode:
        entry = self._ids.get(name)
        if entry is None or entry.metadata is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if error := transitions.check_producer(entry.metadata, producer_id, epoch):
            return error
        if entry.is_changing:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        changed = transitions.extended(entry.metadata, partitions, version, self._now())
        if isinstance(changed, ErrorCode):
            return changed
        return await self._write(name, entry, changed) if changed is not entry.metadata else ErrorCode.NONE

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, version: int) -> Wait[Outcome]:
        """See Coordinator."""
        return self._loop.start(self._end_by_client(transactional_id, producer_id, epoch, commit, version))

    async def _end_by_client(self, name: str, producer_id: int, epoch: int, commit: bool, version: int) -> Outcome:
        entry = self._ids.get(name)
        if entry is None or entry.metadata is None:
            return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        metadata = entry.metadata
        changed = transitions.ended(
            metadata,
            producer_id,
            epoch,
            commit=commit,
            version=version,
            new_id=self._new_producer_id(),
            now=self._now(),
        )
        if isinstance(changed, ErrorCode):
            return Outcome(changed)
        if entry.is_changing:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        if changed is metadata:
            return Outcome(ErrorCode.NONE, metadata.producer_id, metadata.epoch)
        error = await self._end(name, entry, changed)
        if error:
            return Outcome(error)
        return Outcome(
            ErrorCode.NONE, *(changed.producer_id, changed.epoch) if changed.next_id < 0 else (changed.next_id, 0)
        )

    # ---- what is appended in a transaction

    async def admit(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:  # fmt: skip
        """See Admission."""
        # From now on: nothing comes between the check and the append.
        entry = self._ids.setdefault(transactional_id, _Id())
        entry.appending += 1
        return await self.join(transactional_id, producer_id, epoch, partitions, adds=adds)

    async def join(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:  # fmt: skip
        """Whether partitions are in the producer's transaction; with `adds`, they join it. Arguments as of `admit`.

        Those that are in it stay so while others join.
        """
        entry = self._ids.get(transactional_id)
        metadata = None if entry is None else entry.metadata
        if entry is None or metadata is None:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        error = transitions.check_producer(metadata, producer_id, epoch)
        if not error and (entry.is_ending or metadata.state in _PREPARED):
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error:
            return dict.fromkeys(partitions, error)
        has = metadata.partitions & partitions if metadata.state is TransactionState.ONGOING else frozenset()
        if others := partitions - has:
            if adds:
                error = await self._add(transactional_id, producer_id, epoch, others, transitions.EPOCH_EACH)
            else:
                # Those that are joining may be among them.
                error = ErrorCode.CONCURRENT_TRANSACTIONS if entry.is_changing else ErrorCode.INVALID_TXN_STATE
        return dict.fromkeys(has, ErrorCode.NONE) | dict.fromkeys(others, error)

    def release(self, transactional_id: str, producer_id: int) -> None:
        """See Admission."""
        entry = self._ids[transactional_id]
        entry.appending -= 1
        if not entry.appending:
            waiting, entry.on_rest = entry.on_rest, []
            for wait in waiting:
                wait.finish(None)
            if entry.metadata is None and not entry.is_changing:
                del self._ids[transactional_id]

    # ---- deciding

    async def _end(self, name: str, entry: _Id, decided: TransactionMetadata) -> ErrorCode:
        """Writes a decision, and begins with its markers; returns when they are written, or are taking long."""
        entry.is_changing = entry.is_ending = True
        try:
            if entry.appending:
                rest: Wait[None] = Wait()
                entry.on_rest.append(rest)
                await rest
            error = await self._write(name, entry, decided)
        finally:
            entry.is_changing = entry.is_ending = False
        if error:
            return error
        enough: Wait[None] = Wait()
        self._loop.start(self._complete(name, entry)).then(lambda: enough.finish(None))
        timer = self._loop.call_later(_PATIENCE, enough.finish, None)
        await enough
        timer.cancel()
        return ErrorCode.NONE

    async def _write(self, name: str, entry: _Id, metadata: TransactionMetadata | None) -> ErrorCode:
        if self._ids.get(name) is not entry:
            return ErrorCode.NOT_COORDINATOR
        entry.is_changing = True
        try:
            await self._workers.run(lambda: self.log.write(name, metadata, sync=self._sync))
            if self._cluster is not None and (error := await self._cluster.written(name)):
                return error
            if self._ids.get(name) is not entry:
                # It was given up, and maybe taken over again: what was loaded then may lack this, and counts.
                return ErrorCode.NOT_COORDINATOR
        except PartitionOwnedError:
            return ErrorCode.NOT_COORDINATOR
        except (PylogError, OSError, ValueError) as error:
            _log.error("transactional id %s: its state could not be written: %s", name, error)
            # Which clients try again: the newest record counts, so one that was written nevertheless does not matter.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        finally:
            entry.is_changing = False
        entry.metadata = metadata
        return ErrorCode.NONE

    async def _complete(self, name: str, entry: _Id) -> None:
        """Writes the markers of a decision, as long as it takes, and that this is done."""
        metadata = entry.metadata
        assert metadata is not None
        partitions: Iterable[TopicPartition] = sorted(metadata.partitions)
        while partitions and self._ids.get(name) is entry:
            written = [(at, self._write_marker(name, metadata, at)) for at in partitions]
            partitions = [at for at, wait in written if not await wait]
            if partitions:
                await self._pause()
        while self._ids.get(name) is entry and await self._write(
            name, entry, transitions.completed(metadata, self._now())
        ):
            await self._pause()

    def _write_marker(self, name: str, metadata: TransactionMetadata, at: TopicPartition) -> Wait[bool]:
        """Writes one marker; whether it is written."""
        if self._cluster is None:
            return self._workers.run(self._write_marker_here, name, metadata, at)
        marker = EndTxnMarker(metadata.state is TransactionState.PREPARE_COMMIT, self.log.coordinator_epoch(name))
        return self._loop.start(self._cluster.mark(at, metadata.producer_id, metadata.epoch, marker))

    def _write_marker_here(self, name: str, metadata: TransactionMetadata, at: TopicPartition) -> bool:
        """Writes one marker, in a thread; whether it is written."""
        marker = EndTxnMarker(metadata.state is TransactionState.PREPARE_COMMIT, self.log.coordinator_epoch(name))
        try:
            self.log.end(at, metadata.producer_id, metadata.epoch, marker, sync=self._sync)
        except (PylogError, OSError) as error:
            _log.error("transactional id %s: its marker could not be written, trying again: %s", name, error)
            return False
        return True

    async def _pause(self) -> None:
        wait: Wait[None] = Wait()
        self._loop.call_later(_AGAIN, wait.finish, None)
        await wait

    # ---- time

    def _check(self) -> None:
        self._loop.call_later(_CHECK, self._check)
        self.abort_late()
        self._checks += 1
        if self._checks % _CHECKS_OF_IDS == 0:
            self.forget_idle()

    def abort_late(self) -> None:
        """Aborts transactions that last longer than their producers have said."""
        now = self._now()
        for name, entry in list(self._ids.items()):
            metadata = entry.metadata
            is_open = metadata is not None and metadata.state is TransactionState.ONGOING and not entry.is_changing
            if is_open and metadata is not None and now > metadata.started + metadata.timeout:
                _log.info("transactional id %s: aborting its transaction after %d ms", name, now - metadata.started)
                self._loop.start(self._end(name, entry, transitions.fenced(metadata, now)))

    def forget_idle(self) -> None:
        """Forgets ids that were not used for transactional.id.expiration.ms."""
        for name, entry in list(self._ids.items()):
            metadata, until = entry.metadata, self._now() - self._expiration
            if (
                metadata is not None
                and metadata.state in _AT_REST
                and metadata.updated <= until
                and not entry.is_changing
            ):
                self._loop.start(self._forget(name, entry))

    async def _forget(self, name: str, entry: _Id) -> None:
        # Meanwhile it may be another server's.
        if not await self._write(name, entry, None) and not entry.appending and self._ids.get(name) is entry:
            del self._ids[name]
