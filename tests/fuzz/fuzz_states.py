"""State files, with slots that are right by their CRC and say anything; and all that relies on them."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
from family import Family
from mutations import changed, noise

from pyspark_log.errors import PylogError
from pyspark_log.storage.log.read.reader import LogReader
from pyspark_log.storage.log.state import state_slots
from pyspark_log.storage.log.state.partition_state import SLOT_SIZE
from pyspark_log.storage.log.state.state_file import FILE_SIZE, SLOT_COUNT, SLOT_DISTANCE
from pyspark_log.storage.maintenance.repair import store as repair
from pyspark_log.storage.maintenance.verify import store as verify
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.store import Store

_NUMBERS = (-(2**63), -1, 0, 1, 7, 19, 20, 21, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
# How often, in inputs, the whole store is verified, repaired and written to, which takes a hundred times as long.
_WHOLE = 200


class States(Family):
    """The bytes of a state file, and whether the whole store is verified."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        verify.PAUSE = 0  # There is no writer meanwhile.
        self._path = folder / "store"
        store = Store.create(self._path)
        store.create_topic("t", 1, {"segment.bytes": "500", "retention.ms": "-1"})
        for number in range(0, 20, 2):
            store.append("t", pa.record_batch({"value": [b"%020d" % number, b"%020d" % (number + 1)]}), partition=0)
        self._place = store.logs.reader("t", 0).place
        self._state_path = Path(self._place.state_path)
        self._good = self._state_path.read_bytes()
        shutil.copytree(self._path, folder / "good")

    def input(self, pick: random.Random) -> tuple[bytes, bool]:
        data = bytearray(self._good)
        for slot in range(SLOT_COUNT):
            if pick.random() < 0.6:
                at = slot * SLOT_DISTANCE
                data[at : at + SLOT_SIZE] = _slot_like(pick, self._good)
        if pick.random() < 0.1:
            data = bytearray(changed(pick, bytes(data), 4))
        if pick.random() < 0.02:
            data = bytearray(noise(pick, FILE_SIZE))
        return bytes(data), pick.randrange(_WHOLE) == 0

    def feed(self, data: tuple[bytes, bool], counts: Counter[str]) -> None:
        content, whole = data
        self._state_path.write_bytes(content)
        state_slots.read_slots(str(self._state_path))
        try:
            self._read()
            counts["read"] += 1
        except PylogError as error:
            self.must("t-0" in str(error) or str(self._state_path) in str(error), error)
            counts["refused"] += 1
        if whole:
            self._look(counts)

    def _read(self) -> None:
        partition = LogReader(self._place)
        state = partition.state()
        for chunk in partition.read(state.log_start, state.high_watermark, max_bytes=1000):
            offsets, values = chunk.columns["offset"].to_pylist(), chunk.columns["value"].to_pylist()
            assert values == [b"%020d" % offset for offset in offsets]
        partition.size()
        partition.find_timestamp(0)
        partition.find_timestamp(1 << 60)

    def _look(self, counts: Counter[str]) -> None:
        """Everything else that relies on a state; each may refuse."""
        copy = self.folder / "copy"
        works = {
            "verified": lambda: verify.verify(self._path),
            "mended": lambda: _mended(self._path, copy),
            "appended": lambda: Store.open(self._path).append("t", pa.record_batch({"value": [b"new"]})),
            "cleaned": lambda: Store.open(self._path).clean(),
            "deleted": lambda: Store.open(self._path).delete_topic("t"),
        }
        for word, work in works.items():
            try:
                work()
                counts[word] += 1
            except PylogError:
                counts[f"{word}: refused"] += 1
        for path in (copy, self._path):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.folder / "good", self._path)


def _mended(path: Path, copy: Path) -> None:
    repair.repair(path, copy)
    report = verify.verify(copy)
    assert not report.damaged, report.findings


def _slot_like(pick: random.Random, good: bytes) -> bytes:
    """A slot with some fields changed, and in most a CRC that fits."""
    slots = [good[at : at + SLOT_SIZE] for at in range(0, FILE_SIZE, SLOT_DISTANCE)]
    slot = bytearray(pick.choice([one for one in slots if any(one)]))
    for _ in range(pick.randint(0, 3)):
        at, size = pick.choice(_FIELDS)
        number = pick.choice(_NUMBERS)
        if pick.random() < 0.3:
            number = int.from_bytes(slot[at : at + size], "big") + pick.choice((-1, 1))
        slot[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "big")
    if pick.random() < 0.2:
        slot = bytearray(changed(pick, bytes(slot), 2, in_place=True))
    if pick.random() < 0.9:
        slot[-4:] = crc32c(slot[:-4]).to_bytes(4, "big")
    return bytes(slot)


def _fields() -> list[tuple[int, int]]:
    """Where each field of a slot is and how many bytes it has; docs/internals/format.md has the names."""
    fields, at = [], 0
    sizes = (1, 1, 2, 4, 8, 8, 8, 8, 8, 8, 4, 4, 8, 8, 8, 4, 4, 8, 8, 8, 4, 2, 2, 8, 4, 4, 8, 4, 4, 8, 8, 76)
    for size in sizes:
        fields.append((at, size))
        at += size
    assert at == SLOT_SIZE - 4
    return fields


_FIELDS = _fields()
