"""Counts what single calls cost apart from bytes: Python calls of this package, state files read, files inspected.

`python benchmarks/calls.py`: a line for each of append, read, stage, publish, commit and fetch, at their fifth call.
Times say little of a call that takes a millisecond; these numbers are the same on every machine.
"""

from __future__ import annotations

import builtins
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable

import pyarrow as pa

import pyspark_log
from pyspark_log import OffsetsLog, Store, TopicPartition
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.publish import StagedWriter, StagingPlan

PACKAGE = os.path.dirname(pyspark_log.__file__)
LOOKS = ("open", "stat", "lstat", "listdir", "scandir", "access", "readlink")
ROWS = pa.record_batch({"key": [b"%d" % n for n in range(100)], "value": [b"v" * 100] * 100})


class Counted:
    """Counts while it is entered: calls of the package's functions, and system calls."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Counted:
        self._real = {name: getattr(os, name) for name in LOOKS}
        for name, real in self._real.items():
            setattr(os, name, self._counting(real, "looks"))
        self._builtin = builtins.open
        builtins.open = self._counting(self._builtin, "looks")
        self._read = state_file.read
        state_file.read = self._counting(self._read, "state looks")
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        state_file.read = self._read
        builtins.open = self._builtin
        for name, real in self._real.items():
            setattr(os, name, real)

    def _profile(self, frame: object, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.counts["calls"] += 1

    def _counting(self, real: Callable[..., object], what: str) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            self.counts[what] += 1
            return real(*arguments, **options)

        return counted


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(f"{folder}/store", {"offsets.topic.num.partitions": "1"})
        store.create_topic("t", 2)
        log, at = OffsetsLog(store), TopicPartition("t", 0)
        staged: list[list[object]] = []
        numbers = iter(range(1000))

        def stage() -> None:
            writer = StagedWriter(store.logs, StagingPlan.make(store.logs, ["t"]))
            writer.append("t", ROWS)
            staged.append(writer.finish())

        works: dict[str, Callable[[], object]] = {
            "append": lambda: store.append("t", ROWS, partition=0),
            "read": lambda: sum(batch.num_rows for batch in store.read("t", 0)),
            "latest_offset": lambda: store.latest_offset("t", 0),
            "stage": stage,
            "publish": lambda: store.publishes.publish("query", next(numbers), staged.pop()),
            "commit": lambda: log.commit("g", {at: next(numbers)}),
            "fetch": lambda: log.fetch("g"),
        }
        print(f"{'':14}{'calls':>8}{'state looks':>14}{'looks':>8}")
        for name, work in works.items():
            for _ in range(4):
                if name == "publish":
                    stage()
                work()
            if name == "publish":
                stage()
            with Counted() as counted:
                work()
            counts = counted.counts
            print(f"{name:14}{counts['calls']:>8}{counts['state looks']:>14}{counts['looks']:>8}")


if __name__ == "__main__":
    main()
