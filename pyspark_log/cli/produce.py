"""`pylog produce`: lines of standard input become records."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator

import click
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.cli.target import Target
from pyspark_log.storage.catalog import OFFSETS_TOPIC, PUBLISH_TOPIC, check_name

_CHUNK_BYTES = 1 << 20
_LINGER_S = 0.5


@click.command()
@click.argument("topic")
@click.option(
    "--key-separator", metavar="TEXT",
    help="What precedes its first occurrence in a line is the record's key. A line without it is an error.",
)
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N",
    help="Write to this partition. Otherwise keys choose it as in Kafka; records without a key are spread.",
)
@click.pass_obj
def produce(target: Target, topic: str, key_separator: str | None, partition: int | None) -> None:
    r"""Append each line of standard input to TOPIC as a record.

    A line ends with \n, which is not part of the value; all other bytes are. Lines are appended together in
    large batches, and at the latest half a second after they were read.
    """
    if topic in (OFFSETS_TOPIC, PUBLISH_TOPIC):
        raise click.UsageError(f"{topic} is the store's own; records of yours would break it.")
    if key_separator == "":
        raise click.UsageError("--key-separator may not be empty.")
    check_name(topic)
    store = target.open_or_create()
    if store.ensure_topic(topic):
        click.echo(f"made topic {topic} with {store.describe_topic(topic).partitions} partition(s)", err=True)
    written = 0
    for lines in _batches_of_lines(sys.stdin.fileno()):
        batch = _records(lines, key_separator, written)
        store.append(topic, batch, partition=partition)
        written += batch.num_rows


def _batches_of_lines(fd: int) -> Iterator[bytes]:
    """Whole lines without the last one's end, many at a time, but none held back for long."""
    pending = bytearray()
    deadline = 0.0
    while True:
        complete = pending.rfind(b"\n")
        wait = max(deadline - time.monotonic(), 0.0) if complete >= 0 else None
        if complete >= 0 and (len(pending) >= _CHUNK_BYTES or wait == 0.0):
            yield bytes(pending[:complete])
            del pending[: complete + 1]
            continue
        try:
            if not select.select([fd], [], [], wait)[0]:
                continue
            data = os.read(fd, _CHUNK_BYTES)
        except KeyboardInterrupt:
            if complete >= 0:
                yield bytes(pending[:complete])  # what was entered counts, as with Kafka's producer
            raise
        if not data:
            break
        if complete < 0:
            deadline = time.monotonic() + _LINGER_S
        pending += data
    if pending:
        yield bytes(pending.removesuffix(b"\n"))


def _records(lines: bytes, key_separator: str | None, before: int) -> pa.RecordBatch:
    """Lines as columns of records; `before` lines came earlier."""
    values = pc.split_pattern(pa.array([lines], pa.large_binary()), b"\n").flatten()
    if key_separator is None:
        return pa.record_batch({"value": values})
    pairs = pc.split_pattern(values, key_separator.encode(), max_splits=1)
    keyless = pc.index(pc.list_value_length(pairs), 1).as_py()
    if keyless >= 0:
        raise click.ClickException(
            f"line {before + keyless + 1} has no key separator {key_separator!r}; "
            f"the first {before} lines were appended"
        )
    return pa.record_batch({"key": pc.list_element(pairs, 0), "value": pc.list_element(pairs, 1)})
