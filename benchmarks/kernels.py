"""Records per second of the compiled kernels, beside a copy of the same bytes and kafka-python's codec.

    python benchmarks/kernels.py [--records 500000] [--repeat 7]

Records have keys of 8 bytes and values of 100, half text and half noise, so that codecs have something
to do. Batches have 512 KiB before compression, chunks 1 MiB, as those of a reader. Medians of several runs, in one
process and one thread, whose processor time is counted. MB/s (10**6 bytes) count the uncompressed batches. The bytes of
a call are dropped when the next one starts, as a writer does that hands them to a file.

First, copy, encoding and decoding take turns. `fresh` keeps all results of a run, in memory that was not used before:
the copy's is asked of the system, and what the allocators hold is given back before each run.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import mmap
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa

from pyspark_log.storage.ingest import Partitioner, group
from pyspark_log.storage.record import CODECS, BatchBuilder, Chunk, RecordColumns, assign_offsets, decode

with warnings.catch_warnings():  # loading its protocol's schemas warns on newer Pythons
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

BATCH_SIZE = 512 * 1024
SMALL_BATCH_SIZE = 16 * 1024
CHUNK = 1024 * 1024
UNLIMITED = 1 << 30
NOW = 1_700_000_000_000


def median_seconds(work: Callable[[], object], repeat: int) -> float:
    """Median time of `work`, after one run that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def report(name: str, seconds: float, records: int, size: int, ratio: str = "") -> None:
    print(f"{name:<42}{records / seconds / 1e6:>12.2f}{size / seconds / 1e6:>12.0f}{ratio}", flush=True)


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
            log, position, len(log), from_offset=offset, until_offset=1 << 62, max_bytes=CHUNK,
            check_crcs=check_crcs,
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


def compare_with_copy(columns: RecordColumns, batch_size: int, repeat: int) -> dict[str, float]:
    """Prints, and returns by name, how fast they are beside a copy."""
    ratios = {}
    log = log_of(columns, batch_size, "none")
    works: dict[str, Callable[[bool], Iterator[object]]] = {
        "copy of the same bytes": lambda fresh: copied(log, fresh),
        "encode none": lambda _: encoded(columns, batch_size, "none"),
        "decode none": lambda _: decoded(log),
    }
    for fresh in (False, True):
        times: dict[str, list[float]] = {name: [] for name in works}
        for turn in range(repeat + 1):
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
        copy = statistics.median(times["copy of the same bytes"])
        for name, taken in times.items():
            seconds = statistics.median(taken)
            title = f"{name}, {'fresh' if fresh else 'reused'}, {batch_size // 1024} KiB"
            report(title, seconds, columns.num_rows, len(log), f"{copy / seconds:>12.2f}")
            ratios[title] = copy / seconds
    return ratios


def run_ours(keys: pa.Array, values: pa.Array, times: pa.Array, repeat: int) -> None:
    columns = RecordColumns(keys, values, times, None, NOW)
    plain = log_of(columns, BATCH_SIZE, "none")
    records, size = columns.num_rows, len(plain)
    for batch_size in (BATCH_SIZE, SMALL_BATCH_SIZE):
        compare_with_copy(columns, batch_size, repeat)
    for codec in CODECS[1:]:
        log = log_of(columns, BATCH_SIZE, codec)
        seconds = median_seconds(lambda codec=codec: encode(columns, BATCH_SIZE, codec), 3)
        report(f"encode {codec}", seconds, records, size)
        report(f"decode {codec}", median_seconds(lambda log=log: decode_all(log), 3), records, size)
    seconds = median_seconds(lambda: decode_all(plain, check_crcs=False), repeat)
    report("decode none, CRC unchecked", seconds, records, size)
    single = log_of(columns, 1, "none")
    seconds = median_seconds(lambda: encode(columns, 1, "none"), 3)
    report("encode none, batches of 1 record", seconds, records, len(single))
    seconds = median_seconds(lambda: decode_all(single), repeat)
    report("decode none, batches of 1 record", seconds, records, len(single))
    partitioner = Partitioner(12, BATCH_SIZE, 1)
    seconds = median_seconds(lambda: partitioner.assign(keys, values, None, records), repeat)
    report("partition by key (murmur2)", seconds, records, 8 * records)
    assignment = partitioner.assign(keys, values, None, records)
    seconds = median_seconds(lambda: group(assignment, 12), repeat)
    report("group rows by partition", seconds, records, 4 * records)


def run_kafka_python(keys: list[bytes], values: list[bytes]) -> None:
    def build() -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1,
            base_sequence=-1, batch_size=UNLIMITED,
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
    report("kafka-python encode none", median_seconds(build, 3), len(keys), len(data))
    report("kafka-python decode none", median_seconds(read, 3), len(keys), len(data))
    seconds = median_seconds(lambda: [murmur2(key) for key in keys], 3)
    report("kafka-python murmur2", seconds, len(keys), 8 * len(keys))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    keys, values, times = make_columns(arguments.records)
    print(f"{'':<42}{'M records/s':>12}{'MB/s':>12}{'of the copy':>12}")
    run_ours(keys, values, times, arguments.repeat)
    some = min(arguments.records, 4000)  # a batch of 512 KiB
    run_kafka_python(keys[:some].to_pylist(), values[:some].to_pylist())


if __name__ == "__main__":
    main()
