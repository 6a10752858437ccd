"""What a read does where records are damaged: the option `onCorruption`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark_log.storage.objects import Objects, by_kind
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:  # Options are parsed in processes that do not load the engine.
    from pyspark_log.storage.log.read import Damage

log = logging.getLogger(__name__)

_PIECE = 1024 * 1024


@dataclass(frozen=True)
class OnCorruption:
    """The option.

    Attributes:
        skips: whether the records after the damage are read; otherwise the damage is an error.
        folder: gets the damaged bytes and a report; "": there is none.
    """

    skips: bool = False
    folder: str = ""

    def handler(self, at: TopicPartition, options: Mapping[str, str]) -> Callable[[Damage], None] | None:
        """What `Store.read` is to call with damage of a partition; None: damage is an error.

        Args:
            at: the partition.
            options: those of its store.
        """
        return partial(self._pass_over, at, options) if self.skips else None

    def _pass_over(self, at: TopicPartition, options: Mapping[str, str], damage: Damage) -> None:
        """Warns of the exact range, and keeps the bytes. OSError: the folder cannot be written to."""
        kept = f"; kept in {self._keep(at, options, damage)}" if self.folder else ""
        log.warning(
            "[PYLOG_CORRUPT_RECORD] %s: records in offset [%d, %d) are damaged and skipped, as onCorruption says: %s, "
            "bytes %d to %d: %s%s",
            at, damage.first_offset, damage.next_offset, damage.file, damage.position, damage.end, damage.reason, kept,
        )  # fmt: skip

    def _keep(self, at: TopicPartition, options: Mapping[str, str], damage: Damage) -> str:
        """Writes the bytes and a report to the folder; returns the report's path. A task that runs again repeats it."""
        os.makedirs(self.folder, exist_ok=True)
        path = f"{self.folder}/{at}-{damage.first_offset}-{damage.next_offset}"
        with open(f"{path}.bytes", "wb") as target:
            for part in _pieces_of(damage, options):
                target.write(part)
        report = {"topic": at.topic, "partition": at.partition, **damage._asdict()}
        with open(f"{path}.json", "w", encoding="utf-8") as target:
            json.dump(report, target, indent=1)
        return f"{path}.json"


def _pieces_of(damage: Damage, options: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The damaged bytes, as far as they are there."""
    ranges = [(at, min(_PIECE, damage.end - at)) for at in range(damage.position, damage.end, _PIECE)]
    if not ranges:
        return
    yield from by_kind(damage.file, folder=_pieces_of_file, objects=_pieces_of_object)(damage.file, ranges, options)


def _pieces_of_object(
    url: str, ranges: Sequence[tuple[int, int]], options: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    folder, _, name = url.rpartition("/")
    with contextlib.suppress(FileNotFoundError, EOFError):
        yield from Objects(folder, options).get_ranges(name, ranges)


def _pieces_of_file(
    path: str, ranges: Sequence[tuple[int, int]], options: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    with open(path, "rb") as source:
        source.seek(ranges[0][0])
        for _, size in ranges:
            yield source.read(size)
