"""A million commits of a hundred groups, ten positions a call and one: how fast, how long single calls take, how large
the log is then, and how long a process that comes new takes to know all positions.
`python benchmarks/offsets_log.py [--commits N] [--folder F]`
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from pyspark_log import OffsetsLog, Store, TopicPartition

GROUPS, PARTITIONS, ROUNDS = 100, 10, 5

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


def commit(store, commits, each):
    """Makes the commits, `each` of them in a call; gives the seconds of each call."""
    log, seconds = OffsetsLog(store), array("d")
    for call in range(commits // each):
        group, turn = call % GROUPS, call // GROUPS
        offsets = {TopicPartition("orders", (turn * each + one) % PARTITIONS): turn for one in range(each)}
        began = time.perf_counter()
        log.commit(f"group-{group}", offsets)
        seconds.append(time.perf_counter() - began)
    return seconds


def opened(store, *group):
    """Seconds until a new process knows the positions of all groups, or of one."""
    command = [sys.executable, "-c", OPEN, store.path, *group]
    return statistics.median(float(subprocess.check_output(command)) for _ in range(ROUNDS))


def main(folder, commits):
    for each in (PARTITIONS, 1):
        store = Store.create(Path(folder) / f"store-{each}")
        seconds = commit(store, commits, each)
        speed, seconds = len(seconds) / sum(seconds), sorted(seconds)
        logs = list(Path(store.path).glob("data/__consumer_offsets-*/*.log"))
        size = sum(path.stat().st_size for path in logs)
        name = f"{commits:,} commits, {each} a call"
        print(f"{name:32}{speed:10,.0f} calls/s{speed * each:10,.0f} commits/s", end="")
        for share in (0.5, 0.99, 0.999, 1):
            print(f"{seconds[int(share * (len(seconds) - 1))] * 1e3:9.2f} ms p{share * 100:g}", end="")
        print(f"{size / 1e6:9.1f} MB in {len(logs)} segments", end="")
        print(f"{opened(store) * 1e3:9.0f} ms to open{opened(store, 'group-7') * 1e3:9.0f} ms one group", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        main(place, given.commits)
