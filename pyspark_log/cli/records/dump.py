"""`pylog dump`: prints the record batches of segment files."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pyspark_log.cli.records.formats import TIMESTAMP_TYPES, times_ms
from pyspark_log.cli.support import complete_topics
from pyspark_log.cli.target import Target
from pyspark_log.config import MAX_BATCH_BYTES
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError
from pyspark_log.storage.fs.files import File, open_read
from pyspark_log.storage.record import BatchHeader, headers_in
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.segment.batch_stream import batch_at

_WINDOW_BYTES = 64 << 10


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--topic", shell_complete=complete_topics, help="The segments of this topic, up to the log end, instead of FILEs."
)
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="The partition of --topic.")
@click.option("--records", "with_records", is_flag=True, help="Also print the records of each batch.")
@click.pass_obj
def dump(target: Target, files: tuple[str, ...], topic: str | None, partition: int | None, with_records: bool) -> None:
    """Print the record batches of segment files (.log), as Kafka's dump tool does.

    Needs no store when FILEs are given. The exit code is 1 if a batch is damaged.
    """
    if bool(files) == (topic is not None) or (topic is None) != (partition is None):
        raise click.UsageError("Give either FILEs, or --topic and --partition.")
    log_end, limit = None, MAX_BATCH_BYTES
    if topic is not None and partition is not None:
        store = target.open_folder()
        log_end = store.latest_offset(topic, partition)
        limit = store.topic_config(topic).max_batch_bytes
        files = tuple(store.segment_files(topic, partition))
    damaged = 0
    for path in files:
        try:
            damaged += _dump_file(path, log_end, limit if with_records else None)
        except CorruptRecordError as error:
            # What follows cannot be found without this batch's length.
            raise error.located(0, path, topic or "", -1 if partition is None else partition) from error
    if damaged:
        raise click.ClickException("1 damaged batch" if damaged == 1 else f"{damaged} damaged batches")


def _dump_file(path: str, log_end: int | None, record_limit: int | None) -> int:
    """Prints one file; returns how many of its batches are damaged.

    With `record_limit` (bytes) their records too, except of batches that take more than that in memory.
    """
    click.echo(f"Dumping {path}")
    damaged = end = 0
    with open_read(path) as file:
        size = file.size()
        for batch in _headers(file, size):
            if log_end is not None and batch.base_offset >= log_end:
                return damaged  # the leftover of a writer that did not finish
            valid = batch_at(file, batch.position, batch.end) is not None
            click.echo(_batch_line(batch, valid))
            damaged += not valid
            if record_limit is not None and valid:
                _print_records(file, batch, record_limit)
            end = batch.end
        if end < size and log_end is None:
            click.echo(f"the {size - end} bytes from byte {end} on are not a complete batch")
    return damaged


def _headers(file: File, size: int) -> Iterator[BatchHeader]:
    """The headers of a file's whole batches, a window at a time; those before a damaged one come first."""
    position = 0
    while position < size:
        headers = headers_in(file.pread(min(_WINDOW_BYTES, size - position), position), position, size)
        if not headers:
            return
        yield from headers
        position = headers[-1].end


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


def _print_records(file: File, batch: BatchHeader, limit: int) -> None:
    if batch.size > limit:
        raise BatchTooLargeError(batch.size, limit, batch.position, batch.base_offset)
    try:
        chunk = decode(
            # From 0: the header of a compressed set of an old format has its last offset only.
            file.pread(batch.size, batch.position), 0, batch.size, from_offset=0, until_offset=batch.next_offset,
            max_bytes=1, check_crcs=False, headers=True, max_batch_bytes=limit,
        )  # fmt: skip
    except CorruptRecordError as error:
        raise error.located(batch.position, "", "", -1) from error
    names = ("offset", "timestampType", "key", "value", "headers")
    columns = [chunk.columns[name].to_pylist() for name in names]
    for time, row in zip(times_ms(chunk.columns["timestamp"]), zip(*columns, strict=True), strict=True):
        offset, kind, key, value, headers = row
        shown = ", ".join(header["key"] + "=" + _format_bytes(header["value"]) for header in headers or ())
        click.echo(
            f"| offset: {offset} {TIMESTAMP_TYPES[kind]}: {time}"
            f" keySize: {_size(key)} valueSize: {_size(value)}"
            f" headers: [{shown}] key: {_format_bytes(key)} value: {_format_bytes(value)}"
        )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _format_bytes(data: bytes | None) -> str:
    """Bytes as text on one line; what does not print is escaped."""
    return "null" if data is None else repr(data)[2:-1]


def _word(flag: bool) -> str:
    return "true" if flag else "false"
