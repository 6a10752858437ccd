"""`pylog dump`: the record batches of segment files, for people who want to see what is there."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import click

from pyspark_log.cli.records import TIMESTAMP_TYPES, times_ms
from pyspark_log.cli.target import Target
from pyspark_log.storage.batch import BatchHeader
from pyspark_log.storage.errors import CorruptRecordError
from pyspark_log.storage.records import decode, scan

_WINDOW_BYTES = 8 << 20


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option("--topic", help="Instead of files: the segments of this topic, up to the log's end.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Which partition of --topic.")
@click.option("--records", "with_records", is_flag=True, help="Print each batch's records, too.")
@click.pass_obj
def dump(
    target: Target, files: tuple[str, ...], topic: str | None, partition: int | None, with_records: bool
) -> None:
    """Print the record batches of segment files (.log), a line each, in the words of Kafka's own dump.

    Needs no store when FILEs are given. Ends with code 1 if a batch is damaged.
    """
    if bool(files) == (topic is not None) or (topic is None) != (partition is None):
        raise click.UsageError("give either FILEs, or --topic and --partition.")
    log_end = None
    if topic is not None and partition is not None:
        store = target.open()
        log_end = store.latest_offset(topic, partition)
        files = tuple(store.segment_files(topic, partition))
    damaged = sum(_dump_file(path, log_end, with_records) for path in files)
    if damaged:
        raise click.ClickException(f"{damaged} damaged batch(es)")


def _dump_file(path: str, log_end: int | None, with_records: bool) -> int:
    """Prints one file; returns how many of its batches are damaged."""
    click.echo(f"Dumping {path}")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            return _dump_buffer(buffer, size, path, log_end, with_records)


def _dump_buffer(
    buffer: mmap.mmap, size: int, path: str, log_end: int | None, with_records: bool
) -> int:
    damaged = end = 0
    try:
        for batch in _headers(buffer, size):
            if log_end is not None and batch.base_offset >= log_end:
                return damaged  # what a writer left behind that did not finish
            valid = _is_valid(buffer, batch)
            click.echo(_batch_line(batch, valid))
            damaged += not valid
            if with_records and valid:
                _print_records(buffer, batch)
            end = batch.end
    except CorruptRecordError as error:
        # What follows cannot be found without this batch's length.
        raise error.located(0, path, "", -1) from error
    if end < size and log_end is None:
        click.echo(f"{size - end} bytes from byte {end} on are no whole batch")
    return damaged


def _is_valid(buffer: mmap.mmap, batch: BatchHeader) -> bool:
    try:
        return len(scan(buffer, batch.position, batch.end, check_crcs=True)) == 1
    except CorruptRecordError:
        return False


def _headers(buffer: mmap.mmap, size: int) -> Iterator[BatchHeader]:
    """The headers of a file's whole batches, a window at a time; those before a damaged one come first."""
    start, window = 0, _WINDOW_BYTES
    while start < size:
        stop = min(start + window, size)
        try:
            headers = scan(buffer, start, stop)
        except CorruptRecordError as error:
            yield from scan(buffer, start, error.position)
            raise
        yield from headers
        if headers:
            start, window = headers[-1].end, _WINDOW_BYTES
        elif stop == size:
            return
        else:
            window *= 2  # a batch larger than the window


def _batch_line(batch: BatchHeader, valid: bool) -> str:
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count}"
        f" baseSequence: {batch.base_sequence} producerId: {batch.producer_id}"
        f" producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch}"
        f" isTransactional: {_word(batch.is_transactional)} isControl: {_word(batch.is_control)}"
        f" position: {batch.position} {TIMESTAMP_TYPES[batch.timestamp_type]}: {batch.max_timestamp}"
        f" size: {batch.size} magic: {batch.magic} compresscodec: {batch.codec}"
        f" crc: {batch.crc} isvalid: {_word(valid)}"
    )


def _print_records(buffer: mmap.mmap, batch: BatchHeader) -> None:
    chunk = decode(
        # From 0: a compressed set of an old format tells its last offset only.
        buffer, batch.position, batch.end, from_offset=0, until_offset=batch.next_offset,
        max_bytes=1, check_crcs=False, headers=True,
    )
    names = ("offset", "timestampType", "key", "value", "headers")
    columns = [chunk.columns[name].to_pylist() for name in names]
    for time, row in zip(times_ms(chunk.columns["timestamp"]), zip(*columns, strict=True), strict=True):
        offset, kind, key, value, headers = row
        shown = ", ".join(header["key"] + "=" + _shown(header["value"]) for header in headers or ())
        click.echo(
            f"| offset: {offset} {TIMESTAMP_TYPES[kind]}: {time}"
            f" keySize: {_size(key)} valueSize: {_size(value)}"
            f" headers: [{shown}] key: {_shown(key)} value: {_shown(value)}"
        )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _shown(data: bytes | None) -> str:
    """Bytes as text on one line; what does not print is escaped."""
    return "null" if data is None else repr(data)[2:-1]


def _word(flag: bool) -> str:
    return "true" if flag else "false"
