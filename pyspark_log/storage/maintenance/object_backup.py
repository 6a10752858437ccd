"""Copies a store from or to an object store. The copy is the store at one moment.

- From an object store: one state of its publish log names all that is copied, and no object of it is deleted for a day.
- From a folder to an object store: `back_up` makes a copy in a temporary folder first, which is of one moment.

A new store in an object store begins with a checkpoint (publish_log/beginning.py), and its `store.json` is written
last: before that there is no store. A new folder is made under another name, and gets its own when it is whole.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pyspark_log.config import TopicConfig
from pyspark_log.errors import CorruptRecordError, LogDamagedError, ReadOnlyError, StoreExistsError
from pyspark_log.storage.catalog import location
from pyspark_log.storage.catalog.store_json import STORE_FILE, StoreDescription
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.kinds import by_store
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.storage.log_manager import TopicAdmin
from pyspark_log.storage.log_manager.deletion import FUTURE, aside_name
from pyspark_log.storage.maintenance.backup import Backup, back_up
from pyspark_log.storage.maintenance.new_folder import new_folder_at
from pyspark_log.storage.maintenance.progress import Progress, ProgressCounter
from pyspark_log.storage.maintenance.transfer import LogCopy
from pyspark_log.storage.object_store import ObjectStore
from pyspark_log.storage.objects import Objects, by_kind
from pyspark_log.storage.publish import Decision
from pyspark_log.storage.publish_log import beginning
from pyspark_log.storage.publish_log.maintenance.rewriting import Group, fetch, in_turns
from pyspark_log.storage.publish_log.state import NO_COORDINATOR, Committed, OpenTransaction, PartitionLog, Piece, State
from pyspark_log.storage.record import BatchHeader, crc32c, scan
from pyspark_log.storage.record.empty_batch import empty_batch
from pyspark_log.storage.record.end_txn_marker import MAX_MARKER_BYTES, decode_end_txn_marker
from pyspark_log.storage.record.layout import (
    ATTRIBUTES_AT,
    COUNT_AT,
    CRC_AT,
    LAST_OFFSET_DELTA_AT,
    MAGIC,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
)
from pyspark_log.storage.segment.scanner import Damaged, Intact, SegmentScanner
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicDescription, TopicPartition

# The log of an object store has one leader, whose epoch never changes.
_EPOCH = 0


def back_up_store(store: Store, into: str | os.PathLike[str], *, progress: Progress | None = None) -> Backup:
    """Copies a store as it is at one moment into a new folder, or below a new prefix, while other processes use it.

    Topics with their ids and configs, records with their offsets and times, log starts, committed offsets and what is
    known of publishers are kept. To an object store no producers of Kafka's clients are copied, as it has none: records
    of transactions that were not committed at that moment are left out, and their offsets are empty.

    Args:
        store: in a folder, or in an object store.
        into: a folder, as `back_up` takes it, or a URL below which there is nothing.
        progress: called with the number of bytes copied, and the total.

    Raises:
        StoreExistsError: there is something at `into`, or it is below the store.
        StoreNotFoundError, ReadOnlyError, LockTimeoutError, OSError: as `back_up`.
        ObjectStoreError: the object store does not answer, or keeps no conditions.
        CorruptRecordError, LogDamagedError: a record is damaged, or too old a format for an object store.
    """

    def back_up_objects(store: ObjectStore) -> Backup:
        if f"{location(into)}/".startswith(f"{store.path}/"):
            raise StoreExistsError(f"{os.fspath(into)}: the copy must be outside of the store {store.path}")
        source = _ObjectSource(store, progress)
        return by_kind(into, folder=source.into_folder, objects=source.into_objects)(into)

    def back_up_folder(store: FolderStore) -> Backup:
        copy: Callable[[], Backup] = by_kind(
            into,
            folder=lambda: back_up(store, into, progress=progress),
            objects=lambda: _folder_into_objects(store, into, progress),
        )
        return copy()

    return by_store(store, folder=back_up_folder, objects=back_up_objects)


# ---- from an object store


class _ObjectSource:
    """One moment of a store in an object store."""

    def __init__(self, store: ObjectStore, progress: Progress | None) -> None:
        self._store, self._state, self._time = store, store.log.follow(), now_ms()
        topics = sorted(self._state.topics.values(), key=lambda one: one.name)
        self._logs = [
            (topic, number, log)
            for topic in topics
            for number in range(topic.partitions)
            if (log := self._state.partitions.get((topic.topic_id, number))) is not None
        ]
        self._counter = ProgressCounter(progress, sum(piece.size for *_, log in self._logs for piece in log.pieces))

    def _batches(
        self, topic: TopicDescription, number: int, log: PartitionLog
    ) -> Iterator[tuple[memoryview, list[BatchHeader]]]:
        """The batches of a partition, with their offsets, of a piece at a time."""
        at = TopicPartition(topic.name, number)
        for some in in_turns(log.pieces):
            found = fetch(self._store.log.objects, [Group(at, topic.topic_id, some)])
            for piece in some:
                data = found[piece]
                if not isinstance(data, memoryview):
                    raise data
                yield data, scan(data, 0, len(data))
                self._counter.add(len(data))

    def _copied(
        self, writer: beginning.PieceWriter, topic: TopicDescription, number: int, log: PartitionLog
    ) -> list[Piece]:
        """Copies the records of a partition; where they are then."""
        writer.begin(TopicPartition(topic.name, number), TopicConfig.resolve(topic.configs, self._store.configs))
        for data, headers in self._batches(topic, number, log):
            for header in headers:
                writer.add(bytes(data[header.position : header.end]), header)
        return writer.end()

    def _transactions(self, writer: beginning.PieceWriter) -> dict[int, OpenTransaction]:
        """Those that are open, whose records are copied, too: their clients may commit them in the copy."""
        topics = {topic.topic_id: topic for topic in self._state.topics.values()}
        transactions = dict[int, OpenTransaction]()
        for producer_id, transaction in self._state.open.items():
            copied = list[tuple[tuple[str, int], Piece]]()
            for (topic_id, number), piece in transaction.pieces:
                # What it has staged for a topic that was deleted is void.
                if (topic := topics.get(topic_id)) is None:
                    continue
                staged = PartitionLog.of(0, piece.next_offset, 0, [piece])
                copied += [((topic_id, number), copy) for copy in self._copied(writer, topic, number, staged)]
            transactions[producer_id] = transaction._replace(pieces=tuple(copied))
        return transactions

    def _done(self, path: str, size: int) -> Backup:
        return Backup(path, self._time, 0.0, len(self._logs), size, 0)

    def into_objects(self, into: str | os.PathLike[str]) -> Backup:
        copied = 0

        def fill(objects: Objects) -> None:
            nonlocal copied
            writer, partitions = beginning.PieceWriter(objects, self._time), {}
            for topic, number, log in self._logs:
                at, pieces = (topic.topic_id, number), self._copied(writer, topic, number, log)
                partitions[at] = PartitionLog.of(log.log_start, log.log_end, log.cleaned_to, pieces)
            transactions = self._transactions(writer)
            writer.finish()
            # The servers are those of the source: clients of the copy must not be sent to them. Their users, rights and
            # quotas stay there, as those of a folder do.
            state = replace(
                self._state, partitions=partitions, open=transactions, servers={}, coordinator=NO_COORDINATOR,
                documents={},
            )  # fmt: skip
            beginning.write(objects, state)
            copied = writer.bytes

        made = ObjectStore.create_from(into, self._store.cluster_id, self._store.configs, fill)
        return self._done(made.path, copied)

    def into_folder(self, into: str | os.PathLike[str]) -> Backup:
        folder = new_folder_at(into)
        unfinished = f"{folder}.{secrets.token_hex(8)}.tmp"
        files.make_folder(unfinished)
        try:
            description = StoreDescription(self._store.cluster_id, self._store.configs)
            files.create_whole(f"{unfinished}/{STORE_FILE}", description.encode())
            with FolderStore.open(unfinished) as target:
                copied = self._fill_folder(target)
            files.rename(unfinished, folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        files.sync_folder(os.path.dirname(folder))
        return self._done(folder, copied)

    def _fill_folder(self, target: FolderStore) -> int:
        """Makes what is copied that of a new store; the bytes of its records."""
        target.logs.make_folders()
        copied = 0
        for topic in sorted(self._state.topics.values(), key=lambda one: one.name):
            config = TopicConfig.resolve(topic.configs, self._store.configs)
            states, folders = dict[int, PartitionState](), dict[int, str]()
            for number, log in ((number, log) for one, number, log in self._logs if one is topic):
                aside = aside_name(topic.name, topic.topic_id, number, FUTURE)
                folders[number] = f"{target.logs.log_dirs.at(0).path}/{aside}"
                copy = LogCopy(folders[number], folders[number], topic.topic_id, config, target.logs.clock)
                copy.offset = log.pieces[0].base_offset if log.pieces else log.log_start
                for data, headers in self._batches(topic, number, log):
                    copy.write(data, headers)
                states[number] = copy.finish(PartitionState(log_start=log.log_start))
                copied += copy.bytes
            TopicAdmin(target.logs).adopt(topic, states, folders)
        for group, offsets in self._state.groups.items():
            by_text: dict[str, dict[TopicPartition, int]] = {}
            for at, one in offsets.items():
                by_text.setdefault(one.metadata, {})[at] = one.offset
            for text, some in by_text.items():
                target.groups[group].commit(some, text)
        if self._state.publishers:
            with target.decisions.hold() as decisions:
                decisions.adopt(list(self._state.publishers.values()))
        return copied


# ---- from a folder to an object store


def _folder_into_objects(store: FolderStore, into: str | os.PathLike[str], progress: Progress | None) -> Backup:
    if store.is_brokers:
        raise ReadOnlyError(f"{store.path} is a folder of a Kafka broker: pylog mirror copies its topics")
    copied = Backup("", 0, 0.0, 0, 0, 0)

    def fill(objects: Objects) -> None:
        nonlocal copied
        with tempfile.TemporaryDirectory(prefix="pylog-backup-") as folder:
            moment = back_up(store, f"{folder}/copy")
            if moment.undone:
                raise LogDamagedError(
                    f"{store.path}: {moment.undone} decided publishes cannot be applied, so nothing was copied: "
                    "`pylog recover` says why"
                )
            with FolderStore.open(moment.path) as copy:
                copied = replace(moment, bytes=_fill(objects, copy, progress))

    made = ObjectStore.create_from(into, store.cluster_id, store.configs, fill)
    return replace(copied, path=made.path)


def _fill(objects: Objects, source: FolderStore, progress: Progress | None) -> int:
    """Makes what is in a folder, which no process changes, the beginning of a store; the bytes of its records."""
    topics = {name: source.describe_topic(name) for name in source.topics()}
    logs = [(topics[name], number) for name in topics for number in source.written_partitions(name)]
    counter = ProgressCounter(progress, sum(source.size(topic.name, number) for topic, number in logs))
    writer, partitions = beginning.PieceWriter(objects, now_ms()), dict[tuple[str, int], PartitionLog]()
    for topic, number in logs:
        reader = _FolderPartition(source, TopicPartition(topic.name, number))
        writer.begin(reader.at, reader.config)
        left = source.size(topic.name, number)
        for batch, header in reader.batches():
            writer.add(batch, header)
            left -= header.size
            counter.add(header.size)
        counter.add(max(left, 0))  # Records that are deleted may still be there.
        state = reader.state
        partitions[topic.topic_id, number] = PartitionLog.of(state.log_start, state.next_offset, 0, writer.end())
    writer.finish()
    groups = {
        group: {
            at: Committed(one.offset, one.metadata, one.commit_timestamp)
            for at, one in source.groups[group].committed().items()
        }
        for group in source.groups
    }
    source.decisions.follow()
    publishers = {name: _without_places(one) for name, one in source.decisions.last.items()}
    beginning.write(objects, State(0, topics, partitions, publishers, groups, time=now_ms()))
    return writer.bytes


def _without_places(decision: Decision) -> Decision:
    """A decision that is done, as an object store knows it."""
    return Decision(
        decision.publisher, decision.number, 0, done=True, run=decision.run, replaced=decision.replaced,
        location=decision.location, plan=decision.plan, records=decision.records, host=decision.host,
        process=decision.process, time=decision.time, holder=decision.holder, about=decision.about,
    )  # fmt: skip


class _FolderPartition:
    """Reads the batches of one partition as an object store can have them: without producers and transactions."""

    def __init__(self, source: FolderStore, at: TopicPartition) -> None:
        self.at, self.config = at, source.topic_config(at.topic)
        self._reader = source.logs.recovered(at.topic, at.partition)
        self.state = self._reader.state()

    def batches(self) -> Iterator[tuple[bytes, BatchHeader]]:
        ends = self._ends() if self.state.may_have_transactions else {}
        for piece in self._pieces():
            start = piece.headers[0].position
            for header in piece.headers:
                batch = bytes(piece.data[header.position - start : header.end - start])
                if header.magic != MAGIC:
                    raise CorruptRecordError(
                        "it is a message of one of Kafka's older formats, which cannot be in an object store: use the "
                        "job mirror", header.position, header.base_offset, "", self.at.topic, self.at.partition,
                    )  # fmt: skip
                yield _as_stored(batch, header, is_kept=not header.is_control and _is_committed(header, ends))

    def _pieces(self) -> Iterator[Intact]:
        walker = SegmentScanner(self.config.max_batch_bytes)
        for segment, size in self._reader.opened(self.state):
            for piece in walker.walk(segment.log, size, segment.base_offset, None):
                if isinstance(piece, Damaged):
                    raise CorruptRecordError(
                        f"{piece.reason}: nothing was copied. `pylog verify` says what to do about it", piece.position,
                        piece.first_offset, segment.log.path, self.at.topic, self.at.partition,
                    )  # fmt: skip
                yield piece

    def _ends(self) -> Mapping[int, list[tuple[int, bool]]]:
        """Of each producer, the offsets at which its transactions end, and whether they were committed."""
        found: dict[int, list[tuple[int, bool]]] = {}
        for piece in self._pieces():
            start = piece.headers[0].position
            for header in piece.headers:
                if header.is_control and header.producer_id >= 0:
                    batch = piece.data[header.position - start : header.end - start]
                    marker = decode_end_txn_marker(bytes(batch[:MAX_MARKER_BYTES]), header)
                    if marker is not None:
                        found.setdefault(header.producer_id, []).append((header.base_offset, marker.commit))
        return found


def _is_committed(header: BatchHeader, ends: Mapping[int, list[tuple[int, bool]]]) -> bool:
    if not header.is_transactional:
        return True
    # The first end after it is that of its transaction, as a producer has one at a time.
    return next((commit for at, commit in ends.get(header.producer_id, ()) if at > header.base_offset), False)


def _as_stored(batch: bytes, header: BatchHeader, *, is_kept: bool) -> tuple[bytes, BatchHeader]:
    """A batch without its producer; an empty one with its offsets, if it is not kept."""
    if not is_kept:
        batch = empty_batch(header.base_offset, header.next_offset, _EPOCH)
    elif header.producer_id >= 0:
        changed = bytearray(batch)
        changed[ATTRIBUTES_AT:LAST_OFFSET_DELTA_AT] = (header.attributes & ~TRANSACTIONAL).to_bytes(2, "big")
        changed[PRODUCER_ID_AT:COUNT_AT] = b"\xff" * (COUNT_AT - PRODUCER_ID_AT)
        changed[CRC_AT:ATTRIBUTES_AT] = crc32c(changed[ATTRIBUTES_AT:]).to_bytes(4, "big")
        batch = bytes(changed)
    else:
        return batch, header
    [header] = scan(batch, 0, len(batch))
    return batch, header
