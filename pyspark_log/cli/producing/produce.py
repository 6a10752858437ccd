"""`pylog produce`: lines of text, or JSON objects, become records."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click
import pyarrow as pa

from pyspark_log.cli.producing.input import (
    BadLineError,
    Columns,
    LineLayout,
    constant,
    from_json,
    from_text,
    with_headers,
)
from pyspark_log.cli.producing.typed_text import Encoded, typed_records, typed_settings, with_schemas
from pyspark_log.cli.support import complete_topics, options_as, plural, to_ms
from pyspark_log.cli.target import Target
from pyspark_log.storage.catalog import OFFSETS_TOPIC, PUBLISH_TOPIC, check_name
from pyspark_log.storage.new_topics import keep_first_records
from pyspark_log.storage.store import Store
from pyspark_log.types import AppendResult

_CHUNK_BYTES = 1 << 20
_LINGER_S = 0.5
# For up to this many partitions the offsets are printed at the end.
_NAMED_PARTITIONS = 8


def _parse_headers(_ctx: click.Context, _param: click.Parameter, texts: Sequence[str]) -> list[tuple[str, bytes]]:
    headers = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        headers.append((name, os.fsencode(value)))
    return headers


# What a line of text consists of.
_LINES = (
    click.option(
        "--key-separator",
        metavar="TEXT",
        help="The text before this separator is the record's key. A line without it is an error.",
    ),
    click.option("--parse-headers", is_flag=True, help="Each line begins with headers, a:1,b:2, and a tab."),
    click.option(
        "--headers-delimiter", default="\t", metavar="TEXT", help="The text after the headers. [default: a tab]"
    ),
    click.option(
        "--headers-separator", default=",", show_default=True, metavar="TEXT", help="The text between headers."
    ),
    click.option(
        "--headers-key-separator",
        default=":",
        show_default=True,
        metavar="TEXT",
        help="The text between the name of a header and its value.",
    ),
    click.option(
        "--null-marker",
        metavar="TEXT",
        help="A key, value or header value with this text is null. A record with a null value is a tombstone.",
    ),
)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    default="-",
    metavar="FILE",
    help="Read this file instead of standard input.",
)
@click.option(
    "--format",
    "input_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text: a value per line, after the key and headers if these are asked for. json: an object per line, with the"
    " fields that `pylog consume --format json` prints (key, value, key_base64, value_base64, headers, timestamp); a"
    " missing field is null, and topic, offset and timestampType are ignored.",
)
@options_as("layout", LineLayout, _LINES)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parse_headers,
    help="Add this header to each record; repeatable.",
)
@click.option(
    "--timestamp",
    callback=to_ms,
    metavar="TIME",
    help="The time of each record (ms since 1970, or ISO-8601; UTC unless it names a zone). [default: now]",
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Write to this partition. Otherwise the key chooses it, as in Kafka; records without a key are spread.",
)
@click.option("--keep-partition", is_flag=True, help="With --format json: write each record to the partition it names.")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="The codec, if the topic leaves it to its writers (compression.type=producer, the default).",
)
@click.option("--sync", is_flag=True, help="Acknowledged records survive a power loss; slower.")
@with_schemas("Values are JSON, as `pylog consume` prints it, and are encoded by their schema:")
@click.pass_obj
def produce(
    target: Target,
    topic: str,
    path: str,
    input_format: str,
    layout: LineLayout,
    headers: Sequence[tuple[str, bytes]],
    timestamp: int | None,
    partition: int | None,
    keep_partition: bool,
    compression: str | None,
    sync: bool,
    schemas: Mapping[str, str],
) -> None:
    r"""Append each line of standard input to TOPIC as a record.

    A line ends with \n, which is not part of the value; all other bytes are, also the \r of Windows' line ends (`tr -d
    '\r'` takes them away). Lines are appended in large batches, at
    most half a second after they were read. At the end the number of records and their offsets are printed on standard
    error. The store and TOPIC are created if they are missing.
    """
    if topic in (OFFSETS_TOPIC, PUBLISH_TOPIC):
        raise click.UsageError(f"{topic} is an internal topic of the store; other records would break it.")
    if layout.has_empty_separator:
        raise click.UsageError("A separator must not be empty.")
    is_json = input_format == "json"
    if is_json and (layout.parse_headers or layout.key_separator is not None or layout.null_marker is not None):
        raise click.UsageError("--key-separator, --parse-headers and --null-marker need --format text.")
    if keep_partition and (not is_json or partition is not None):
        raise click.UsageError("--keep-partition needs --format json, and cannot be combined with --partition.")
    check_name(topic)
    store = target.open_or_create()
    is_new = store.ensure_topic(topic)
    if is_new:
        partitions = plural(store.describe_topic(topic).partitions, "partition")
        click.echo(f"Created topic {topic} with {partitions}.", err=True)
    settings = typed_settings(store, topic, schemas)
    encoded = typed_records(topic, settings)
    fixed = {} if timestamp is None else {"timestamp": timestamp}
    produced = _Produced(topic)
    try:
        with click.open_file(path, "rb") as file:
            for lines in _batches_of_lines(file.fileno()):
                columns = _columns(lines, layout, is_json, encoded, produced.lines)
                if not keep_partition:
                    columns.pop("partition", None)
                columns |= {name: constant(columns, value) for name, value in fixed.items()}
                if is_new and "timestamp" in columns:
                    _keep_records_of(store, topic, columns["timestamp"])
                is_new = False
                batch = pa.record_batch(with_headers(columns, headers))
                results = store.append(topic, batch, partition=partition, sync=sync, compression_type=compression)
                produced.add(results, lines.count(b"\n") + 1)
    except Exception as error:
        # The partitions that have got their records before it.
        produced.add(getattr(error, "results", ()))
        raise
    finally:
        produced.print()


def _columns(lines: bytes, layout: LineLayout, is_json: bool, encoded: Encoded, before: int) -> Columns:
    """The columns of records; `before` lines came earlier. click.ClickException names a line that is no record."""
    try:
        return from_json(lines, encoded) if is_json else encoded(from_text(lines, layout))
    except BadLineError as error:
        first, last = before + 1, before + lines.count(b"\n") + 1
        where = f"line {first + error.line}" if error.line is not None else f"a line of {first} to {last}"
        raise click.ClickException(f"{where} {error}; the first {before} lines were appended") from None


class _Produced:
    """What was appended.

    Attributes:
        lines: how many lines that was.
    """

    def __init__(self, topic: str) -> None:
        self.lines = 0
        self._topic, self._records = topic, 0
        self._offsets: dict[int, tuple[int, int]] = {}

    def add(self, results: Iterable[AppendResult], lines: int = 0) -> None:
        """Adds what an append has appended."""
        self.lines += lines
        for result in results:
            self._records += result.next_offset - result.base_offset
            first, _ = self._offsets.get(result.partition, (result.base_offset, 0))
            self._offsets[result.partition] = first, result.next_offset

    def print(self) -> None:
        """Says it on standard error, if there is something to say."""
        if not self._records:
            return
        named = [f"{number}: {first}..{end - 1}" for number, (first, end) in sorted(self._offsets.items())]
        more = len(named) - _NAMED_PARTITIONS
        places = ", ".join(named[:_NAMED_PARTITIONS]) + (f" and {more} more partitions" if more > 0 else "")
        click.echo(f"{plural(self._records, 'record')} to {self._topic}, offsets by partition: {places}", err=True)


def _keep_records_of(store: Store, topic: str, times: pa.Array) -> None:
    import pyarrow.compute as pc  # noqa: PLC0415  (a second, which few calls need)

    oldest = pc.min(times).as_py()
    if oldest is not None:
        keep_first_records(store, topic, oldest)


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
