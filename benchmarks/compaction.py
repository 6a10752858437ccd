"""Log compaction: the map of keys and the rewriting of segments, beside a copy of the same files and Kafka's cleaner.

    python benchmarks/compaction.py [--records 1000000] [--repeat 7] [--folder FOLDER]

Records have keys of 16 bytes and values of 80, half text and half noise: 105 bytes each in the log. Batches have
16 KiB before compression, segments 64 MiB. All is written to disk and synced, the copy too. Runs take turns, so that
other work on the machine meets all of them; medians. MB/s (10**6 bytes) count the bytes of the log before.

Kafka's cleaner runs in one JVM with the same map of 128 MiB, on copies of the same segments; the first two runs,
which warm its compiler, do not count. It needs its jars (make kafka-jars).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from pyspark_log.config import TopicConfig
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.compaction import (
    CleanedTransactions,
    OffsetMap,
    Rewritten,
    Round,
    Source,
    fill,
    remove_unfinished,
    rewrite,
)
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import AbortedRanges
from pyspark_log.storage.record import BatchBuilder, RecordColumns, assign_offsets, scan
from pyspark_log.storage.segment import LOG, SegmentReader, SegmentWriter, list_segments, segment_path

BATCH_SIZE = 16 * 1024
SEGMENT_BYTES = 64 * 1024 * 1024
MAP_BYTES = 128 * 1024 * 1024
COPY_SIZE = 1024 * 1024
UNLIMITED = 1 << 30
NOW = 1_700_000_000_000
JARS = Path(__file__).parents[1] / ".kafka" / "jars"
WARM_RUNS = 2
CONFIG = TopicConfig.resolve({"cleanup.policy": "compact"}, {})


class Log:
    """Closed segments in a folder, and an empty active one behind them."""

    def __init__(self, folder: str, records: int, keys: int, codec: str) -> None:
        self.folder, self.end = folder, records
        self.place = PartitionPath("events", "", 0, folder, f"{folder}/state")
        os.makedirs(folder)
        source = random.Random(7)
        words = [b"%-10d" % source.randrange(500) for _ in range(1000)]
        numbers = list(range(keys)) if keys == records else [source.randrange(keys) for _ in range(records)]
        source.shuffle(numbers)
        columns = RecordColumns(
            pa.array([b"key-%012d" % number for number in numbers]),
            pa.array([b"".join(source.choices(words, k=4)) + source.randbytes(40) for _ in range(records)]),
            pa.array([NOW + number for number in range(records)]), None, NOW,
        )  # fmt: skip
        builder = BatchBuilder(BATCH_SIZE, UNLIMITED, codec)
        taken = offset = 0
        writer = self._begin(0)
        while taken < records:
            taken += builder.append(columns, None, taken, records)
            batch = bytearray(builder.seal())
            if writer.position + len(batch) > SEGMENT_BYTES:
                writer = self._begin(offset, writer)
            offset = assign_offsets(batch, 0, len(batch), offset, 0)
            writer.log.pwrite(batch, writer.position)
            writer.enter(scan(batch, 0, len(batch)))
        self._begin(records, writer).close()
        self.bases = list_segments(folder)[:-1]
        self.size = sum(source.size for source in self.sources())

    def _begin(self, offset: int, before: SegmentWriter | None = None) -> SegmentWriter:
        if before is not None:
            before.log.sync()
            before.finish()
            before.close()
        files.create(segment_path(self.folder, offset, LOG)).close()
        return SegmentWriter(self.folder, offset, 0, CONFIG)

    def sources(self) -> list[Source]:
        readers = [SegmentReader(self.folder, base) for base in self.bases]
        return [Source(reader, reader.log.size()) for reader in readers]

    def copy(self) -> None:
        """The bytes of its segments, read and written in large pieces, and synced."""
        for base in self.bases:
            with (
                open(segment_path(self.folder, base, LOG), "rb", buffering=0) as source,
                open(f"{self.folder}/copy", "wb", buffering=0) as target,
            ):
                while piece := source.read(COPY_SIZE):
                    target.write(piece)
                os.fdatasync(target.fileno())
            os.unlink(f"{self.folder}/copy")

    def fill(self, keys: OffsetMap) -> None:
        fill(
            keys, self.place, self.sources(), 0, self.end,
            aborted=AbortedRanges(()), max_batch_bytes=CONFIG.max_batch_bytes, throttle=lambda _: None,
        )  # fmt: skip

    def rewrite(self, keys: OffsetMap) -> list[Rewritten]:
        cleaning = Round(
            self.place, CONFIG, 86_400_000, keys, NOW, 0, CleanedTransactions(()), {}, lambda _: None
        )
        ends = [*self.bases[1:], self.end]
        done = [rewrite(cleaning, [source], until) for source, until in zip(self.sources(), ends, strict=True)]
        remove_unfinished(self.folder)
        return done


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(name: str, times: list[float], log: Log) -> float:
    median = statistics.median(times)
    print(f"{name:<44}{median:>8.2f}{log.end / median / 1e6:>10.2f}{log.size / median / 1e6:>9.0f}", flush=True)
    return median


def compare_with_copy(log: Log, repeat: int) -> float:
    """Segments of which nothing goes, with all of their keys in the map: prints and returns the ratio to a copy."""
    keys, copies, rewrites = OffsetMap(MAP_BYTES), [], []
    log.fill(keys)
    for _ in range(repeat):
        copies.append(seconds(log.copy))
        rewrites.append(seconds(lambda: log.rewrite(keys)))
    ratio = report("nothing to drop: copy of the files", copies, log)
    ratio /= report("nothing to drop: rewrite", rewrites, log)
    print(f"{'  of the copy':<44}{ratio:>8.2f}")
    return ratio


def compare_with_kafka(log: Log, codec: str, repeat: int) -> None:
    """Segments of which nine records in ten go."""
    fills, rewrites, kafka = [], [], []
    done: list[Rewritten] = []
    for _ in range(repeat):
        keys = OffsetMap(MAP_BYTES)
        fills.append(seconds(lambda keys=keys: log.fill(keys)))
        rewrites.append(seconds(lambda keys=keys: done.extend(log.rewrite(keys))))
        if JARS.exists():
            kafka.append(run_kafka(log))
    kept = sum(rewritten.records_kept for rewritten in done) // repeat
    name = f"{codec}, {kept / log.end:.0%} stay"
    report(f"{name}: map of keys", fills, log)
    report(f"{name}: rewrite", rewrites, log)
    ours = report(f"{name}: both", [sum(both) for both in zip(fills, rewrites, strict=True)], log)
    if not kafka:
        print("  Kafka's jars are not here: make kafka-jars")
        return
    report(f"{codec}: Kafka's cleaner, map of keys", [index for index, _ in kafka], log)
    theirs = report(f"{codec}: Kafka's cleaner, both", [both for _, both in kafka], log)
    print(f"{'  times as fast':<44}{theirs / ours:>8.2f}")


def run_kafka(log: Log) -> tuple[float, float]:
    """Seconds of Kafka's cleaner, for the map of keys and in all."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(log.folder)) as top:
        folders = [f"{top}/events-{number}" for number in range(WARM_RUNS + 1)]
        for folder in folders:
            shutil.copytree(log.folder, folder)
        home = os.environ.get("JAVA_HOME")
        output = subprocess.run(
            [f"{home}/bin/java" if home else "java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
             f"{JARS}/*", str(Path(__file__).with_name("KafkaCleaner.java")), str(log.end), *folders],
            check=True, stdout=subprocess.PIPE, text=True,
        ).stdout  # fmt: skip
        lines = [line.split()[1:] for line in output.splitlines() if line.startswith("cleaned ")]
        return float(lines[-1][0]), float(lines[-1][1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--folder", help="where the logs are made")
    options = parser.parse_args()
    print(f"{'':<44}{'seconds':>8}{'M records/s':>12}{'MB/s':>7}")
    with tempfile.TemporaryDirectory(dir=options.folder) as top:
        compare_with_copy(Log(f"{top}/unique-0", options.records, options.records, "none"), options.repeat)
    for codec in ("none", "lz4"):
        with tempfile.TemporaryDirectory(dir=options.folder) as top:
            log = Log(f"{top}/events-0", options.records, options.records // 10, codec)
            compare_with_kafka(log, codec, options.repeat)


if __name__ == "__main__":
    main()
