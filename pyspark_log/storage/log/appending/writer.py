"""Appends to one partition's log, while its lock is held.

In short: bytes first, then the log end, then the index entries. Until the end moves, no reader sees what was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark_log.errors import InvalidRecordError, ProducerError, RecordTooLargeError
from pyspark_log.storage.log.appending.append import AppendPlan, Copy, append, append_in_room, must_roll
from pyspark_log.storage.log.appending.appends import Appended, Extent, Outcomes
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.producers.manager import ProducerAppendInfo
from pyspark_log.storage.log.producers.state import Duplicate
from pyspark_log.storage.log.source_positions import SourcePositions
from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.record import BatchHeader, assign_offsets, scan


def _of_duplicate(first: Duplicate) -> Appended:
    return Appended(first.base_offset, first.last_offset + 1, duplicate=True)


class LogWriter:
    """Appends to a partition, whose lease `Turnstile.hold` holds; `log` and `config` are those of the turnstile."""

    def __init__(self, log: HeldLog) -> None:
        self.log, self.config = log, log.config

    @property
    def state(self) -> PartitionState:
        """The partition's state; the lease is held."""
        return self.log.lease.held.state

    def append(self, data: bytearray, *, sync: bool, first_undone: int | None = None) -> Appended:
        """Appends whole record batches; the caller holds the lock.

        Args:
            data: batches in format 2, back to back, with dense offsets from 0; their offsets are set here. A batch
                with a producer id comes alone.
            sync: True: acknowledged records survive a power loss.
            first_undone: for the decision log: its new value in the state.

        Returns:
            The offsets that the records have; those of the first time, if their producer sends them again.

        Raises:
            RecordTooLargeError: larger than a segment may be.
            PartitionOwnedError: another than this process gives the records their offsets.
            ProducerError: the batch does not follow its producer's last one; nothing was appended.
            OSError: e.g. a full disk; nothing was appended.
            OutcomeUnknownError: a sync failed; readers see nothing of the append, but the disk can no longer be
                trusted with this segment. The next append begins another one. Or what a failed append wrote could
                not be removed: the next writer does that, unless a power loss comes first.
        """
        if len(data) > self.config.segment_bytes:
            raise RecordTooLargeError(
                f"{self.log.place}: an append of {len(data)} bytes is larger than segment.bytes "
                f"({self.config.segment_bytes}): append fewer records at a time, or raise segment.bytes"
            )
        assign_offsets(data, 0, len(data), self.state.next_offset, self.state.leader_epoch)
        headers = scan(data, 0, len(data))
        numbered = self._validate(headers, data)
        if numbered is not None and numbered.duplicate is not None:
            self._flush_due(sync=sync)
            return _of_duplicate(numbered.duplicate)
        return self._write(data, headers, () if numbered is None else (numbered,), sync=sync, first_undone=first_undone)

    def append_each(self, batches: Sequence[bytes | bytearray], *, sync: bool) -> Outcomes:
        """Appends batches of clients, each for itself: a refused batch leaves the others as they are.

        All become visible at once; but one after the other where the topic has `source.position.header`, which leaves
        out records that the log has. Arguments that are missing here, and errors, are those of `append`.

        Args:
            batches: that the topic accepts; no control batches.

        Returns:
            The offsets of each batch, or why it was refused.
        """
        if self.log.sources is not None and len(batches) > 1:
            return [outcome for batch in batches for outcome in self.append_each([batch], sync=sync)]
        data, headers, numbered, outcomes = self._accepted(batches)
        if not headers:
            self._flush_due(sync=sync)
        elif sync or not append_in_room(self.log, data, headers, numbered):
            self._write(data, headers, numbered, sync=sync)
        self._enter_sources(headers)
        return outcomes

    def append_each_in_room(self, batches: Sequence[bytes | bytearray]) -> Outcomes | None:
        """As `append_each`; None: it needs more than `append_in_room` does, and nothing was done."""
        if self.log.sources is not None and len(batches) > 1:
            return None
        data, headers, numbered, outcomes = self._accepted(batches)
        if isinstance(outcomes[0], InvalidRecordError):
            return outcomes  # It is refused once, and perhaps not the next time.
        if not headers or not append_in_room(self.log, data, headers, numbered):
            return None
        self._enter_sources(headers)
        return outcomes

    def _accepted(
        self, batches: Sequence[bytes | bytearray]
    ) -> tuple[bytearray, list[BatchHeader], Sequence[ProducerAppendInfo], Outcomes]:
        """Batches that are neither refused nor in the log: bytes, headers, with producer ids; and all outcomes."""
        data, headers = self._joined(batches)
        producer_ids = {header.producer_id for header in headers if header.producer_id >= 0}
        if not producer_ids:
            outcomes: Outcomes = [Appended(header.base_offset, header.next_offset) for header in headers]
            if self.log.sources is None:
                return data, headers, (), outcomes
        else:
            outcomes = self._check_one(headers[0]) if len(headers) == 1 else self._check_each(headers, producer_ids)
        if self.log.sources is not None:
            batches, outcomes = self._sifted(self.log.sources, batches, outcomes)
        accepted = [
            batch
            for batch, outcome in zip(batches, outcomes, strict=True)
            if isinstance(outcome, Appended) and not outcome.duplicate
        ]
        if len(accepted) < len(batches) or self.log.sources is not None:
            data, headers = self._joined(accepted)
        numbered = [ProducerAppendInfo(header, None, None, None) for header in headers if header.producer_id >= 0]
        return data, headers, numbered, outcomes

    def _sifted(
        self, sources: SourcePositions, batches: Sequence[bytes | bytearray], outcomes: Outcomes
    ) -> tuple[Sequence[bytes | bytearray], Outcomes]:
        """The only batch and its outcome, once the records are left out that the log has."""
        if not isinstance(outcomes[0], Appended) or outcomes[0].duplicate:
            return batches, outcomes
        try:
            return [sources.sift(self.state, batches[0])], outcomes
        except InvalidRecordError as error:
            return batches, [error]

    def _enter_sources(self, appended: Sequence[BatchHeader]) -> None:
        if appended and self.log.sources is not None:
            self.log.sources.enter(self.state)

    def _joined(self, batches: Sequence[bytes | bytearray]) -> tuple[bytearray, list[BatchHeader]]:
        """The bytes of batches with the next offsets of the log, and their headers."""
        data, held = bytearray().join(batches), self.log.lease.held
        assign_offsets(data, 0, len(data), held.next_offset, held.stored.leader_epoch)
        return data, scan(data, 0, len(data))

    def _check_one(self, header: BatchHeader) -> Outcomes:
        """As `_check_each` for the only batch, which has a producer id: nothing need be copied for those after it."""
        # Without the bytes of the file, which `state` puts together.
        state = self.log.lease.held.moved()
        try:
            duplicate = self.log.producers.validate(state, b"", header, self.log.clock()).duplicate
        except ProducerError as error:
            return [error]
        return [_of_duplicate(duplicate) if duplicate else Appended(header.base_offset, header.next_offset)]

    def _check_each(self, headers: Sequence[BatchHeader], producer_ids: set[int]) -> Outcomes:
        """Where each batch goes if those that are refused, and those that are in the log already, are left out."""
        ahead = self.log.producers.copy(self.state, producer_ids, self.log.clock())
        end = self.state.next_offset
        outcomes: Outcomes = []
        for sent in headers:
            header = sent._replace(base_offset=end)
            if header.producer_id >= 0:
                try:
                    duplicate = ahead.check(header)
                except ProducerError as error:
                    outcomes.append(error)
                    continue
                if duplicate is not None:
                    outcomes.append(_of_duplicate(duplicate))
                    continue
                ahead.enter(header)
            outcomes.append(Appended(end, header.next_offset))
            end = header.next_offset
        return outcomes

    def _flush_due(self, *, sync: bool) -> None:
        """Syncs what was appended before, after an append that adds nothing; `sync`: as it asks."""
        if sync or self.log.must_sync(self.state.next_offset):
            self.log.flush()

    def _write(
        self,
        data: bytearray,
        headers: Sequence[BatchHeader],
        numbered: Sequence[ProducerAppendInfo],
        *,
        sync: bool,
        first_undone: int | None = None,
    ) -> Appended:
        """Appends batches that have their offsets; `numbered`: those that have producer ids. Errors as `append`."""
        copy = Copy(len(data), headers[-1].next_offset - self.state.next_offset, (data,), headers)
        newest = max([header.max_timestamp for header in headers])
        return append(self.log, AppendPlan((copy,), newest, sync, numbered, first_undone))

    def append_pieces(self, pieces: Iterator[memoryview], most: Extent, *, sync: bool) -> Appended:
        """Appends record batches that are encoded while those before them are written.

        All of them become visible at once. Arguments that are missing here, and errors, are those of `append`.

        Args:
            pieces: whole batches without producer ids. The memory of a piece may change when the next but one is asked
                for.
            most: what they are together, at most.
        """
        if not self.has_room(most):
            # Perhaps: only all of them together show whether they still fit.
            data = bytearray()
            for piece in pieces:
                data += piece
            return self.append(data, sync=sync)
        copy = Copy(most.size, most.records, pieces, encoded_meanwhile=True)
        return append(self.log, AppendPlan((copy,), most.newest, sync))

    def has_room(self, most: Extent) -> bool:
        """Whether so much surely fits into the active segment; the lock is held."""
        return not must_roll(self.log, most.size, self.state.next_offset + most.records - 1, most.newest)

    def _validate(self, headers: Sequence[BatchHeader], data: bytearray) -> ProducerAppendInfo | None:
        """Checks a batch with a producer id against this partition's producers; None for all others."""
        if all(header.producer_id < 0 for header in headers):
            return None
        if len(headers) != 1:
            raise InvalidRecordError(f"{self.log.place}: {len(headers)} batches at once, one with a producer id")
        return self.log.producers.validate(self.state, data, headers[0], self.log.clock())
