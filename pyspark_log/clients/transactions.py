"""Transactions in plain Python: appends to several topics, and the committed offsets of the groups that were read,
atomically.

    transactions = Transactions(store, "enrich-orders")
    with transactions.begin() as transaction:
        transaction.append("enriched", batch)
        transaction.send_offsets("enrich", {TopicPartition("orders", 0): (100, 200)})

What is appended is staged, and published when the transaction commits: no reader ever waits for an open
transaction, and an aborted one leaves nothing in a log. As with Kafka's producer (KIP-98), a transactional id
belongs to its newest instance; those before it are fenced.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from enum import Enum
from types import TracebackType

import pyarrow as pa

from pyspark_log.errors import (
    InvalidConfigError,
    OffsetConflictError,
    OutcomeUnknownError,
    PublishError,
    PublishFailedError,
    PublishPendingError,
    PylogError,
    SetAsideError,
    StagedOutputError,
    TransactionStateError,
    condition_of,
)
from pyspark_log.storage.groups import committed_offsets
from pyspark_log.storage.publish import PlannedTopic, PublishResult, StagedPart, StagingPlan
from pyspark_log.storage.record.rows import Rows, to_arrow
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition

# The prefix that turns a transactional id into a publisher's id, which no query and no batch write has.
_PUBLISHER = "transaction-"


class Transactions:
    """The transactions of one transactional id, one after another. Not thread-safe, nor for a forked child.

    Attributes:
        store: where.
        transactional_id: whose.
        last_number: the number of the last transaction that was committed under this id, by any instance; -1: none.
            Numbers count up from 0. A caller that keeps a transaction's number can check later if it was committed.
    """

    def __init__(self, store: Store, transactional_id: str) -> None:
        """Takes over the id, and finishes what an earlier instance has committed.

        Raises:
            InvalidConfigError: the id is empty, or no Unicode text.
            PublishPendingError: the last transaction that was committed could not be finished; it can be tried again.
            PublishFailedError: the id could not be taken over; it can be tried again.
        """
        if not transactional_id:
            raise InvalidConfigError("a transactional id is empty")
        self.store = store
        self.transactional_id = transactional_id
        self._publisher = _PUBLISHER + transactional_id
        self._run = str(uuid.uuid4())
        self._process = os.getpid()
        self._open: Transaction | None = None
        self.last_number = store.publishes.claim(self._publisher, self._run)

    def begin(self) -> Transaction:
        """Begins a transaction. It ends with `commit` or `abort`, or with the block of a `with`.

        Raises:
            TransactionStateError: the one before it is still open, or this is a forked child.
            PublisherFencedError: a newer instance has the id.
        """
        self._check_process()
        if self._open is not None and not self._open.ended:
            raise self._open.state_error("is still open: commit or abort it first")
        self.store.publishes.check_claim(self._publisher, self._run)
        self._open = Transaction(self, self.last_number + 1)
        return self._open

    def _check_process(self) -> None:
        # A forked child would commit under the numbers of its parent.
        if os.getpid() != self._process:
            raise TransactionStateError(
                f"transactional id {self.transactional_id!r} was taken over by process {self._process}, and this "
                "process is its child: create a new Transactions object here"
            )

    def _publish(self, number: int, parts: list[StagedPart], offsets: list[OffsetStep]) -> PublishResult:
        result = self.store.publishes.publish(
            self._publisher, number, parts, steps=offsets, run=self._run, claimed=True
        )
        self.last_number = number
        return result

    def _revoke(self, number: int, parts: list[StagedPart]) -> bool:
        return self.store.publishes.revoke(self._publisher, number, parts, self._run)


class _Fate(Enum):
    """The outcome of a transaction's commit."""

    OPEN = 1
    UNKNOWN = 2
    COMMITTED = 3


class Transaction:
    """One transaction; `Transactions.begin` makes it. At the end of its `with` it commits, after an error it aborts.

    Attributes:
        number: which one it is of its transactional id.
        ended: whether it is committed or aborted, for certain.
    """

    def __init__(self, owner: Transactions, number: int) -> None:
        """For `Transactions.begin`."""
        self.number = number
        self.ended = False
        self._owner = owner
        self._topics: dict[str, PlannedTopic] = {}
        # Each topic joins the plan with its first records, and keeps the partitions that it has then.
        self._writer = owner.store.publishes.writer(StagingPlan(owner.store.cluster_id, self._topics))
        self._steps: dict[tuple[str, TopicPartition], OffsetStep] = {}
        self._parts: list[StagedPart] | None = None  # once it is being committed
        self._failed = False
        self._fate = _Fate.OPEN

    def append(self, topic: str, data: Rows) -> None:
        """Adds records, which readers see once the transaction is committed.

        Args:
            topic: an existing topic.
            data: as for Store.append.

        Raises:
            TransactionStateError: the transaction has ended, is being committed, or can only be aborted.
            InvalidConfigError: the data are no rows; nothing was staged.
            UnknownTopicError, InvalidTopicError, InvalidRecordError, OSError: as Store.append says. A part of the
                records may be staged by then, so the transaction can only be aborted.
        """
        self._check_open()
        rows = to_arrow(data)
        try:
            if topic not in self._topics:
                self._topics.update(self._owner.store.publishes.plan([topic]).topics)
            for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
                self._writer.append(topic, batch)
        except BaseException:
            self._failed = True
            raise

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int | None, int]]) -> None:
        """Moves committed offsets of a consumer group atomically with the transaction.

        The commit is refused if a committed offset is not the expected one; so if another process has read on for the
        group (another member, an older instance that still runs), no records are processed twice.

        Args:
            group: the group's name.
            offsets: for each partition the committed offset that the transaction's reading began with (None: the group
                had none), and the offset of the next record to read after it. A partition that was given before
                must start where it ended then.

        Raises:
            TransactionStateError: the transaction has ended, is being committed, or can only be aborted.
            InvalidConfigError: the group has no name, or an offset is negative or lies before its beginning; nothing
                was added.
        """
        self._check_open()
        committed_offsets.check(group, {at: end for at, (_, end) in offsets.items()})
        steps = {}
        for at, (start, end) in offsets.items():
            if start is not None and not 0 <= start <= end:
                raise InvalidConfigError(f"group {group}: the offset of {at} cannot move from {start} to {end}")
            before = self._steps.get((group, at))
            if before is not None and before.offset != start:
                raise InvalidConfigError(
                    f"group {group}: the transaction has read {at} up to offset {before.offset}, so it cannot continue "
                    f"from {start}"
                )
            steps[group, at] = OffsetStep(group, at, start if before is None else before.expected, end)
        self._steps |= steps

    def commit(self) -> PublishResult:
        """Commits the transaction, exactly once. Returns when the records are visible and durable.

        The type of an error gives the transaction's outcome, also if `commit` was called before.

        Raises:
            TransactionStateError: it has ended, or can only be aborted.
            PublishFailedError: it is not committed; call `commit` again, or `abort`.
            PublisherFencedError, OffsetConflictError, or another PublishError: it has ended, and is not committed, as a
                newer instance has the transactional id, or a committed offset is another one than was given.
            PublishPendingError: it is committed, and appears as soon as it can be written. `commit` again waits for it.
            OutcomeUnknownError: it is committed or not. Call `commit` again to have it committed, or `abort` to find
                out. After an interrupt it is the same. Another process finds out by Transactions.last_number.
        """
        parts = self._staged()
        self._check_not_ended()
        before = self._fate
        if before is _Fate.OPEN:
            self._fate = _Fate.UNKNOWN  # until it is known, whatever interrupts it
        try:
            result = self._owner._publish(self.number, parts, list(self._steps.values()))
        except PublishPendingError:
            self._fate = _Fate.COMMITTED
            raise
        except (OffsetConflictError, StagedOutputError, SetAsideError):
            # Refused when all decisions were known, so no earlier call has made this one.
            self.ended = True
            raise
        except PublishError as error:
            if before is not _Fate.OPEN:
                raise self._as_before(before, error) from error
            self._fate = _Fate.OPEN
            self.ended = not isinstance(error, PublishFailedError)
            raise
        self.ended = True
        return result

    def _staged(self) -> list[StagedPart]:
        """All that was appended, staged to its end. PublishFailedError: that failed."""
        if self._parts is None:
            self._check_open()
            try:
                self._parts = self._writer.finish()
            except (PylogError, OSError) as error:
                self._failed = True
                condition = condition_of(error)
                raise PublishFailedError(
                    f"transaction {self.number} of {self._owner.transactional_id!r} is not committed and can only be "
                    f"aborted, because not all of its output could be staged: [{condition}] {error}",
                    condition,
                    error.retriable if isinstance(error, PylogError) else False,
                ) from error
            except BaseException:
                self._failed = True
                raise
        return self._parts

    def _as_before(self, fate: _Fate, error: PublishError) -> PylogError:
        """An error of a call that has committed nothing, after a call that has, or may have."""
        what = f"transaction {self.number} of {self._owner.transactional_id!r}"
        if fate is _Fate.COMMITTED:
            return PublishPendingError(
                f"{what} was committed by an earlier call, but is not visible yet: [{error.condition}] {error}",
                error.condition,
                error.retriable,
            )
        return OutcomeUnknownError(
            f"{what} may have been committed by an earlier call; this one could not determine it: "
            f"[{error.condition}] {error}"
        )

    def abort(self) -> None:
        """Ensures that none of it is committed, and removes what was staged.

        Raises:
            TransactionStateError: it has ended; above all, a `commit` that failed has committed it.
            PublisherFencedError: a newer instance has the id; after a `commit` with an unknown outcome. Nothing of it
                was committed.
            OutcomeUnknownError: after a `commit` with an unknown outcome it could not be found out what that did. If a
                newer instance has the id, it can be seen in the topics only.
        """
        self._check_not_ended()
        if self._parts is None:
            self._writer.discard()
        elif self._fate is _Fate.OPEN:
            self._owner.store.publishes.discard(self._parts)
        elif self._fate is _Fate.COMMITTED or not self._owner._revoke(self.number, self._parts):
            self._fate = _Fate.COMMITTED
            raise self.state_error("is committed already; call commit() again to wait until all of it is visible")
        self.ended = True

    def _check_open(self) -> None:
        self._check_not_ended()
        if self._failed or self._parts is not None:
            raise self.state_error("can only be aborted: an append failed" if self._failed else "is being committed")

    def _check_not_ended(self) -> None:
        self._owner._check_process()
        if self.ended:
            raise self.state_error("has ended")

    def state_error(self, what: str) -> TransactionStateError:
        """An error that gives the transaction's state."""
        return TransactionStateError(f"transaction {self.number} of {self._owner.transactional_id!r} {what}")

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            if not self.ended:
                self.commit()
        elif not self.ended and self._parts is None:
            self.abort()
