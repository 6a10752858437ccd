"""The start offset of each leader epoch of a partition (Kafka's LeaderEpochFileCache, KIP-101).

A follower uses it to find how far its log agrees with the leader's. It is kept in the partition's folder as the
checkpoint `leader-epoch-checkpoint` with lines `epoch start-offset`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from pyspark_log.errors import SideFileError
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.record import BatchHeader

log = logging.getLogger(__name__)

FILE_NAME = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """The first offset of a leader epoch."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The offset after the last record of a leader epoch."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The leader epochs of one partition; both epochs and start offsets increase.

    Attributes:
        entries: the epochs, oldest first.
    """

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """Assigns the entries in turn."""
        self.entries: list[EpochStart] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @classmethod
    def read(cls, path: str) -> LeaderEpochs:
        """Reads a checkpoint; empty if there is no file. SideFileError names the file and the line."""
        return cls(kafka_files.read_epochs(path))

    def write(self, path: str) -> None:
        """Replaces the checkpoint."""
        kafka_files.write_epochs(path, self.entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records that the batch at `start_offset` has `epoch`.

        Removes entries that contradict it (a later epoch, or an epoch that begins at or after that offset). A batch
        without an epoch (-1) changes nothing.

        Returns:
            Whether anything changed, so that the checkpoint must be written.
        """
        if epoch < 0:
            return False
        if self.entries and self.entries[-1].epoch == epoch and self.entries[-1].start_offset <= start_offset:
            return False
        while self.entries and (self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset):
            self.entries.pop()
        self.entries.append(EpochStart(epoch, start_offset))
        return True

    def end_of(self, epoch: int, log_end: int) -> EpochEnd:
        """Where an epoch ends, as Kafka answers OffsetForLeaderEpoch: -1 and -1 for one that began later than these.

        Of an epoch without records, the one before it is meant.
        """
        later = next((one for one in self.entries if one.epoch > epoch), None)
        known = [one.epoch for one in self.entries if one.epoch <= epoch]
        if epoch < 0 or not self.entries or (later is None and known[-1] != epoch):
            return EpochEnd(-1, -1)
        return EpochEnd(known[-1] if known else epoch, log_end if later is None else later.start_offset)

    def of(self, offset: int) -> int:
        """The epoch of the record at an offset; -1: it is not known."""
        return max((one.epoch for one in self.entries if one.start_offset <= offset), default=-1)

    def cut_end(self, log_end: int) -> bool:
        """Removes the epochs that begin at or above the log end. Returns whether anything changed."""
        left = [entry for entry in self.entries if entry.start_offset < log_end]
        changed, self.entries = left != self.entries, left
        return changed

    def cut_start(self, log_start: int) -> bool:
        """Removes the epochs that end at or below the log start; the epoch that continues there begins there now.

        Returns:
            Whether anything changed.
        """
        before = [entry for entry in self.entries if entry.start_offset <= log_start]
        covering = [EpochStart(before[-1].epoch, log_start)] if before else []
        entries = covering + self.entries[len(before) :]
        changed, self.entries = entries != self.entries, entries
        return changed


def begin(folder: str, epoch: int, start_offset: int) -> None:
    """Adds an epoch to the checkpoint of the partition in `folder`, before a batch is written with it.

    If the process dies in between, the checkpoint has the epoch begin where records of the previous one may still
    come. A follower may then refetch too much, but never keeps records that the leader does not have.
    """
    epochs = read(folder)
    if epochs.assign(epoch, start_offset):
        epochs.write(f"{folder}/{FILE_NAME}")


def cut_start(folder: str, log_start: int) -> None:
    """Trims the checkpoint of the partition in `folder` to the log start."""
    epochs = read(folder)
    if epochs.cut_start(log_start):
        epochs.write(f"{folder}/{FILE_NAME}")


def cut_end(folder: str, log_end: int) -> None:
    """Trims the checkpoint of the partition in `folder` to the log end."""
    epochs = read(folder)
    if epochs.cut_end(log_end):
        epochs.write(f"{folder}/{FILE_NAME}")


def read(folder: str) -> LeaderEpochs:
    """The checkpoint of the partition in `folder`; empty if it is missing or damaged."""
    try:
        return LeaderEpochs.read(f"{folder}/{FILE_NAME}")
    except SideFileError as error:
        log.warning("replacing a checkpoint that is damaged: %s", error)
        return LeaderEpochs()


class Epochs:
    """Checks leader epochs, batch by batch: they never decrease, and none is above the partition's.

    Attributes:
        last: that of the last batch with a valid one; -1: none yet.
    """

    def __init__(self, state: PartitionState | None) -> None:
        self._limit = None if state is None else state.leader_epoch
        self.last = -1

    def fault(self, header: BatchHeader) -> str | None:
        """What is wrong with a batch's epoch; None if nothing is."""
        if self._limit is not None and header.leader_epoch > self._limit:
            return f"leader epoch {header.leader_epoch}, but the partition is only at {self._limit}"
        if header.leader_epoch < self.last:
            return f"leader epoch {header.leader_epoch} after {self.last}"
        self.last = header.leader_epoch
        return None
