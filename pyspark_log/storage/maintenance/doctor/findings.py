"""The doctor's findings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    WARNING = "warning"  # works, with a limit that the user should know
    FAILED = "failed"  # the engine must not be used like this


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked.

    Attributes:
        name: what was checked.
        verdict: see Verdict.
        measured: what was seen.
        meaning: what that means for a store there.
    """

    name: str
    verdict: Verdict
    measured: str
    meaning: str

    def to_dict(self) -> dict[str, str]:
        """As plain text values, for JSON."""
        return {"name": self.name, "verdict": self.verdict.value, "measured": self.measured, "meaning": self.meaning}

    @classmethod
    def from_dict(cls, content: dict[str, str]) -> Finding:
        """The inverse of `to_dict`."""
        return cls(content["name"], Verdict(content["verdict"]), content["measured"], content["meaning"])
