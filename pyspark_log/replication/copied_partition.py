"""The copy of one partition of a Kafka cluster: takes in what its leader has answered."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyspark_log.config import LONG_MAX
from pyspark_log.errors import CorruptRecordError, PartitionOwnedError
from pyspark_log.kafka.error_codes import ErrorCode, name_of
from pyspark_log.kafka.fetcher import Fetched, Position
from pyspark_log.replication.epoch_gaps import Gap, gaps_in
from pyspark_log.replication.errors import CopyEndedError, DivergedError, LostRecordsError, ReplicationError
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import contextmanager
from pyspark_log.storage.log import HeldLog, leader_epochs
from pyspark_log.storage.log.appending.replica import (
    append_copied,
    end_of_agreement,
    raise_high_watermark,
    restart_at,
    truncate,
)
from pyspark_log.storage.log.leader_epochs import EpochStart
from pyspark_log.storage.log.retention import delete_before
from pyspark_log.storage.log.state import EMPTY, state_file
from pyspark_log.storage.log.state.partition_state import MIRROR, NO_OWNER
from pyspark_log.storage.record import BatchHeader, scan
from pyspark_log.storage.record.layout import CODEC_MASK, MAGIC
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

# After as long (s) a partition is fetched again whose leader has answered with an error.
_BACKOFF = 0.5
# Errors that pass once the leader is known again.
_PASSING = frozenset({
    ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip


class Rules(NamedTuple):
    """What is done where the source's log is not a continuation of the copy.

    Attributes:
        keep: keeps records that the source has deleted.
        skip_lost: continues after records that the source has deleted before they were copied.
        follow_truncation: truncates the copy where the source has replaced records.
    """

    keep: bool = False
    skip_lost: bool = False
    follow_truncation: bool = False


class CopiedPartition:
    """A partition. Not thread-safe: one thread at a time uses it; any thread may call `stop`.

    Attributes:
        at: which one.
        begun_at: the log end when this run began, or where a new copy has begun.
        log_start, end, high_watermark: of the copy.
        nothing_until: the leader has no batches before that offset.
        bytes, missing: how many bytes were copied by this run, and between them offsets without batches.
        is_checked: whether the leader has confirmed in this run that its log continues the copy.
        needs_leader: whether another broker may lead it by now.
        needs_ends: whether the leader has no such offset as the next one.
        is_ended: whether it takes in nothing more.
        not_before: when it is fetched again, by the monotonic clock (s).
    """

    def __init__(
        self, store: FolderStore, at: TopicPartition, topic_id: bytes, rules: Rules, owner: int = MIRROR
    ) -> None:
        """Reads where the copy ends.

        Args:
            store: where it is.
            at: which partition; the topic exists.
            topic_id: the source's id of the topic.
            rules: what is done if the source's log does not continue it.
            owner: of the partition (see `storage.log.owner`). A node's copy has a high watermark of its own.

        Raises:
            ReplicationError: the partition has records of others.
            PylogError, OSError: it cannot be read.
        """
        self.at, self._logs, self._topic_id, self._rules, self._owner = at, store.logs, topic_id, rules, owner
        self._store_id = store.describe_topic(at.topic).topic_id
        self.bytes = self.missing = 0
        self.log_start = self.end = self.high_watermark = self.nothing_until = 0
        self.is_checked = self.needs_leader = self.needs_ends = self.is_ended = False
        self.not_before = 0.0
        self._is_new, self._last_epoch, self._skips_to = True, -1, 0
        opened = self._logs.topic(at.topic)
        if state_file.read(opened.state_path(at.partition)) is None:
            # At once, so that no other process writes there. A reader of this process may know an earlier copy.
            begins = EMPTY._replace(owner_node=owner, incarnation=secrets.randbits(31))
            self._logs.make_state(opened, at.partition, begins=begins)
        with self._held() as held:
            self._note(held)
        self.begun_at = self.end

    def position(self, leader_epoch: int) -> Position:
        """What to fetch next, from a leader with that epoch. A new copy begins with the first records there are."""
        return Position(self._topic_id, leader_epoch, max(self.end, self._skips_to), self._last_epoch, self.log_start)

    def stop(self) -> None:
        """Ends it. What takes its place and holds the partition's lock has all that was taken in."""
        self.is_ended = True

    def take(self, fetched: Fetched, starts: Sequence[EpochStart] | None = None) -> Sequence[Gap]:
        """Takes in an answer to `position`; an older one is ignored.

        Args:
            fetched: the answer.
            starts: the leader epochs that begin in its gaps; None: they are not known.

        Returns:
            Gaps whose epochs must be known first: nothing was taken in.

        Raises:
            ReplicationError: the copy cannot be continued; as DivergedError, nothing was changed.
            PylogError, OSError: the answer is damaged, or the copy cannot be written.
        """
        if fetched.error is not None:
            raise fetched.error
        if fetched.error_code:
            self._take_error(fetched.error_code)
        elif fetched.position.offset != max(self.end, self._skips_to):
            pass
        elif fetched.diverging is not None:
            self._diverge(*fetched.diverging)
        elif gaps := self._append(fetched, starts):
            return gaps
        elif fetched.lost and not self._rules.skip_lost:
            raise LostRecordsError(f"{fetched.lost} (--skip-lost continues without them)")
        return ()

    def _take_error(self, code: int) -> None:
        self.not_before = time.monotonic() + _BACKOFF
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.needs_ends = True
        elif code in _PASSING:
            self.needs_leader = True
        else:
            raise ReplicationError(f"{self.at}: its leader answers {name_of(code)}")

    # ---- records

    def _append(self, fetched: Fetched, starts: Sequence[EpochStart] | None) -> Sequence[Gap]:
        data = fetched.records
        headers = _whole_batches(fetched)
        self.is_checked = True
        is_known = fetched.log_start <= self.log_start and fetched.high_watermark <= self.high_watermark
        if not headers and is_known and not (self._is_new and fetched.position.offset):
            return ()
        before = self.end
        if self._is_new:
            # The log start may be inside of the first batch, or compaction has removed what was there.
            before = min([fetched.position.offset, *(header.base_offset for header in headers[:1])])
        if starts is None and (gaps := list(gaps_in(headers, before, self._last_epoch))):
            return gaps
        with self._held() as held:
            if held.state.next_offset != self.end:
                # An error, such as a full disk, has come after a part of an answer was taken in.
                self._note(held)
                return ()
            if self._is_new:
                self._begin(held, before)
            missing = append_copied(
                held, data, headers, starts or (), fetched.place.base_offset if fetched.place else -1
            )
            raise_high_watermark(held, fetched.high_watermark)
            start = min(fetched.log_start, held.state.next_offset)
            if not self._rules.keep and start > held.state.log_start:
                delete_before(held, start)
            self._note(held)
        if missing:
            log.warning("%s: the source no longer has %d offsets from %d on", self.at, missing, before)
        self.missing += missing
        self.bytes += sum(header.size for header in headers)
        return ()

    def _begin(self, held: HeldLog, base: int) -> None:
        """Has a copy without records begin at an offset."""
        if base != held.state.next_offset:
            restart_at(held, base)
        self.begun_at = base
        log.info("%s: a copy begins at offset %d", self.at, base)

    @contextmanager
    def _held(self) -> Iterator[HeldLog]:
        """Holds the copy's lock.

        Raises:
            CopyEndedError: the copy was ended.
            ReplicationError: others may have written there by now.
            PylogError, OSError: as `Turnstile.hold`.
        """
        opened = self._logs.topic(self.at.topic)
        if opened.description.topic_id != self._store_id:
            raise ReplicationError(f"topic {self.at.topic!r} of the store was deleted and created again")
        with self._logs.writer_of(opened, self.at.partition).hold() as writer:
            if self.is_ended:
                raise CopyEndedError(f"{self.at}: its copy has ended")
            if writer.state.owner_node != self._owner:
                raise ReplicationError(
                    f"{self.at} of the store is no copy of this kind, or was promoted meanwhile; name another store"
                )
            yield writer.log

    def _note(self, held: HeldLog) -> None:
        self.log_start, self.end, self.high_watermark = (
            held.state.log_start, held.state.next_offset, held.state.high_watermark
        )  # fmt: skip
        self._is_new = held.state.next_offset == held.state.position == 0
        # An epoch that begins at the end has no batch yet.
        self._last_epoch = leader_epochs.read(held.place.folder).of(self.end - 1)

    # ---- where the leader's log is no continuation

    def _diverge(self, epoch: int, end_offset: int) -> None:
        """Truncates the copy where the leader has other records. DivergedError: that was not asked for."""
        with self._held() as held:
            agreed = end_of_agreement(held, epoch, end_offset)
            problem = (
                f"{self.at}: an unclean election has replaced records: the copy has offsets {agreed} to "
                f"{self.end - 1} of leader epoch {self._last_epoch}, in the source epoch {epoch} ends at {end_offset}"
            )
            if not self._rules.follow_truncation:
                raise DivergedError(
                    f"{problem}; nothing was changed (--follow-truncation replaces them in the copy, too)"
                )
            if held.state.is_replica and agreed >= held.state.high_watermark:
                log.info("%s: offsets %d to %d are removed, which were never committed", self.at, agreed, self.end - 1)
            else:
                log.warning("%s; the copy is truncated", problem)
            if agreed < held.state.log_start:
                restart_at(held, agreed)
            else:
                truncate(held, agreed)
            self._note(held)
        self.nothing_until = 0

    def settle(self, earliest: int, latest: int) -> None:
        """Takes in where the leader's log begins and ends, after it had no such offset as the next one.

        Raises as `take`.
        """
        self.needs_ends = False
        if self._is_new:
            self._skips_to = earliest
        elif self.end > latest:
            problem = (
                f"{self.at}: the source's log ends at offset {latest}, the copy at {self.end}: the source has lost "
                "records, and does not say from which leader epoch on"
            )
            if not self._rules.follow_truncation:
                raise DivergedError(f"{problem}; nothing was changed (--follow-truncation has the copy begin again)")
            # What was written there since may begin anywhere.
            log.warning("%s; the copy begins again at offset %d", problem, earliest)
            with self._held() as held:
                restart_at(held, earliest)
                self._note(held)
            self.nothing_until = 0
        elif self.end < earliest:
            problem = f"{self.at}: the source has deleted offsets {self.end} to {earliest - 1} before they were copied"
            if not self._rules.skip_lost:
                raise LostRecordsError(f"{problem} (--skip-lost continues without them)")
            log.warning("%s; the copy continues without them", problem)
            if self._rules.keep:
                self._skips_to = earliest
                return
            with self._held() as held:
                self.missing += earliest - self.end
                restart_at(held, earliest)
                self._note(held)


def _whole_batches(fetched: Fetched) -> Sequence[BatchHeader]:
    """The headers of the whole batches, up to a damaged one. CorruptRecordError: that is the first."""
    data = fetched.records
    try:
        headers = scan(data, 0, len(data), check_crcs=True)
    except CorruptRecordError as error:
        if not error.position:
            raise _located(error, fetched) from error
        headers = scan(data, 0, error.position)
    for count, header in enumerate(headers):
        if header.magic != MAGIC and header.attributes & CODEC_MASK:
            try:
                headers[count] = _with_first_offset(data, header)
            except CorruptRecordError as error:
                if not count:
                    raise _located(error, fetched) from error
                return headers[:count]
    return headers


def _with_first_offset(data: memoryview, header: BatchHeader) -> BatchHeader:
    """The header of a compressed set of messages of before Kafka 0.11, which has their last offset only."""
    from pyspark_log.storage.record.decoding.decoder import decode  # noqa: PLC0415  (Arrow, which a server does not load)

    chunk = decode(
        data, header.position, header.end, from_offset=0, until_offset=LONG_MAX, max_bytes=1, keys=False, values=False
    )
    first = chunk.columns["offset"][0].as_py()
    return header._replace(base_offset=first, last_offset_delta=header.last_offset - first)


def _located(error: CorruptRecordError, fetched: Fetched) -> CorruptRecordError:
    """The same error, with the partition and the file."""
    path, position = (fetched.place.path, fetched.place.position) if fetched.place else ("", 0)
    return error.located(position, path, fetched.at.topic, fetched.at.partition)


def promote(store: FolderStore, at: TopicPartition) -> int:
    """Ends the copy of a partition: any process may write to it from now on, in a leader epoch of its own.

    Returns:
        The log end.

    Raises:
        PartitionOwnedError: it is no copy.
        PylogError, OSError: as `Turnstile.hold` and `HeldLog.flush`.
    """
    with store.logs.writer(at.topic, at.partition).hold() as writer:
        held = writer.log
        if held.state.owner_node != MIRROR:
            raise PartitionOwnedError(f"{at} is no mirror")
        held.flush()
        epoch = held.state.leader_epoch + 1
        leader_epochs.begin(held.place.folder, epoch, held.state.next_offset)
        held.lease.save(held.state._replace(owner_node=NO_OWNER, leader_epoch=epoch), durable=True)
        return held.state.next_offset
