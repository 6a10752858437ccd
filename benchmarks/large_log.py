"""Reads of a large partition against those of a small one: in sequence, and from anywhere in a process that comes new.

`python benchmarks/large_log.py [--gb SIZE] [FOLDER]`. Nothing is dropped from the page cache.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from pyspark_log import Store

SMALL_GB = 0.1
ROWS = 500_000
LOOKUPS = 200
RECORDS = 100
BEGIN = 1_600_000_000_000


def rows(first):
    """Records with keys of 8 bytes and values of 100, one each millisecond."""
    return pa.record_batch({
        "key": pa.array([b"%08d" % number for number in range(ROWS)]),
        "value": pa.array([b"%0100d" % number for number in range(ROWS)]),
        "timestamp": pa.array(range(BEGIN + first, BEGIN + first + ROWS), pa.int64()),
    })


def write(store, topic, gb):
    """Appends until the partition has its size; the records a second that the appends took."""
    store.create_topic(topic, 1, {"retention.ms": "-1"})
    data, taken, size = rows(0), 0.0, 0
    while size < gb * 1e9:
        started = time.perf_counter()
        store.append(topic, data)
        taken += time.perf_counter() - started
        size, end = store.size(topic, 0), store.latest_offset(topic, 0)
        data = data.set_column(2, "timestamp", pa.array(range(BEGIN + end, BEGIN + end + ROWS), pa.int64()))
    return end / taken


def calls_and_bytes():
    """What this process has read so far, by the kernel's count."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["syscr"]), int(fields["rchar"])


def look_up(path, topic):
    """Run in a process of its own. Before each read the store is opened anew, so that nothing is known of it."""
    end = Store.open(path).latest_offset(topic, 0)
    choices = random.Random(5)
    list(Store.open(path).read(topic, 0, 0, 1))  # What the first use of a program costs: imports.
    own_calls, own_bytes = calls_and_bytes()
    own_calls, own_bytes = calls_and_bytes()[0] - own_calls, calls_and_bytes()[1] - own_bytes
    for by_time in (False, True):
        taken, before = [], calls_and_bytes()
        for _ in range(LOOKUPS):
            at = choices.randrange(end - RECORDS)
            started = time.perf_counter()
            store, start = Store.open(path), at
            if by_time:
                start = store.offset_for_timestamp(topic, 0, BEGIN + at).offset
            count = sum(batch.num_rows for batch in store.read(topic, 0, start, start + RECORDS))
            taken.append(1000 * (time.perf_counter() - started))
            assert (start, count) == (at, RECORDS)
        calls, size = (now - then for now, then in zip(calls_and_bytes(), before, strict=True))
        print(json.dumps({
            "median": statistics.median(taken), "p95": statistics.quantiles(taken, n=20)[-1],
            "calls": (calls - own_calls) / LOOKUPS, "bytes": (size - own_bytes) / LOOKUPS,
        }))  # fmt: skip


def main(folder, gb):
    store = Store.create(Path(folder) / "store")
    for topic, size in (("small", SMALL_GB), ("large", gb)):
        written = write(store, topic, size)
        started = time.perf_counter()
        count = sum(batch.num_rows for batch in store.read(topic, 0))
        took = time.perf_counter() - started
        held = store.size(topic, 0)
        print(f"{topic}: {held / 1e9:.1f} GB, {count:,} records, {len(store.segment_files(topic, 0))} segments")
        print(f"  append, {ROWS:,} records a call   {written / 1e6:8.1f} M records/s")
        print(f"  read from start to end          {count / took / 1e6:8.1f} M records/s {held / took / 1e9:8.1f} GB/s")
        answer = subprocess.run(
            [sys.executable, __file__, "--look-up", topic, store.path], stdout=subprocess.PIPE, check=True
        )
        for name, line in zip(("an offset", "a time"), answer.stdout.splitlines(), strict=True):
            cost = json.loads(line)
            print(
                f"  {RECORDS} records from {name:20}{cost['median']:8.2f} ms ({cost['p95']:.2f} at 95 %)"
                f" {cost['calls']:8.0f} reads of files, {cost['bytes'] / 1024:,.0f} KiB"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="size of the large partition, in GB (1)")
    parser.add_argument("--look-up", metavar="TOPIC", help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", help="where to make the store")
    arguments = parser.parse_args()
    if arguments.look_up:
        look_up(arguments.folder, arguments.look_up)
    else:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
            main(place, arguments.gb)
