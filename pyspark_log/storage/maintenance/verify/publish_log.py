"""Verifies the publish log of a store in an object store: its entries from the floor on, and what is made of them.

The entries are folded once more, one by one. Each checkpoint must be what the fold is at its number, and each sum must
have the entries of its block. So a new process comes to the same state, however it begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyspark_log.errors import CorruptRecordError, DescriptionError, LogDamagedError, StoreVersionError
from pyspark_log.storage.fs import side_by_side
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log import checkpoint, floors, naming
from pyspark_log.storage.publish_log.entries import sums
from pyspark_log.storage.publish_log.entries.entry import FIRST_BYTES, Entry, decode, name_of, size_of_head
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.serving.documents import Documents
from pyspark_log.storage.publish_log.state import State

_BACK: Final = "bring the object back: an older version of it, or that of a copy"
# How many entries are read at the same time.
_AT_ONCE = 16


class _Bad(NamedTuple):
    """An entry that cannot be read, and why."""

    reason: str


class LogCheck:
    """The check of a publish log; `run` does it.

    Attributes:
        state: the store after the last entry that could be folded.
        findings: what is wrong.
    """

    def __init__(self, objects: Objects) -> None:
        """Reads nothing yet."""
        self.state, self.findings = State(), list[Finding]()
        self._objects, self._finder = objects, Finder(str(objects.address))
        self._listed: dict[str, list[int]] = {kind: [] for kind in naming.NUMBERED}
        self._block: dict[int, Entry] = {}  # the last entries that were folded
        self._floors: dict[int, int] = {}  # those that entries have decided
        self._is_cut = False  # whether there are entries after the last one that could be folded

    def run(self) -> None:
        """Folds the log. ObjectStoreError: the object store does not answer."""
        # The floors first, and the entries last: what the one names is then in the other.
        for kind in ("floor", "checkpoint", "sum"):
            self._list(kind)
        self._find_unknown()
        known = self._read_floors()
        self._begin(max(known.values(), default=-1))
        self._list("log")
        while self._fold():
            pass
        self._check_floors(known)

    def _list(self, kind: str) -> None:
        for one in self._objects.list(kind):
            number = naming.number(one.key, kind)
            if number is not None:
                self._listed[kind].append(number)
        self._listed[kind].sort()

    def _find_unknown(self) -> None:
        for one in self._objects.list():
            if not naming.is_given(one.key) and one.key not in ("store.json", "checkpoint/last"):
                self.findings.append(
                    self._finder.note(one.key, "not an object of the engine", "take it out of the store's prefix")
                )

    def _damage(self, name: str, what: str, advice: str) -> None:
        self.findings.append(self._finder.damage(name, what, advice))

    # ---- the fold

    def _begin(self, floor: int) -> None:
        """Begins with the checkpoint of the floor; where there is none, with the first entry."""
        if floor < 0:
            return
        try:
            self.state = checkpoint.read(self._objects, floor)
        except (CorruptRecordError, LogDamagedError, StoreVersionError) as error:
            self._damage(checkpoint.name_of(floor), _reason(error), f"{_BACK}: it is the floor's")
            self._go_on_after(floor)

    def _go_on_after(self, number: int) -> bool:
        """Takes the state of the first checkpoint after a number that can be read; False: there is none."""
        for each in self._listed["checkpoint"]:
            if each > number:
                try:
                    self.state = checkpoint.read(self._objects, each)
                except (CorruptRecordError, LogDamagedError, StoreVersionError) as error:
                    self._check_checkpoint_read(each, error)
                else:
                    self._block = {}
                    return True
        return False

    def _fold(self) -> bool:
        """Folds some more entries; False: there are none."""
        first = self.state.number + 1
        numbers = range(first, first + _AT_ONCE)
        found = side_by_side(self._read, numbers, _AT_ONCE)
        for number, one in zip(numbers, found, strict=True):
            problem = "" if isinstance(one, Entry) else one.reason if one is not None else "it is missing"
            if one is None and number > self._last():
                return False
            if isinstance(one, Entry):
                try:
                    self.state.apply(one)
                except LogDamagedError as error:
                    problem = str(error)
                else:
                    self._compare(one)
                    continue
            self._damage(name_of(number), problem, _BACK)
            self._is_cut = not self._go_on_after(number)
            return not self._is_cut
        return True

    def _last(self) -> int:
        """The last entry that was there at the begin: what is made of entries is not older than they are."""
        made = [number + sums.BLOCK - 1 for number in self._listed["sum"]]
        return max([*self._listed["log"], *self._listed["checkpoint"], *made], default=-1)

    def _read(self, number: int) -> Entry | _Bad | None:
        found = self._objects.get(name_of(number), FIRST_BYTES)
        if found is None:
            return None
        try:
            if size_of_head(found.data) > len(found.data):
                found = self._objects.get(name_of(number)) or found
            return decode(number, found.data)
        except (CorruptRecordError, StoreVersionError) as error:
            return _Bad(_reason(error))

    # ---- what is made of entries

    def _compare(self, entry: Entry) -> None:
        """Compares the fold with a checkpoint and a sum, if there is one that ends here."""
        number = entry.number
        if entry.floor is not None:
            self._floors[self.state.floors] = entry.floor
        if number % sums.BLOCK == 0:
            self._block = {}
        self._block[number] = entry
        if number in self._listed["checkpoint"]:
            try:
                if checkpoint.read(self._objects, number) != self.state:
                    what = "it is not the state after its entry"
                    self._damage(checkpoint.name_of(number), what, "delete it: the entries say what it should")
            except (CorruptRecordError, LogDamagedError, StoreVersionError) as error:
                self._check_checkpoint_read(number, error)
        if (number + 1) % sums.BLOCK == 0 and number + 1 - sums.BLOCK in self._listed["sum"]:
            self._compare_sum(number + 1 - sums.BLOCK)

    def _check_checkpoint_read(
        self, number: int, error: CorruptRecordError | LogDamagedError | StoreVersionError
    ) -> None:
        if self._objects.get(checkpoint.name_of(number), 1) is not None:  # Else it was deleted meanwhile.
            self._damage(checkpoint.name_of(number), _reason(error), "delete it: the entries say what it should")

    def _compare_sum(self, first: int) -> None:
        name, kept = sums.name_of(first), [self._block[number] for number in sorted(self._block)]
        found = [entry for entry, _ in sums.read_from(self._objects, first)]
        if not found:
            if self._objects.get(name, 1) is not None:
                what, advice = "it is damaged; the entries are read instead", "delete it"
                self.findings.append(self._finder.index(name, what, advice))
        elif found[-len(kept) :] != kept:
            self._damage(name, "it has other entries than the log", "delete it: the entries are read instead")

    # ---- floors

    def _read_floors(self) -> dict[int, int]:
        """The floors that are written, by their counts."""
        known = dict[int, int]()
        for count in self._listed["floor"]:
            found = self._objects.get(floors.name_of(count))
            text = b"" if found is None else bytes(found.data)
            if text.isdigit():
                known[count] = int(text)
            else:
                self._damage(floors.name_of(count), f"it is no number: {text[:40]!r}", _BACK)
        return known

    def _check_floors(self, known: dict[int, int]) -> None:
        """Each floor is what was decided. The last one may not be written yet."""
        for count, number in known.items():
            decided = self._floors.get(count, number)
            if (count > self.state.floors and not self._is_cut) or number != decided:
                said = f"{decided} was decided" if count <= self.state.floors else "none of this count was decided"
                self._damage(floors.name_of(count), f"it says {number}, but {said}", _BACK)
        for count in range(1, self.state.floors):
            if count not in self._listed["floor"]:
                what = "it is missing: a process that has slept for long does not notice that entries were deleted"
                self._damage(floors.name_of(count), what, f"{_BACK}: it is a number alone")


def _reason(error: CorruptRecordError | LogDamagedError | StoreVersionError) -> str:
    return error.reason if isinstance(error, CorruptRecordError) else str(error)


def damaged_documents(objects: Objects, state: State, finder: Finder) -> Iterator[Finding]:
    """Documents of the store's servers that are missing, or not what was decided. ObjectStoreError."""
    documents = Documents(PublishLog(objects, now_ms))
    with contextlib.suppress(CorruptRecordError, LogDamagedError, StoreVersionError):  # The log's check has said so.
        documents.take(state)
    for document in state.documents.values():
        try:
            documents.current(document.name)
        except DescriptionError as error:
            yield finder.damage(document.object, str(error), f"no backup has {document.name}")


def without_topic(state: State, finder: Finder) -> Iterator[Finding]:
    """Partitions of no topic, or that their topic does not have."""
    partitions = {topic.topic_id: topic.partitions for topic in state.topics.values()}
    for (topic_id, partition), log in state.partitions.items():
        if partition >= partitions.get(topic_id, 0):
            what = f"there are records of partition {partition} of the topic with id {topic_id}, which does not exist"
            yield finder.damage("log", what, "take another copy", -1, log.log_start, log.log_end)
