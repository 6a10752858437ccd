"""Records per second of the compiled kernels, compared with a copy of the same bytes and kafka-python's codec.

    python benchmarks/kernels.py [--records 200000] [--rounds 7] [--document]

Records have keys of 8 bytes and values of 100, half text and half noise, so that codecs have something
to do. Batches have 512 KiB before compression, chunks 1 MiB, as those of a reader. Medians of several runs, in one
process and one thread, whose processor time is counted. MB/s (10**6 bytes) count the uncompressed batches. The bytes of
a call are dropped when the next one starts, as a writer does that hands them to a file.

First, copy, encoding and decoding take turns; a ratio is taken within each round. `fresh` keeps all results of a run,
in memory that was not used before: the copy's is newly mapped from the system, and what the allocators hold is given
back before each run.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa
import tables

from pyspark_log.storage.ingest.partitioner import Partitioner, group
from pyspark_log.storage.record import assign_offsets
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.decoding.decoder import Chunk, decode
from pyspark_log.storage.record.layout import CODECS

with warnings.catch_warnings():  # loading its protocol's schemas warns on newer Pythons
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

BATCH_SIZE = 512 * 1024
SMALL_BATCH_SIZE = 16 * 1024
CHUNK = 1024 * 1024
UNLIMITED = 1 << 30
NOW = 1_700_000_000_000


def median_seconds(work: Callable[[], object], rounds: int) -> float:
    """Median time of `work`, after one run that is not counted."""
    work()
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def line(name: str, seconds: float, records: int, size: int = 0) -> list[str]:
    """A line of the table of other kernels; `size`: the bytes, if they say anything."""
    return [name, f"{records / seconds / 1e6:.2f}", f"{size / seconds / 1e6:,.0f}" if size else ""]


def make_columns(records: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    source = random.Random(7)
    words = [b"%-10d" % source.randrange(500) for _ in range(1000)]
    values = [b"".join(source.choices(words, k=5)) + source.randbytes(50) for _ in range(records)]
    keys = [b"%08d" % source.randrange(10**8) for _ in range(records)]
    return pa.array(keys), pa.array(values), pa.array([NOW + i for i in range(records)])


def encoded(columns: RecordColumns, batch_size: int, codec: str) -> Iterator[bytes]:
    builder = BatchBuilder(batch_size, UNLIMITED, codec)
    taken = 0
    while taken < columns.num_rows:
        taken += builder.append(columns, None, taken, columns.num_rows)
        yield builder.seal()


def encode(columns: RecordColumns, batch_size: int, codec: str) -> None:
    for _ in encoded(columns, batch_size, codec):
        pass


def log_of(columns: RecordColumns, batch_size: int, codec: str) -> bytes:
    log = bytearray(b"".join(encoded(columns, batch_size, codec)))
    assign_offsets(log, 0, len(log), 0, 0)
    return bytes(log)


def decoded(log: bytes, check_crcs: bool = True) -> Iterator[Chunk]:
    position = offset = 0
    while position < len(log):
        chunk = decode(
            log, position, len(log), from_offset=offset, until_offset=1 << 62, max_bytes=CHUNK, check_crcs=check_crcs
        )
        position, offset = chunk.position, chunk.next_offset
        yield chunk


def decode_all(log: bytes, check_crcs: bool = True) -> None:
    for _ in decoded(log, check_crcs):
        pass


def copied(log: bytes, fresh: bool) -> Iterator[object]:
    target: mmap.mmap | bytearray = bytearray(CHUNK)
    for start in range(0, len(log), CHUNK):
        piece = memoryview(log)[start : start + CHUNK]
        if fresh:
            target = mmap.mmap(-1, CHUNK)
        target[: len(piece)] = piece
        yield target


def release_memory() -> None:
    gc.collect()
    pa.default_memory_pool().release_unused()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


def compare_with_copy(columns: RecordColumns, batch_size: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Million records a second, and the ratio to the copy, by name."""
    found = {}
    log = log_of(columns, batch_size, "none")
    works: dict[str, Callable[[bool], Iterator[object]]] = {
        "copy of the same bytes": lambda fresh: copied(log, fresh),
        "encode, with CRC-32C": lambda _: encoded(columns, batch_size, "none"),
        "decode, with CRC-32C": lambda _: decoded(log),
    }
    for fresh in (True, False):
        times: dict[str, list[float]] = {name: [] for name in works}
        for turn in range(rounds + 1):
            for name, work in works.items():
                kept: list[object] = []
                if fresh:
                    release_memory()
                start = time.thread_time()
                for result in work(fresh):
                    if fresh:
                        kept.append(result)
                if turn:
                    times[name].append(time.thread_time() - start)
        for name, taken in times.items():
            speed = columns.num_rows / statistics.median(taken) / 1e6
            title = f"{'fresh' if fresh else 'reused'}: {name}"
            found[title] = speed, tables.ratio(times["copy of the same bytes"], taken)
    return found


def others(columns: RecordColumns, rounds: int) -> list[list[str]]:
    """Lines of all other kernels."""
    records, lines = columns.num_rows, []
    plain, single = log_of(columns, BATCH_SIZE, "none"), log_of(columns, 1, "none")
    seconds = median_seconds(lambda: decode_all(plain, check_crcs=False), rounds)
    lines.append(line("decode, CRC not checked", seconds, records, len(plain)))
    for codec in CODECS[1:]:
        log = log_of(columns, BATCH_SIZE, codec)
        seconds = median_seconds(lambda codec=codec: encode(columns, BATCH_SIZE, codec), rounds)
        lines.append(line(f"encode {codec}", seconds, records, len(plain)))
        seconds = median_seconds(lambda log=log: decode_all(log), rounds)
        lines.append(line(f"decode {codec}", seconds, records, len(plain)))
    seconds = median_seconds(lambda: encode(columns, 1, "none"), rounds)
    lines.append(line("encode, one record a batch", seconds, records, len(single)))
    seconds = median_seconds(lambda: decode_all(single), rounds)
    lines.append(line("decode, one record a batch", seconds, records, len(single)))
    return lines


def partitioning(keys: pa.Array, values: pa.Array, rounds: int) -> list[list[str]]:
    """Lines of what spreads rows over partitions."""
    partitioner = Partitioner(12, BATCH_SIZE, 1)
    assignment = partitioner.assign(keys, values, None, len(keys))
    hashed = median_seconds(lambda: partitioner.assign(keys, values, None, len(keys)), rounds)
    grouped = median_seconds(lambda: group(assignment, 12), rounds)
    return [line("murmur2 of the keys", hashed, len(keys)), line("grouping rows by partition", grouped, len(keys))]


def kafka_python(keys: list[bytes], values: list[bytes], rounds: int) -> list[list[str]]:
    """Lines of kafka-python's codec."""

    def build() -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=UNLIMITED,
        )
        for offset, (key, value) in enumerate(zip(keys, values, strict=True)):
            builder.append(offset, NOW + offset, key, value, [])
        return bytes(builder.build())

    def read() -> None:
        batch = DefaultRecordBatch(data)
        batch.validate_crc()
        for _ in batch:
            pass

    data = build()
    return [
        line("kafka-python: encode", median_seconds(build, rounds), len(keys), len(data)),
        line("kafka-python: decode", median_seconds(read, rounds), len(keys), len(data)),
        line("kafka-python: murmur2", median_seconds(lambda: [murmur2(key) for key in keys], rounds), len(keys)),
    ]


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    given = parser.parse_args()
    keys, values, times = make_columns(given.records)
    columns = RecordColumns(keys, values, times, None, NOW)
    large, small = (compare_with_copy(columns, size, given.rounds) for size in (BATCH_SIZE, SMALL_BATCH_SIZE))
    tables.show(
        "kernels: beside a copy",
        ["M records/s", "batches of 512 KiB", "of the copy", "batches of 16 KiB", "of the copy"],
        [[name, *(f"{one[at]:.{1 + at}f}" for one in (large[name], small[name]) for at in (0, 1))] for name in large],
        document=given.document,
    )
    some = min(given.records, 4000)  # a batch of 512 KiB
    lines = others(columns, given.rounds) + partitioning(keys, values, given.rounds)
    lines += kafka_python(keys[:some].to_pylist(), values[:some].to_pylist(), given.rounds)
    tables.show("kernels: others", ["", "M records/s", "MB/s"], lines, document=given.document)


if __name__ == "__main__":
    main()
