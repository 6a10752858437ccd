"""`pylog consume`: records of a topic, to standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import click
import pyarrow as pa

from pyspark_log.cli.producing.typed_text import typed_settings, typed_text, with_schemas
from pyspark_log.cli.records.formats import TextLayout, text_lines
from pyspark_log.cli.records.group_records import group_lines, of_group
from pyspark_log.cli.records.json_format import json_lines
from pyspark_log.cli.records.layout_options import with_layout
from pyspark_log.cli.records.matching import matching
from pyspark_log.cli.records.start import Start, Starts
from pyspark_log.cli.records.template import Template
from pyspark_log.cli.support import complete_groups, complete_topics, partitions_option, plural, to_ms
from pyspark_log.cli.target import Target
from pyspark_log.storage.groups import check_empty, move_offsets
from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@partitions_option
@click.option("--from-beginning", is_flag=True, help="Start at the earliest offset (the default).")
@click.option("--offset", "start_offset", type=click.IntRange(min=0), metavar="N", help="Start at this offset.")
@click.option(
    "--timestamp",
    callback=to_ms,
    metavar="TIME",
    help="Start at the first record at or after this time (ms since 1970, or ISO-8601; UTC unless it names a zone).",
)
@click.option("--end", is_flag=True, help="Start at the end: print only new records, as they arrive.")
@click.option(
    "--last", type=click.IntRange(min=0), metavar="N", help="Start N records before the end of each partition."
)
@click.option(
    "--group",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Start at the committed offsets of this group; in partitions without one at the earliest offset, or at the end"
    " with --end.",
)
@click.option(
    "--commit",
    is_flag=True,
    help="With --group: at the end, or at Ctrl-C, commit the offsets after the last record printed of each partition.",
)
@click.option("--follow", is_flag=True, help="At the end, wait for more; stop with Ctrl-C.")
@click.option(
    "--isolation-level",
    type=click.Choice([READ_UNCOMMITTED, READ_COMMITTED]),
    default=READ_UNCOMMITTED,
    show_default=True,
    help="read_committed leaves out what transactions have not committed.",
)
@click.option(
    "--offsets-group",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="With --format offsets: only records of this group.",
)
@with_layout
@with_schemas("Print values as JSON, decoded by their schema:")
@click.pass_obj
def consume(
    target: Target,
    topic: str,
    partitions: Sequence[int],
    from_beginning: bool,
    start_offset: int | None,
    timestamp: int | None,
    end: bool,
    last: int | None,
    group: str | None,
    commit: bool,
    follow: bool,
    isolation_level: str,
    max_messages: int | None,
    output_format: str,
    offsets_group: str | None,
    layout: TextLayout,
    format_string: Template | None,
    grep: str | None,
    schemas: Mapping[str, str],
) -> None:
    """Print the records of TOPIC.

    Prints all records, partition by partition and in order within each, and ends. With --follow or --end it waits
    for new records instead, as Kafka's console consumer does.
    """
    starts_named = (start_offset is not None) + (timestamp is not None) + (last is not None)
    if from_beginning + starts_named + end > 1:
        raise click.UsageError("--from-beginning, --offset, --timestamp, --last and --end exclude each other.")
    if group is not None and starts_named:
        raise click.UsageError("--group cannot be combined with --offset, --timestamp or --last.")
    if commit and group is None:
        raise click.UsageError("--commit needs --group.")
    if offsets_group is not None and output_format != "offsets":
        raise click.UsageError("--offsets-group needs --format offsets.")
    store = target.open()
    settings = typed_settings(store, topic, schemas)
    decoded = typed_text(topic, settings)
    count = store.describe_topic(topic).partitions
    if start_offset is not None and (len(set(partitions)) or count) != 1:
        raise click.UsageError(f"--offset needs --partition, since {topic} has {count} partitions.")
    # Partitions without files have no records yet; but a command that waits for records waits for theirs.
    waits = follow or end or start_offset is not None
    chosen = sorted(set(partitions)) or (range(count) if waits else store.partitions.written(topic))
    reading = _GroupReading(store, topic, group, commit)
    starts = Starts(store, topic, isolation_level)
    start = starts.committed(reading.committed, _start(starts, start_offset, timestamp, last, end=end))
    positions = {partition: start(partition) for partition in chosen}
    show = _format_of(output_format, layout, format_string)
    headers = output_format == "json" or layout.headers or (format_string is not None and format_string.headers)
    batches = _batches(store, topic, positions, isolation_level, headers=headers, follow=follow or end)
    chosen_records = partial(_chosen, offsets_group, grep)
    try:
        _print(decoded(batches), chosen_records, show, sys.maxsize if max_messages is None else max_messages, reading)
    except KeyboardInterrupt:
        reading.commit()
        raise
    reading.commit()


def _format_of(name: str, layout: TextLayout, template: Template | None) -> Callable[[pa.RecordBatch], bytes]:
    """What makes the text of records."""
    if template is not None:
        return partial(template.fill, null=layout.null)
    formats: dict[str, Callable[[pa.RecordBatch], bytes]] = {
        "text": partial(text_lines, layout=layout),
        "json": json_lines,
        "offsets": group_lines,
    }
    return formats[name]


def _start(starts: Starts, offset: int | None, timestamp: int | None, last: int | None, *, end: bool) -> Start:
    if offset is not None:
        return starts.at_offset(offset)
    if timestamp is not None:
        return starts.at_time(timestamp)
    if last is not None:
        return starts.last(last)
    return starts.latest if end else starts.earliest


def _chosen(group: str | None, pattern: str | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Those records that are about a group, and whose key or value has a match of the pattern; None: of all."""
    if group is not None:
        batch = of_group(batch, group)
    return batch if pattern is None else matching(batch, pattern)


def _print(
    batches: Iterable[pa.RecordBatch],
    choose: Callable[[pa.RecordBatch], pa.RecordBatch],
    show: Callable[[pa.RecordBatch], bytes],
    count: int,
    reading: _GroupReading,
) -> None:
    """Prints that many of the records that `choose` returns."""
    for batch in batches:
        chosen = choose(batch).slice(0, count)
        sys.stdout.buffer.write(show(chosen))
        sys.stdout.buffer.flush()
        count -= chosen.num_rows
        # Those that were not chosen were read all the same.
        reading.note(batch if count else chosen)
        if not count:
            break


class _GroupReading:
    """What is read for a group, if one was given.

    Attributes:
        committed: what the group had committed at first.
    """

    def __init__(self, store: Store, topic: str, group: str | None, commits: bool) -> None:
        """GroupNotEmptyError: `commits`, and the group has members, which commit for themselves."""
        self._log, self._topic, self._group, self._commits = store.groups.log, topic, group or "", commits
        if commits:
            store.publishes.check_writable()
            check_empty(self._log.describe(self._group))
        self.committed = {} if group is None else self._log.fetch(group)
        self._positions: dict[TopicPartition, int] = {}

    def note(self, batch: pa.RecordBatch) -> None:
        """Records of one partition were printed."""
        if batch.num_rows:
            last = batch.num_rows - 1
            at = TopicPartition(self._topic, batch.column("partition")[last].as_py())
            self._positions[at] = batch.column("offset")[last].as_py() + 1

    def commit(self) -> None:
        """Commits the offsets after what was printed, and says so; OffsetConflictError: the group was moved meanwhile.

        Does nothing without --commit.
        """
        if not (self._commits and self._positions):
            return
        move_offsets(self._log, self._group, self.committed, self._positions)
        partitions = plural(len(self._positions), "partition")
        click.echo(f"group {self._group}: committed offsets of {partitions} of {self._topic}", err=True)


def _batches(
    store: Store, topic: str, positions: Mapping[int, int], level: str, *, headers: bool, follow: bool
) -> Iterator[pa.RecordBatch]:
    """Yields the records from the positions on; until Ctrl-C if `follow`."""
    if follow:
        yield from store.topic(topic).follow(positions, partitions=positions, headers=headers, isolation_level=level)
        return
    ends = store.partitions.latest_offsets(
        [TopicPartition(topic, partition) for partition in positions], isolation_level=level
    )
    for at, end in ends.items():
        if positions[at.partition] < end:
            start = positions[at.partition]
            yield from store.read(topic, at.partition, start, end, headers=headers, isolation_level=level)
