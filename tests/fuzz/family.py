"""What all families of inputs have in common."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any


class Family(ABC):
    """Readers that are fuzzed with inputs of one kind. One process makes one of each."""

    def __init__(self, folder: Path) -> None:
        """`folder` is empty, and this family's alone."""
        self.folder = folder

    @staticmethod
    def must(condition: bool, error: Exception) -> None:
        """Fails for an error that does not say what it must say."""
        if not condition:
            raise AssertionError("an error that does not say where") from error

    @abstractmethod
    def input(self, pick: random.Random) -> Any:
        """The next input."""

    @abstractmethod
    def feed(self, data: Any, counts: Counter[str]) -> None:
        """Has everything read it that can. Any error that leaves here is a failure."""
