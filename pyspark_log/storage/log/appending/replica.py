"""A log that is a copy of another one: batches as they are, comparison of leader epochs, truncation (KIP-101)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pyspark_log.config import INT_MAX
from pyspark_log.errors import InvalidRecordError, OffsetOutOfRangeError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.appending.append import AppendPlan, Copy, append
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.leader_epochs import EpochStart
from pyspark_log.storage.log.producers.manager import ProducerAppendInfo
from pyspark_log.storage.log.retention import delete_before
from pyspark_log.storage.log.state.partition_state import Flags
from pyspark_log.storage.record import BatchHeader, scan
from pyspark_log.storage.record.empty_batch import empty_batch
from pyspark_log.storage.record.end_txn_marker import decode_end_txn_marker
from pyspark_log.storage.segment import SegmentReader, read_headers


def append_copied(
    log: HeldLog, data: memoryview, headers: Sequence[BatchHeader], starts: Sequence[EpochStart] = (), segment: int = -1
) -> int:
    """Appends batches of another log as they are, with their offsets and leader epochs; the lock is held.

    A segment begins where it would have begun if they had come one by one, as they came to the leader, and where one
    is known to begin there: so the segments of both logs are equal. Empty batches fill the gaps that compaction has
    left there. Producers are not checked: the leader has done that.

    Args:
        log: the copy.
        data: the batches, whose CRCs were checked.
        headers: theirs, with positions in `data`.
        starts: leader epochs that begin where batches are missing, oldest first; without, an epoch begins with its
            first batch.
        segment: the base offset of the segment that they are in; -1: it is not known.

    Returns:
        How many offsets were missing between the batches.

    Raises:
        InvalidRecordError: a batch begins before the log end, or has an older leader epoch than the one before it;
            those before it were appended.
        OSError, OutcomeUnknownError: as `append`.
    """
    place, at, missing = log.place, 0, 0
    last_epoch = _last_epoch(log)
    while at < len(headers):
        first, end = headers[at], log.state.next_offset
        if first.base_offset < end or 0 <= first.leader_epoch < last_epoch:
            raise InvalidRecordError(
                f"{place}: the leader sent a batch with offset {first.base_offset} and leader epoch "
                f"{first.leader_epoch}, after offset {end - 1} and leader epoch {last_epoch}"
            )
        if first.base_offset > end:
            missing += first.base_offset - end
            # Each offset has the leader's epoch: wherever this stops, the log is a beginning of the leader's.
            for epoch, start in starts:
                if end <= start < first.base_offset and last_epoch < epoch <= first.leader_epoch:
                    _fill(log, start, last_epoch)
                    _begin_epoch(log, epoch)
                    last_epoch = epoch
            _fill(log, first.base_offset, last_epoch)
        # The state may lack an epoch that the checkpoint has, after a kill between the two.
        if first.leader_epoch > min(last_epoch, log.state.leader_epoch):
            _begin_epoch(log, first.leader_epoch)
            last_epoch = first.leader_epoch
        if segment > log.segment.base_offset and log.state.position:
            log.roll()
        until = _run(log, headers, at)
        run = headers[at:until]
        _append(log, data[first.position : run[-1].end], run)
        at = until
    return missing


def _last_epoch(log: HeldLog) -> int:
    """The leader epoch of the last batch; -1: there is none, or it has none."""
    epochs, end = leader_epochs.read(log.place.folder), log.state.next_offset
    if epochs.cut_end(end):
        # One that was noted for a batch which did not come, and may never come.
        epochs.write(f"{log.place.folder}/{leader_epochs.FILE_NAME}")
    return epochs.of(end)


def _begin_epoch(log: HeldLog, epoch: int) -> None:
    """Notes a leader epoch that begins at the log end, before a batch has it."""
    leader_epochs.begin(log.place.folder, epoch, log.state.next_offset)
    if epoch > log.state.leader_epoch:
        log.lease.save(log.state._replace(leader_epoch=epoch), durable=True)


def _run(log: HeldLog, headers: Sequence[BatchHeader], at: int) -> int:
    """Up to which of the batches from `at` on one append can take them: no segment begins at one after the first."""
    limits, position, first = log.segment.limits, log.state.position, headers[at]
    offset = first.base_offset
    for index in range(at, len(headers)):
        header = headers[index]
        position += header.size
        fits = (
            position <= limits.position
            and header.next_offset <= limits.next_offset
            and header.max_timestamp <= limits.timestamp
        )
        if not fits or header.base_offset != offset or header.leader_epoch != first.leader_epoch:
            return max(index, at + 1)
        offset = header.next_offset
    return len(headers)


def _fill(log: HeldLog, until: int, epoch: int) -> None:
    """Appends empty batches up to an offset, where compaction has removed batches."""
    while (end := log.state.next_offset) < until:
        room = log.segment.base_offset + INT_MAX + 1 - end
        data = empty_batch(end, min(until, end + (room if room > 0 else INT_MAX)), epoch)
        _append(log, memoryview(data), scan(data, 0, len(data)))


def _append(log: HeldLog, data: memoryview, headers: Sequence[BatchHeader]) -> None:
    numbered = _numbered(log, data, headers)
    copy = Copy(len(data), headers[-1].next_offset - headers[0].base_offset, (data,), headers)
    newest = max(header.max_timestamp for header in headers)
    append(log, AppendPlan((copy,), newest, sync=False, producers=numbered, replicated=True))


def _numbered(log: HeldLog, data: memoryview, headers: Sequence[BatchHeader]) -> Sequence[ProducerAppendInfo]:
    """The batches with producer ids, and what they do; `data` begins with the first of the batches."""
    ids = {header.producer_id for header in headers if header.producer_id >= 0}
    if not ids:
        return ()
    ahead, start = log.producers.copy(log.state, ids, log.clock()), headers[0].position
    infos = []
    for header in headers:
        if header.producer_id < 0:
            continue
        marker = aborted = None
        if header.is_control:
            marker = decode_end_txn_marker(bytes(data[header.position - start : header.end - start]), header)
            aborted = None if marker is None else ahead.aborted_by(header, marker)
        ahead.enter(header, marker)
        infos.append(ProducerAppendInfo(header, marker, aborted, None))
    return infos


def raise_high_watermark(log: HeldLog, offset: int) -> None:
    """Raises what readers see of a node's copy, as its leader says, to its end at most; the lock is held. OSError."""
    held = log.lease.held
    offset = min(offset, held.next_offset)
    if not held.stored.is_replica or offset <= held.high_watermark:
        return
    if log.lease.shared:
        log.lease.save(held.state._replace(high_watermark=offset), durable=False)
    else:
        held.move_end(held.next_offset, held.position, offset)


def begin_to_lead(log: HeldLog, epoch: int) -> None:
    """Begins a new leader epoch of a node's copy, durably, in which this process may append; the lock is held.

    The caller then has LogManager.led name it.

    Raises:
        InvalidRecordError: the log has records of a later epoch.
        OSError: the log is led by none.
    """
    last = _last_epoch(log)
    if epoch <= last:
        raise InvalidRecordError(f"{log.place}: elected for leader epoch {epoch}, but it has records of epoch {last}")
    leader_epochs.begin(log.place.folder, epoch, log.state.next_offset)
    log.lease.save(log.state._replace(leader_epoch=epoch), durable=True)


def restart_at(log: HeldLog, offset: int) -> None:
    """Removes all records, and has the log continue at another offset, durably; the lock is held.

    A stop in the middle leaves an empty log that continues where it began.

    Raises:
        OSError, OutcomeUnknownError, LogDamagedError: as `truncate`.
    """
    truncate(log, log.state.log_start)
    state = log.state
    log.lease.save(
        state._replace(
            log_start=offset, active_base=offset, next_offset=offset, high_watermark=offset, position=0, synced=0,
            generation=state.generation + 1, incarnation=state.incarnation + 1,
        ),
        durable=True,
    )  # fmt: skip
    log.forget_all()
    assert log.segment.base_offset == offset, "the first use creates it"
    # The empty segment that the truncation has left.
    log.drop_newer_segments()
    delete_before(log, offset)


def end_of_agreement(log: HeldLog, epoch: int, end_offset: int) -> int:
    """Up to which offset a log surely agrees with its leader's, where `epoch` ends at `end_offset`; the lock is held.

    Both are what the leader answers to a follower that has records of an epoch, or beyond its end, that it lacks.
    """
    own = leader_epochs.read(log.place.folder).end_of(epoch, log.state.next_offset)
    if own.epoch < 0:
        return min(end_offset, log.state.next_offset)
    return min(end_offset, own.end_offset) if own.epoch == epoch else own.end_offset


def truncate(held: HeldLog, offset: int) -> int:
    """Removes the records from `offset` on, durably; the lock is held. Readers may have seen them.

    Only whole batches are removed: the log then ends after the last batch that is below `offset`. (Kafka ends it at
    `offset` itself, with a hole in front; no log of ours has one.) If that would be below the log start, the log is
    emptied and continues at its start. After a power loss in the middle the end may be in between.

    Returns:
        The log end.

    Raises:
        OffsetOutOfRangeError: below the log start, or above the log end.
        OSError, LogDamagedError: the log ends where it did, or at the new end.
    """
    state, place = held.state, held.place
    if not state.log_start <= offset <= state.next_offset:
        raise OffsetOutOfRangeError(place.topic, place.partition, offset, state.log_start, state.next_offset)
    if offset == state.next_offset:
        return offset
    base, position, end = _place_of(held, offset)
    empty = end < state.log_start
    if empty:
        # What a killed writer has left above the active segment would count once it is above the active one.
        held.drop_newer_segments()
        files.sync_folder(place.folder)
        # Its file is created after the state is saved: earlier it would be among segments that still count.
        base, position, end = state.log_start, 0, state.log_start
    synced = min(position, state.synced) if base == state.active_base else position
    held.cut_epochs(end)
    held.lease.save(
        state._replace(
            # What is beyond the new end is now a leftover, which the next holder removes if this one cannot.
            flags=state.flags | Flags.CUTTING,
            active_base=base,
            position=position,
            synced=synced,
            next_offset=end,
            generation=state.generation + 1,
            # Offsets are given to other records: nothing that is cached of them is valid any more.
            incarnation=state.incarnation + 1,
            truncations=state.truncations + 1,
        ),
        durable=True,
    )
    held.invalidate()
    held.cut()
    held.update_side_files(at_once=True)
    if empty:
        # Older segments may hold removed records. What they say of producers before them stays known.
        held.producers.take_snapshot(held.state, held.clock())
        delete_before(held, end)
    return end


def _place_of(held: HeldLog, offset: int) -> tuple[int, int, int]:
    """The batch that holds `offset`: its segment, its position and its first offset."""
    bases = held.bases()
    base = bases[bisect_right(bases, offset) - 1]
    with SegmentReader(held.place.folder, base) as reader:
        size = held.state.position if base == held.state.active_base else reader.log.size()
        position, end = 0, base
        for header in read_headers(reader.log, reader.position_of(offset, size), size):
            position, end = header.position, header.base_offset
            if header.last_offset >= offset:
                break
            position, end = header.end, header.next_offset
    return base, position, end
