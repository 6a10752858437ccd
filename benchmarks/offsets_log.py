"""Commits of a hundred groups, ten positions a call and one: how fast, how long calls take, how large the log is.

    python benchmarks/offsets_log.py [--commits 500000] [--rounds 7] [--folder FOLDER] [--document]

Each way makes as many calls: --commits is for ten positions a call. The two take turns, in rounds: commits and calls a
second are medians of them, the others are of all calls. To open means that a new process, which has imported the
package, knows the committed offsets of all groups, or of one: a median, too.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

import tables

from pyspark_log import OffsetsLog, Store, TopicPartition

GROUPS, PARTITIONS = 100, 10

OPEN = """
import sys, time
from pyspark_log import OffsetsLog, Store
began = time.perf_counter()
log = OffsetsLog(Store.open(sys.argv[1]))
if len(sys.argv) > 2:
    log.fetch(sys.argv[2])
else:
    log.groups()
print(time.perf_counter() - began)
"""


class Committer:
    """One process that commits `each` positions a call, and the seconds of its calls."""

    def __init__(self, folder: str, each: int) -> None:
        self.store, self.each = Store.create(f"{folder}/store-{each}"), each
        self.log, self.seconds, self.speeds = OffsetsLog(self.store), array("d"), list[float]()

    def commit(self, calls: int) -> None:
        """Makes `calls` more calls."""
        for call in range(len(self.seconds), len(self.seconds) + calls):
            group, turn = call % GROUPS, call // GROUPS
            partitions = ((turn * self.each + one) % PARTITIONS for one in range(self.each))
            offsets = {TopicPartition("orders", partition): turn for partition in partitions}
            began = time.perf_counter()
            self.log.commit(f"group-{group}", offsets)
            self.seconds.append(time.perf_counter() - began)
        self.speeds.append(calls / sum(self.seconds[-calls:]))

    def line(self, rounds: int) -> list[str]:
        """Its line of the table."""
        speed, ordered = statistics.median(self.speeds), sorted(self.seconds)
        logs = list(Path(self.store.path).glob("data/__consumer_offsets-*/*.log"))
        return [
            f"{len(ordered) * self.each:,} commits, {self.each} a call",
            f"{speed * self.each:,.0f}",
            f"{speed:,.0f}",
            *(f"{ordered[int(share * (len(ordered) - 1))] * 1e3:.2f}" for share in (0.5, 0.99, 0.999, 1)),
            f"{sum(path.stat().st_size for path in logs) / 1e6:.1f} MB in {len(logs)} segments",
            *(f"{opened(self.store, *group, rounds=rounds) * 1e3:.0f} ms" for group in ((), ("group-7",))),
        ]


def opened(store: Store, *group: str, rounds: int) -> float:
    """Seconds until a new process knows the committed offsets of all groups, or of one."""
    command = [sys.executable, "-c", OPEN, store.path, *group]
    return statistics.median(float(subprocess.check_output(command)) for _ in range(rounds))


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--commits", type=int, default=500_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        committers = [Committer(folder, each) for each in (PARTITIONS, 1)]
        for _ in range(given.rounds):
            for one in committers:
                one.commit(given.commits // PARTITIONS // given.rounds)
        tables.show(
            "offsets log",
            ["", "commits/s", "calls/s", "half of the calls, ms", "99 in 100", "999 in 1,000", "the longest", "log",
             "all groups", "one group"],
            [one.line(given.rounds) for one in committers], document=given.document,
        )  # fmt: skip


if __name__ == "__main__":
    main()
