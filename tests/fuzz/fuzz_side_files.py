"""The files beside the segments: checkpoints, properties, producer snapshots, indexes of aborted transactions."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from family import Family
from mutations import changed, noise, rearranged

from pyspark_log.errors import ProducerError, SideFileError
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.catalog.kafka_files import MetaProperties
from pyspark_log.storage.catalog.log_dirs import PartitionPath
from pyspark_log.storage.log.leader_epochs import LeaderEpochs
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.log.producers.state import ProducerEntry, ProducerStates, WrittenBatch
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.record.layout import TRANSACTIONAL, BatchHeader
from pyspark_log.storage.segment import txn_index
from pyspark_log.storage.segment.txn_index import AbortedTransaction, TxnIndex
from pyspark_log.types import TopicPartition

_ID = "Xo3aN0fPQvCd5yJmK2s9Bg"
_OFFSETS = {TopicPartition("orders", 0): 79, TopicPartition("a.b-c", 12): 0, TopicPartition("txn", 3): 2**63 - 1}
_EPOCHS = [(0, 0), (1, 40), (5, 41), (2**31 - 1, 2**62)]
_PRODUCERS = [
    ProducerEntry(1, 0, -1, 1000, None, (WrittenBatch(5, 30, 2, 1000),)),
    ProducerEntry(2, 7, 3, 1001, 17, (WrittenBatch(2**31 - 1, 31, 0, 1001),)),
    ProducerEntry(2**63 - 1, 2**15 - 1, 0, -1, None, ()),
]
_ABORTED = [
    AbortedTransaction(1, 100, 110, 105),
    AbortedTransaction(2, 105, 115, 116),
    AbortedTransaction(3, 118, 135, 125),
]
_TXN_BASE = 100


class SideFiles(Family):
    """The kind of a file, and its bytes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._file = folder / "file"
        TxnIndex(str(self._file), _TXN_BASE)
        index = TxnIndex(str(folder / "aborted"), _TXN_BASE)
        for entry in _ABORTED:
            index.append(entry)
        index.close()
        properties = MetaProperties("cluster", 3, _ID)
        self._kinds: dict[str, tuple[bytes, Callable[[bytes, str], object]]] = {
            "offset checkpoint": (_checkpoint(_OFFSETS), self._offsets),
            "leader-epoch-checkpoint": (kafka_files.encode_checkpoint(_EPOCHS), self._epochs),
            "partition.metadata": (kafka_files.encode_partition_metadata(_ID), self._metadata),
            "meta.properties": (kafka_files.encode_meta_properties(properties), self._properties),
            "snapshot": (snapshot.encode(_PRODUCERS), self._snapshot),
            "txnindex": ((folder / "aborted").read_bytes(), self._txn_index),
        }

    def input(self, pick: random.Random) -> tuple[str, bytes]:
        kind = pick.choice(list(self._kinds))
        good, _ = self._kinds[kind]
        what = pick.randrange(12)
        if what == 0:
            return kind, noise(pick)
        if what == 1:
            return kind, good[: pick.randrange(len(good) + 1)]
        if kind == "snapshot":
            return kind, _snapshot_like(pick, good)
        if kind == "txnindex" and what < 6:
            return kind, rearranged(pick, good, 34)
        if what < 6 and b"\n" in good:
            return kind, _lines_like(pick, good)
        return kind, changed(pick, good, 4)

    def feed(self, data: tuple[str, bytes], counts: Counter[str]) -> None:
        kind, content = data
        self._file.write_bytes(content)
        try:
            self._kinds[kind][1](content, str(self._file))
        except SideFileError as error:
            self.must(str(self._file) in str(error), error)
            counts[f"{kind}: refused"] += 1
        else:
            counts[f"{kind}: read"] += 1

    def _offsets(self, _content: bytes, path: str) -> None:
        found = kafka_files.read_offsets(path)
        assert kafka_files.decode_offsets(_checkpoint(found), path) == found

    def _epochs(self, _content: bytes, path: str) -> None:
        epochs = LeaderEpochs.read(path)
        for before, after in zip(epochs.entries, epochs.entries[1:], strict=False):
            assert before.epoch < after.epoch
            assert before.start_offset < after.start_offset
        epochs.cut_start(41)
        epochs.write(path)
        assert LeaderEpochs.read(path).entries == epochs.entries

    def _metadata(self, content: bytes, path: str) -> None:
        self._file.with_name("partition.metadata").write_bytes(content)
        assert len(PartitionPath("t", _ID, 0, str(self.folder), "").owner()) < 300
        topic_id = kafka_files.read_partition_metadata(path)
        assert topic_id is not None
        assert kafka_files.encode_partition_metadata(topic_id) in (content, content.rstrip(b"\n"))

    def _properties(self, _content: bytes, path: str) -> None:
        found = kafka_files.read_meta_properties(path)
        assert found is not None
        if found.cluster_id is not None and found.node_id is not None:
            again = kafka_files.encode_meta_properties(found)
            assert kafka_files.decode_meta_properties(again, path) == found

    def _snapshot(self, _content: bytes, path: str) -> None:
        entries = snapshot.read(path)
        states = ProducerStates(entries, 1000)
        for number, producer in enumerate([entry.producer_id for entry in entries][:3]):
            header = BatchHeader(0, 1000 + 3 * number, 100, 0, 2, 0, TRANSACTIONAL, 2, 5, 5, producer, 9, 6, 3)
            with contextlib.suppress(ProducerError):
                states.check(header)
                states.enter(header)
                end = header._replace(base_offset=header.next_offset, last_offset_delta=0)
                states.aborted_by(end, EndTxnMarker(False, 1))
                states.check(end._replace(attributes=0x30), EndTxnMarker(False, 1))
                states.enter(end._replace(attributes=0x30), EndTxnMarker(False, 1))
        states.expire(10**9, 10)
        assert snapshot.decode(snapshot.encode(states.entries), path) is not None

    def _txn_index(self, _content: bytes, path: str) -> None:
        entries = txn_index.read_entries(path, _TXN_BASE)
        for low, high in ((0, 2**63 - 1), (100, 101), (111, 120)):
            assert set(txn_index.collect(entries, low, high).entries) <= set(entries)
        index = TxnIndex(path, _TXN_BASE)
        index.cut(130)
        index.append(AbortedTransaction(9, 120, 2**62, 2**62))
        index.close()
        kept = [entry for entry in entries if entry.last_offset < 130]
        assert txn_index.read_entries(path, _TXN_BASE)[:-1] == kept


def _checkpoint(offsets: dict[TopicPartition, int]) -> bytes:
    return kafka_files.encode_checkpoint([(at.topic, at.partition, offset) for at, offset in offsets.items()])


def _snapshot_like(pick: random.Random, good: bytes) -> bytes:
    """A snapshot that is damaged, with a CRC that fits in most of them; and in many the count fits, too."""
    entries = rearranged(pick, good[10:], 46) if pick.random() < 0.5 else good[10:]
    entries = changed(pick, entries, 4, in_place=pick.random() < 0.7)
    count = good[6:10] if pick.random() < 0.3 else (len(entries) // 46).to_bytes(4, "big")
    body = count + entries
    head = good[:2] + (good[2:6] if pick.random() < 0.1 else crc32c(body).to_bytes(4, "big"))
    return (changed(pick, head, 1, in_place=True) if pick.random() < 0.1 else head) + body


def _lines_like(pick: random.Random, good: bytes) -> bytes:
    """Lines in another order, with other fields, and in many a count that fits."""
    lines = good.split(b"\n")
    for _ in range(pick.randint(1, 3)):
        at = pick.randrange(len(lines))
        kind = pick.randrange(5)
        if kind == 0:
            lines.insert(at, pick.choice(lines))
        elif kind == 1 and len(lines) > 1:
            del lines[at]
        elif kind == 2:
            fields = lines[at].split(b" ")
            fields[pick.randrange(len(fields))] = pick.choice(
                (b"", b"-1", b"0", b"9" * 19, b"9" * 5000, b"2147483648", b"\xff", b"x", "\u0663".encode(), b"a b")
            )
            lines[at] = b" ".join(fields)
        elif kind == 3:
            lines[at] = noise(pick, 30)
        else:
            lines[at] = pick.choice(
                (b"\\u12", b"\\", b"version=1", b"cluster.id=\\ud800", b"node.id=-1", b" # x", b"a")
            )
    if pick.random() < 0.6 and len(lines) > 2:
        lines[1] = str(len(lines) - 2 - (lines[-1] == b"")).encode()
    return b"\n".join(lines)
