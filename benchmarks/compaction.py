"""Log compaction: the map of keys and the rewriting of segments, against a copy of the same files and Kafka's cleaner.

    python benchmarks/compaction.py [--records 600000] [--rounds 7] [--folder FOLDER] [--document]

Records have keys of 16 bytes and values of 80, half text and half noise: 105 bytes each in the log. Batches have
16 KiB before compression, segments 64 MiB. All is written to disk and synced, the copy too. Runs take turns, so that
other work on the machine meets all of them; medians, a ratio within each round. MB/s (10**6 bytes) count the bytes of
the log before.

Kafka's cleaner runs in one JVM with the same map of 128 MiB, on copies of the same segments; the first two runs,
which warm its compiler, do not count. Without its jars (make kafka-jars) its lines are left out.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import tables

from pyspark_log.config import TopicConfig
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.compaction.build_offset_map import Source, fill
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.rewrite import Rewritten, Round, remove_unfinished, rewrite
from pyspark_log.storage.compaction.transactions import CleanedTransactions
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.read import AbortedRanges
from pyspark_log.storage.record import assign_offsets, scan
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.segment import SegmentReader, SegmentWriter
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path

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
    """Inactive segments in a folder, and an empty active one after them."""

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
            pa.array([NOW + number for number in range(records)]),
            None,
            NOW,
        )
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
        cleaning = Round(self.place, CONFIG, 86_400_000, keys, NOW, 0, CleanedTransactions(()), {}, lambda _: None)
        ends = [*self.bases[1:], self.end]
        done = [rewrite(cleaning, [source], until) for source, until in zip(self.sources(), ends, strict=True)]
        remove_unfinished(self.folder)
        return done


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def line(name: str, times: list[float], log: Log, beside: Sequence[float] = ()) -> list[str]:
    """A line of the table; `beside`: the times that it is compared with, "times as fast"."""
    median = statistics.median(times)
    speeds = [f"{log.end / median / 1e6:.1f}", f"{log.size / median / 1e6:,.0f}"]
    return [name, f"{median:.2f}", *speeds, f"{tables.ratio(beside, times):.2f}" if beside else ""]


def beside_copy(log: Log, rounds: int) -> tuple[list[float], list[float]]:
    """Segments that keep all records, with all of their keys in the map: seconds of a copy, and of the new segments."""
    keys, copies, rewrites = OffsetMap(MAP_BYTES), [], []
    log.fill(keys)
    for _ in range(rounds):
        copies.append(seconds(log.copy))
        rewrites.append(seconds(lambda: log.rewrite(keys)))
    return copies, rewrites


def beside_kafka(log: Log, name: str, rounds: int) -> list[list[str]]:
    """Segments of which nine records in ten go: lines of the table."""
    fills, rewrites, kafka = [], [], []
    for _ in range(rounds):
        keys = OffsetMap(MAP_BYTES)
        fills.append(seconds(lambda keys=keys: log.fill(keys)))
        rewrites.append(seconds(lambda keys=keys: log.rewrite(keys)))
        if JARS.exists():
            kafka.append(run_kafka(log))
    mapped, theirs = [index for index, _ in kafka], [both for _, both in kafka]
    lines = [
        line(f"{name}: map of keys", fills, log, mapped),
        line(f"{name}: new segments", rewrites, log),
        line(f"{name}: both", [sum(both) for both in zip(fills, rewrites, strict=True)], log, theirs),
    ]
    if kafka:
        lines.append(line(f"{name}: Kafka, map of keys", mapped, log, mapped))
        lines.append(line(f"{name}: Kafka, both", theirs, log, theirs))
    return lines


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
    parser = tables.parser(__doc__)
    parser.add_argument("--records", type=int, default=600_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as top:
        log = Log(f"{top}/unique-0", given.records, given.records, "none")
        copies, rewrites = beside_copy(log, given.rounds)
        lines = [
            line("nothing goes: copy of the files", copies, log, copies),
            line("nothing goes: new segments", rewrites, log, copies),
        ]
    for codec, name in (("none", "no compression"), ("lz4", "lz4")):
        with tempfile.TemporaryDirectory(dir=given.folder) as top:
            log = Log(f"{top}/events-0", given.records, given.records // 10, codec)
            lines += beside_kafka(log, name, given.rounds)
    tables.show(
        "compaction",
        ["", "seconds", "M records/s", "MB/s", "times as fast as the copy, or Kafka"],
        lines,
        document=given.document,
    )


if __name__ == "__main__":
    main()
