"""The findings of a verification: one value for each fault, made where the fault is seen."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

#: The advice for damage that only a repaired copy removes.
REPAIR: Final = "make a repaired copy of the store: pylog repair"


class Severity(StrEnum):
    """How bad a finding is."""

    #: Records cannot be read, would be read wrongly, or are in danger at the next write.
    DAMAGE = "damage"
    #: An index differs from a rebuilt one. Reads by offset take longer; a look-up by time can be wrong.
    INDEX = "index"
    #: Nothing is wrong with the records; worth knowing when something else is.
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        severity: see Severity.
        topic: its topic; "" if it is the store's.
        partition: -1 if it is not one partition's.
        file: the file or folder, relative to the store.
        position: the byte in the file where it begins; -1 if it is the whole file.
        first_offset, next_offset: the offsets that it affects, the second exclusive; -1 = not known, or none.
        what: what is wrong.
        advice: what to do about it.
    """

    severity: Severity
    topic: str
    partition: int
    file: str
    position: int
    first_offset: int
    next_offset: int
    what: str
    advice: str

    def to_dict(self) -> dict[str, object]:
        """The fields by name, for JSON."""
        return asdict(self) | {"severity": self.severity.value}


@dataclass(frozen=True, slots=True)
class Finder:
    """Makes the findings of a store, or of a topic or partition of it.

    Attributes:
        root: the store's folder, to which findings name files.
        topic, partition: as in Finding.
    """

    root: str
    topic: str = ""
    partition: int = -1

    def at(self, topic: str, partition: int = -1) -> Finder:
        """The same for a topic, or for a partition."""
        return Finder(self.root, topic, partition)

    def damage(self, path: str, what: str, advice: str, position: int = -1, first: int = -1, end: int = -1) -> Finding:
        """Damage in a file, named absolutely or relative to the store; `first`, `end`: the offsets that it affects."""
        return self._finding(Severity.DAMAGE, path, what, advice, position, first, end)

    def unreadable(self, path: str, error: OSError, first: int = -1, end: int = -1) -> Finding:
        """Damage: a file or folder that cannot be read."""
        advice = "check permissions and the health of the disk"
        return self.damage(path, f"cannot be read: {error.strerror}", advice, -1, first, end)

    def index(self, path: str, what: str, advice: str, position: int = -1, first: int = -1, end: int = -1) -> Finding:
        """A difference in an index; arguments as of `damage`."""
        return self._finding(Severity.INDEX, path, what, advice, position, first, end)

    def note(self, path: str, what: str, advice: str, position: int = -1, first: int = -1, end: int = -1) -> Finding:
        """A note; arguments as of `damage`."""
        return self._finding(Severity.NOTE, path, what, advice, position, first, end)

    def unknown(self, path: str) -> Finding:
        """A note of a file that the engine does not know."""
        return self.note(path, "not a file of the engine", "take it out of the store's folder")

    def _finding(
        self, severity: Severity, path: str, what: str, advice: str, position: int, first: int, end: int
    ) -> Finding:
        file = os.path.relpath(os.path.join(self.root, path), self.root)
        return Finding(severity, self.topic, self.partition, file, position, first, end, what, advice)
