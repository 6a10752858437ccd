"""Rewrites one partition's log from complete batches that keep their offsets: segments, indexes, leader epochs, and
producer files. An empty batch fills each gap in the offsets, because the offsets of a store's log have no gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.storage.catalog.kafka_files import PARTITION_METADATA, write_partition_metadata
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import Clock
from pyspark_log.storage.log.leader_epochs import FILE_NAME, LeaderEpochs
from pyspark_log.storage.log.state import Flags, PartitionState
from pyspark_log.storage.maintenance.transfer.producer_files import ProducerFiles
from pyspark_log.storage.record import BatchHeader, scan
from pyspark_log.storage.record.empty_batch import empty_batch
from pyspark_log.storage.record.layout import HEADER_SIZE
from pyspark_log.storage.segment import SegmentWriter
from pyspark_log.storage.segment.file_names import LOG, segment_path


class LogCopy:
    """The log being written. Not thread-safe.

    Attributes:
        offset: the offset after the last batch; may be set before the first.
        epoch: the leader epoch of the last batch; -1: of none yet.
        batches, bytes: what was written, but for empty batches.
    """

    def __init__(
        self,
        source: str,
        folder: str,
        topic_id: str,
        config: TopicConfig,
        clock: Clock,
        *,
        producers_seen: bool = False,
    ) -> None:
        """Makes the folder.

        Args:
            source: the folder of the partition that is copied, for what its snapshots say of producers.
            folder: the target folder; it does not exist yet, or is empty.
            topic_id: whose partition it will be.
            config: the topic's configs.
            clock: what time it is.
            producers_seen: whether producers with ids are known to have written to it.
        """
        self.offset = 0
        self.epoch = -1
        self.batches = self.bytes = 0
        self._folder, self._config, self._clock = folder, config, clock
        self._writer: SegmentWriter | None = None
        self._modified: int | None = None
        self._epoch_starts = LeaderEpochs()
        self._producers = ProducerFiles(source, folder, config.producer_id_expiration_ms, clock, seen=producers_seen)
        files.make_folder(folder)
        write_partition_metadata(f"{folder}/{PARTITION_METADATA}", topic_id)

    @property
    def is_begun(self) -> bool:
        """Whether it has a segment."""
        return self._writer is not None

    def begin(self, base_offset: int, modified: int | None = None) -> None:
        """Ends the segment that is being written, if there is one, and begins another.

        Args:
            base_offset: its base offset.
            modified: when the segment that it is a copy of was written to, in ns since the epoch, which its file then
                says as well: retention uses it where records have no times. None: as the one before it.
        """
        if self._writer is not None:
            self._sync(self._writer)
            self._writer.finish()
            self._writer.close()
        self._modified = self._modified if modified is None else modified
        files.create(segment_path(self._folder, base_offset, LOG)).close()
        self._writer = SegmentWriter(self._folder, base_offset, 0, self._config)
        self._producers.begin(base_offset)

    def fill(self, until: int) -> None:
        """Adds empty batches up to an offset."""
        while self.offset < until:
            if self._writer is None or not self._fits(HEADER_SIZE, self.offset):
                self.begin(self.offset)
            assert self._writer is not None
            end = min(until, self._writer.base_offset + INT_MAX + 1)
            self._put(empty_batch(self.offset, end, self.epoch))
            self.offset = end

    def write(self, data: bytes | bytearray | memoryview, headers: Sequence[BatchHeader]) -> None:
        """Adds batches as they are, which begin at `offset` and have no gaps between them.

        Args:
            data: theirs.
            headers: theirs; positions may count from anywhere.
        """
        if not headers:
            return
        if self._writer is None or not self._fits(len(data), headers[-1].last_offset):
            if len(headers) > 1:
                at = 0
                for header in headers:
                    self.write(data[at : at + header.size], [header])
                    at += header.size
                return
            self.begin(self.offset)
        self._put(data)
        self.offset = headers[-1].next_offset
        self.batches += len(headers)
        self.bytes += len(data)

    def _fits(self, size: int, last_offset: int) -> bool:
        """Whether the segment that is being written has room."""
        writer = self._writer
        assert writer is not None
        room = writer.position == 0 or writer.position <= self._config.segment_bytes - size
        return room and last_offset - writer.base_offset <= INT_MAX

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        assert self._writer is not None
        self._writer.log.pwrite(data, self._writer.position)
        headers = scan(data, 0, len(data))
        self._writer.enter(headers)
        with memoryview(data) as view:
            for header in headers:
                self.epoch = max(self.epoch, header.leader_epoch)
                self._epoch_starts.assign(header.leader_epoch, header.base_offset)
                self._producers.take(header, view[header.position : header.end])

    def _sync(self, writer: SegmentWriter) -> None:
        if self._modified is not None:
            writer.log.set_modified(self._modified)
        writer.log.sync()

    def finish(self, before: PartitionState) -> PartitionState:
        """Makes all of it durable; nothing can be added any more.

        Args:
            before: what else its state is to say.

        Returns:
            Its state; the caller writes the state file.
        """
        base, position = self.offset, 0
        if self._writer is not None:
            base, position = self._writer.base_offset, self._writer.position
            self._sync(self._writer)
            self._writer.close()
        self._producers.end()
        files.sync_folder(self._folder)
        state = before.without_intent()._replace(
            flags=Flags.PRODUCERS if self._producers.seen else Flags.NONE,
            log_dir=0, generation=before.generation + 1, unsynced_since=0, active_base=base, next_offset=self.offset,
            high_watermark=self.offset, position=position, synced=position, reserve=self.offset,
            leader_epoch=max(before.leader_epoch, self.epoch, 0),
        )  # fmt: skip
        self._epoch_starts.assign(state.leader_epoch, state.next_offset)
        self._epoch_starts.cut_start(state.log_start)
        self._epoch_starts.write(f"{self._folder}/{FILE_NAME}")
        return state
