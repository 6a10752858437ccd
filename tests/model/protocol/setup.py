"""How a model is set, and which rule is left out."""

from __future__ import annotations

from typing import NamedTuple


class Setup(NamedTuple):
    """How a partition is set.

    Attributes:
        segment_size: how many batches a segment takes.
        ahead: how many offsets a reserve reaches beyond the end.
        handles: processes keep files open between two holds. (What else they keep only saves them a sync that
            would find nothing.)
        files: what is staged is a file of a task's beside the manifest; else the manifest holds it.
        links: a file can have a second name.
        without: the rule that is left out; "": none.
    """

    segment_size: int = 100
    ahead: int = 1
    handles: bool = False
    files: bool = False
    links: bool = True
    without: str = ""

    def keeps(self, rule: str) -> bool:
        """Whether a rule holds. That it is missed where it does not is shown by rules.py."""
        return rule != self.without


#: Nothing special, and all rules hold.
PLAIN = Setup()
