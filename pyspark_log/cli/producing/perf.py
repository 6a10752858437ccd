"""`pylog perf`: how fast a store is written to and read, as kafka-producer-perf-test.sh and its sister measure it."""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import click
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.cli.support import CommandGroup, complete_topics, json_option, print_json
from pyspark_log.cli.target import Target

_MIB = 1 << 20
_PERCENTILES = (50, 95, 99, 99.9)
# How often it says on a terminal how far it is, in seconds.
_EVERY = 1.0


@click.group(cls=CommandGroup)
def perf() -> None:
    """Measure how fast this store can be written and read."""


@perf.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--num-records", type=click.IntRange(min=1), required=True, metavar="N", help="How many to write.")
@click.option(
    "--record-size",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="BYTES",
    help="The size of a value: random hexadecimal digits.",
)
@click.option(
    "--throughput",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write at most N records per second. [default: no limit]",
)
@click.option(
    "--batch-records",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of records per append. [default: about 1 MiB; with --throughput those of 0.1 s at most]",
)
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Write to this partition only.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="The codec, if the topic leaves it to its writers.",
)
@click.option("--sync", is_flag=True, help="Sync each append, so that it survives a power loss.")
@json_option
@click.pass_obj
def produce(
    target: Target,
    topic: str,
    num_records: int,
    record_size: int,
    throughput: int | None,
    batch_records: int | None,
    partition: int | None,
    compression: str | None,
    sync: bool,
    as_json: bool,
) -> None:
    """Append random records to TOPIC; print records and MiB per second, and latencies.

    The latency of a record is how long its append took.
    """
    store = target.open()
    store.describe_topic(topic)
    size = batch_records or max(1, min(_MIB // record_size, throughput // 10 if throughput else _MIB))
    batch = _random_records(min(size, num_records), record_size)
    latencies, counts, sent, shown = list[float](), list[int](), 0, 0.0
    began = time.perf_counter()
    while sent < num_records:
        part = batch.slice(0, num_records - sent)
        start = time.perf_counter()
        store.append(topic, part, partition=partition, sync=sync, compression_type=compression)
        now = time.perf_counter()
        latencies.append((now - start) * 1000)
        counts.append(part.num_rows)
        sent += part.num_rows
        if now - began - shown > _EVERY:
            shown = now - began
            _say(f"{sent} records sent, {sent / shown:.0f} records/s")
        if throughput and (early := sent / throughput - (now - began)) > 0:
            time.sleep(early)
    seconds = time.perf_counter() - began
    result = {
        "records": sent,
        "seconds": round(seconds, 3),
        "records_per_second": round(sent / seconds, 1),
        "mib_per_second": round(sent * record_size / _MIB / seconds, 2),
        "latency_ms_avg": round(_weighted(latencies, counts), 3),
        "latency_ms_max": round(max(latencies), 3),
        **{
            f"latency_ms_p{percent:g}": round(latency, 3)
            for percent, latency in zip(_PERCENTILES, percentiles(latencies, counts, _PERCENTILES), strict=True)
        },
    }
    if as_json:
        print_json(result)
        return
    listed = ", ".join(f"{result[f'latency_ms_p{percent:g}']} ms {percent:g}th" for percent in _PERCENTILES)
    click.echo(
        f"{sent} records sent, {result['records_per_second']} records/sec ({result['mib_per_second']} MiB/sec), "
        f"{result['latency_ms_avg']} ms avg latency, {result['latency_ms_max']} ms max latency, {listed}."
    )


@perf.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--messages", type=click.IntRange(min=1), metavar="N", help="Stop after N records. [default: all]")
@click.option("--headers", is_flag=True, help="Also read the headers.")
@json_option
@click.pass_obj
def consume(target: Target, topic: str, messages: int | None, headers: bool, as_json: bool) -> None:
    """Read TOPIC from its beginning; print records and MiB (of keys and values) per second."""
    store = target.open()
    left, size, records, shown = messages or sys.maxsize, 0, 0, 0.0
    began = time.perf_counter()
    for whole in store.topic(topic).read(partitions=store.partitions.written(topic), headers=headers):
        batch = whole.slice(0, left)
        records, left = records + batch.num_rows, left - batch.num_rows
        size += sum(pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
        now = time.perf_counter()
        if now - began - shown > _EVERY:
            shown = now - began
            _say(f"{records} records read, {records / shown:.0f} records/s")
        if not left:
            break
    seconds = max(time.perf_counter() - began, 1e-9)
    result = {
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds, 1),
        "mib": round(size / _MIB, 3),
        "mib_per_second": round(size / _MIB / seconds, 2),
    }
    if as_json:
        print_json(result)
        return
    click.echo(
        f"{records} records read, {result['records_per_second']} records/sec ({result['mib_per_second']} MiB/sec), "
        f"{result['mib']} MiB in {seconds:.3f} s."
    )


def percentiles(latencies: Sequence[float], counts: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """The percentiles of the latencies; `counts`: the records of each latency."""
    ordered = sorted(zip(latencies, counts, strict=True))
    passed = list(accumulate(count for _, count in ordered))
    return [ordered[bisect_left(passed, percent * passed[-1] / 100)][0] for percent in wanted]


def _weighted(latencies: Sequence[float], counts: Sequence[int]) -> float:
    return sum(latency * count for latency, count in zip(latencies, counts, strict=True)) / sum(counts)


def _random_records(count: int, size: int) -> pa.RecordBatch:
    """Records of random hexadecimal digits, which compress to about a half."""
    letters = os.urandom((count * size + 1) // 2).hex()[: count * size].encode()
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, pa.py_buffer(letters)])
    return pa.record_batch({"value": values.cast(pa.binary())})


def _say(progress: str) -> None:
    if sys.stderr.isatty():
        click.echo(progress, err=True)
