"""A scripted workload on compacted topics, in which compaction meets all else that changes a log.

Appends with keys and tombstones, synced and not; publishes that are copied or become segments, and move an offset;
batches of a producer that numbers them, and aborted transactions; deleted records, retention, truncation, flushes.
Committed offsets are written, expire and are taken back. Both logs of the engine's own have small segments here,
so that a process that commits or publishes compacts them.
"""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from numbered import batch, end_transaction
from workload import Steps

from pyspark_log.errors import UnknownGroupError, UnknownTopicError
from pyspark_log.storage.catalog.topics import OFFSETS_TOPIC, PUBLISH_TOPIC
from pyspark_log.storage.compaction import partition_cleaner
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, OffsetStep, TopicPartition
from tests.store_tools import publish

_SMALL = {"segment.bytes": "900", "index.interval.bytes": "200", "max.message.bytes": "1000"}
CONFIGS = {
    # Tombstones stay.
    "keyed": {"cleanup.policy": "compact"} | _SMALL,
    # The second cleaning removes a tombstone.
    "brief": {"cleanup.policy": "compact", "delete.retention.ms": "0"} | _SMALL,
    # Records are deleted from the front besides.
    "mixed": {
        "cleanup.policy": "compact,delete",
        "retention.bytes": "1000",
        "retention.ms": "-1",
        "file.delete.delay.ms": "0",
    }
    | _SMALL
    | {"segment.bytes": "600"},
}
PARTITIONS = {"keyed": 2, "brief": 1, "mixed": 1}
INTERNAL = {PUBLISH_TOPIC: 1, OFFSETS_TOPIC: 1}
SETTINGS = {"offsets.topic.num.partitions": "1"}
# Bytes for the keys of one round of a cleaner: they are too few for those of the large publish.
MEMORY = 24 * 16
ROUNDS, KEYS = 3, 7
PRODUCER, ABORTER = 7, 8
SOURCE = TopicPartition("keyed", 0)


class CompactedWorkload(Steps):
    """Steps with values that name the step they are of; keys come again and again."""

    configs, partitions, settings = CONFIGS, PARTITIONS, SETTINGS

    def __init__(self, path, done=0):
        super().__init__(path, done)
        self.flushes = set()  # numbers of steps after which all survives a power loss
        self.cleanings = set()  # numbers of steps that compact
        self.add(self.create_store)
        for topic in CONFIGS:
            self.add(self.create_topic, topic)
        for number in range(ROUNDS):
            if number == 2:
                # In the middle of what is compacted by then.
                self.add(self.truncate, "keyed", 0, 24)
                self.add(self.delete_records, "mixed", 6)
            for part in range(2):
                self.append("keyed", 2 * number + part, sync=part == 1)
                self.append("brief", 2 * number + part)
                self.append("mixed", 2 * number + part)
            self.add(self.publish, number, sync=True)
            self.add(self.append_numbered, number)
            self.add(self.abort_transaction, number)
            self.add(self.commit, "by hand", number)
            self.add(self.commit, "other", number)
            if number:
                for topic, count in PARTITIONS.items():
                    for partition in range(count):
                        self.cleanings.add(self.add(self.compact, topic, partition))
                self.add(self.commit, "idle", 0, 1)
                self.add(self.expire)
                self.add(self.commit, "leaving", number)
                self.add(self.delete_group, "leaving")
                self.flushes.add(self.add(self.flush))
        self.add(self.clean)

    def append(self, topic, number, sync=False):
        """Four records, of which some are tombstones, but not the first."""
        name = f"append {topic} {number}"
        keys = [(3 * number + row) % KEYS for row in range(4)]
        data = rows(name, keys, [row and (number + row) % 5 == 4 for row in range(4)])
        self.add(lambda: Store.open(self.path).append(topic, data, partition=0, sync=sync), name=name, sync=sync)

    def publish(self, number):
        """A query's batch, which moves a group's committed offset; one becomes segments."""
        store = Store.open(self.path)
        writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["keyed", "brief"]))
        count = 44 if number % 2 else 4
        name = f"publish {number}"
        writer.append("keyed", rows(name, [number + row // 2 for row in range(count)], partitions=2))
        writer.append("brief", rows(name, [number + row for row in range(3)]))
        step = OffsetStep("moved", SOURCE, number - 1 if number else None, number)
        publish(
            store.decisions,
            "query",
            number,
            writer.finish(),
            run="run",
            participants=[OffsetMoves(store.committed_offsets, [step])],
        )

    def append_numbered(self, number):
        Store.open(self.path).append_batch("keyed", 1, numbered(number))

    def abort_transaction(self, number):
        """Records of keys that others have, too, which must not take their place."""
        store = Store.open(self.path)
        values = [f"aborted {number}: {row}".encode() for row in range(2)]
        keys = [b"%d" % (number + row) for row in range(2)]
        store.append_batch("keyed", 1, batch(2 * number, values, ABORTER, transactional=True, keys=keys))
        if store.latest_offset("keyed", 1, isolation_level=READ_COMMITTED) < store.latest_offset("keyed", 1):
            end_transaction(store, "keyed", 1, ABORTER)

    def commit(self, group, number, expire=-1):
        """A committed offset, which has a long text beside it so that the log's segments are soon full."""
        at = TopicPartition("mixed", 0)
        OffsetsLog(Store.open(self.path)).commit(group, {at: number}, "." * 100, expire_timestamp=expire)

    def expire(self):
        OffsetsLog(Store.open(self.path)).expire()

    def delete_group(self, group):
        with contextlib.suppress(UnknownGroupError):
            OffsetsLog(Store.open(self.path)).delete_group(group)

    def compact(self, topic, partition):
        compact(Store.open(self.path), topic, partition)


def compact(store, topic, partition):
    """Cleans a partition in as many rounds as it takes."""
    log, reader = store.logs.writer(topic, partition), store.logs.reader(topic, partition)
    while (done := partition_cleaner.run(log, reader, MEMORY, lambda _: None)) is not None and not done.finished:
        pass


def numbered(number):
    """Two records with the sequence numbers 2 * number and 2 * number + 1, each time of the same keys."""
    values = [f"numbered {number}: {row}".encode() + b"." * 60 for row in range(2)]
    return batch(2 * number, values, PRODUCER, keys=[b"numbered 0", b"numbered 1"])


def rows(name, keys, tombstones=(), partitions=1):
    """Rows of some keys, for the partitions in turn."""
    tombstones = tombstones or [False] * len(keys)
    return pa.record_batch(
        {
            "key": [b"%d" % key for key in keys],
            "value": pa.array(
                [None if gone else f"{name}: {row}".encode() + b"." * 60 for row, gone in enumerate(tombstones)],
                pa.binary(),
            ),
            "partition": pa.array([row % partitions for row in range(len(keys))], pa.int32()),
        }
    )


@dataclass
class Seen:
    """What readers see of a partition: where it begins and ends, and (key, value) by offset.

    Attributes:
        stable: where the first open transaction begins; the end, if none is open.
        committed: the same for readers that leave out what was aborted.
    """

    start: int = 0
    end: int = 0
    stable: int = 0
    records: dict = field(default_factory=dict)
    committed: dict = field(default_factory=dict)


def see(path):
    """What readers see, for each partition; and of the groups, {group: committed offset}."""
    store = Store.open(path)
    places = [(topic, partition) for topic in store.topics() for partition in range(PARTITIONS[topic])]
    found = {
        at: Seen(
            store.earliest_offset(*at),
            store.latest_offset(*at),
            store.latest_offset(*at, isolation_level=READ_COMMITTED),
            records_of(store, *at),
            records_of(store, *at, isolation_level=READ_COMMITTED),
        )
        for at in places
    }
    return found, committed_offsets(path)


def records_of(store, topic, partition, **how):
    """(key, value) by offset."""
    return {
        row["offset"]: (row["key"].decode(), None if row["value"] is None else row["value"].decode().rstrip("."))
        for read in store.read(topic, partition, **how)
        for row in read.select(["offset", "key", "value"]).to_pylist()
    }


def is_aborted(value):
    """Whether a value is one of an aborted transaction."""
    return value is not None and value.startswith("aborted")


def check_committed(at, seen):
    """Readers that leave out what was aborted see all else, up to where a transaction is open."""
    kept = {
        offset: record for offset, record in seen.records.items() if offset < seen.stable and not is_aborted(record[1])
    }
    assert seen.committed == kept, at
    assert seen.stable == seen.end or is_aborted(seen.records[seen.stable][1]), at


def committed_offsets(path):
    """The committed offset of each group."""
    offsets = OffsetsLog(Store.open(path))
    try:
        fetched = {group: offsets.fetch(group) for group in ("moved", *offsets.groups())}
    except UnknownTopicError:
        return {}
    return {group: next(iter(found.values())).offset for group, found in fetched.items() if found}


def check_dense(path):
    """In the files each batch begins where the one before it ends, and none of a swap is left over."""
    store = Store.open(path)
    for topic in store.topics(internal=True):
        for partition in range((PARTITIONS | INTERNAL)[topic]):
            expected = None
            for log in map(Path, store.segment_files(topic, partition)):
                data = log.read_bytes()
                for header in scan(data, 0, len(data), check_crcs=True):
                    assert expected in (None, header.base_offset), (log, expected, header)
                    expected = header.next_offset
            assert expected in (None, store.latest_offset(topic, partition)), (topic, partition, expected)
    left = [str(name) for name in Path(path).rglob("*") if name.name.endswith((".swap", ".linked"))]
    assert not left, left
