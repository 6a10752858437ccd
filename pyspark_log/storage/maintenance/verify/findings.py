"""The findings of a verification: one value for each fault."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Final

#: The advice for damage that only a repaired copy removes.
REPAIR: Final = "make a mended copy of the store: pylog repair"


class Severity(str, Enum):
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
        topic: whose it is; "" if it is the store's.
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
    """Makes the findings of one partition.

    Attributes:
        topic: its topic.
        partition: its number.
        root: the store's folder, to which findings name files.
    """

    topic: str
    partition: int
    root: str

    def __call__(
        self, severity: Severity, path: str, position: int = -1, first_offset: int = -1, next_offset: int = -1,
        *, what: str, advice: str = "",
    ) -> Finding:
        """A finding in the file `path`; the rest as in Finding."""
        return Finding(
            severity, self.topic, self.partition, os.path.relpath(path, self.root), position,
            first_offset, next_offset, what, advice,
        )  # fmt: skip
