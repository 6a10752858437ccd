"""`pylog consume`: records of a topic, to standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import click
import pyarrow as pa

from pyspark_log.cli.group_records import group_lines, of_group
from pyspark_log.cli.records import TextLayout, json_lines, text_lines
from pyspark_log.cli.target import Target
from pyspark_log.cli.times import to_ms
from pyspark_log.errors import OffsetOutOfRangeError
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, READ_UNCOMMITTED


@click.command()
@click.argument("topic")
@click.option(
    "--partition", "partitions", type=click.IntRange(min=0), multiple=True, metavar="N",
    help="Only this partition; may be given several times.",
)
@click.option("--from-beginning", is_flag=True, help="Start at the earliest offset (the default).")
@click.option(
    "--offset", "start_offset", type=click.IntRange(min=0), metavar="N",
    help="Start at this offset of the partition.",
)
@click.option(
    "--timestamp", callback=to_ms, metavar="TIME",
    help="Start at the first record with this time or a later one"
    " (ms since 1970, or ISO-8601, UTC if it names no zone).",
)
@click.option("--end", is_flag=True, help="Start at the end: print only new records as they come.")
@click.option("--follow", "-f", is_flag=True, help="At the end, wait for more (stop with Ctrl-C).")
@click.option(
    "--isolation-level", type=click.Choice([READ_UNCOMMITTED, READ_COMMITTED]), default=READ_UNCOMMITTED,
    show_default=True, help="read_committed: leave out what transactions have not committed.",
)
@click.option("--max-messages", type=click.IntRange(min=0), metavar="N", help="Stop after so many records.")
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json", "offsets"]), default="text", show_default=True,
    help="text: values as they are, a line each. json: everything of a record, an object a line;"
    " bytes that are no UTF-8 are shown as base64 in key_base64 or value_base64."
    " offsets: records of __consumer_offsets as what they say, an object a line.",
)
@click.option("--group", metavar="GROUP", help="With --format offsets, only records of this group.")
@click.option("--print-timestamp", is_flag=True, help="In text, print the record's time before the value.")
@click.option("--print-partition", is_flag=True, help="In text, print the partition before the value.")
@click.option("--print-offset", is_flag=True, help="In text, print the offset before the value.")
@click.option("--print-key", is_flag=True, help="In text, print the key before the value (null: none).")
@click.option(
    "--key-separator", default="\t", metavar="TEXT", help="Printed between key and value.  [default: a tab]"
)
@click.pass_obj
def consume(
    target: Target, topic: str, partitions: Sequence[int], from_beginning: bool, start_offset: int | None,
    timestamp: int | None, end: bool, follow: bool, isolation_level: str, max_messages: int | None, output_format: str,
    group: str | None, print_timestamp: bool, print_partition: bool, print_offset: bool, print_key: bool,
    key_separator: str,
) -> None:
    """Print the records of TOPIC.

    Prints all that is there, partition by partition and in order within each, and ends. With --follow, or
    --end, it waits for new records instead, as Kafka's console consumer does.
    """
    if from_beginning + (start_offset is not None) + (timestamp is not None) + end > 1:
        raise click.UsageError("--from-beginning, --offset, --timestamp and --end exclude each other.")
    if group is not None and output_format != "offsets":
        raise click.UsageError("--group goes with --format offsets only.")
    store = target.open()
    count = store.describe_topic(topic).partitions
    if start_offset is not None and (len(set(partitions)) or count) != 1:
        raise click.UsageError(f"--offset needs --partition, since {topic} has {count} partitions.")
    # Partitions without files have no records yet; but a command that waits for records waits for theirs.
    waits = follow or end or start_offset is not None
    chosen = sorted(set(partitions)) or (range(count) if waits else store.written_partitions(topic))
    positions = {
        partition: _start(store, topic, partition, isolation_level, offset=start_offset, timestamp=timestamp, end=end)
        for partition in chosen
    }
    layout = TextLayout(print_timestamp, print_partition, print_offset, print_key, key_separator.encode())
    left = sys.maxsize if max_messages is None else max_messages
    formats: dict[str, Callable[[pa.RecordBatch], bytes]] = {
        "text": partial(text_lines, layout=layout), "json": json_lines, "offsets": group_lines,
    }  # fmt: skip
    headers = output_format == "json"
    for read in _batches(store, topic, positions, isolation_level, headers=headers, follow=follow or end):
        batch = (read if group is None else of_group(read, group)).slice(0, left)
        sys.stdout.buffer.write(formats[output_format](batch))
        sys.stdout.buffer.flush()
        left -= batch.num_rows
        if not left:
            break


def _batches(
    store: Store, topic: str, positions: dict[int, int], level: str, *, headers: bool, follow: bool
) -> Iterator[pa.RecordBatch]:
    """Yields the records from the positions on; until Ctrl-C if `follow`."""
    if follow:
        yield from store.topic(topic).follow(positions, partitions=positions, headers=headers, isolation_level=level)
        return
    for partition, position in positions.items():
        last = store.latest_offset(topic, partition, isolation_level=level)
        if position < last:
            yield from store.read(topic, partition, position, last, headers=headers, isolation_level=level)


def _start(
    store: Store, topic: str, partition: int, level: str, *, offset: int | None, timestamp: int | None, end: bool
) -> int:
    earliest = store.earliest_offset(topic, partition)
    latest = store.latest_offset(topic, partition, isolation_level=level)
    if offset is not None:
        if not earliest <= offset <= latest:
            raise OffsetOutOfRangeError(topic, partition, offset, earliest, latest)
        return offset
    if timestamp is not None:
        match = store.offset_for_timestamp(topic, partition, timestamp)
        return latest if match is None else match.offset
    return latest if end else earliest
