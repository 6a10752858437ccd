"""`pylog groups reset-offsets`: resets committed offsets of groups, as kafka-consumer-groups.sh does."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import click

from pyspark_log.cli.groups.group_choice import (
    Refusals,
    chosen_groups,
    existing_partitions,
    group_options,
    topic_option,
    topic_partitions,
)
from pyspark_log.cli.support import json_option, options_as, print_json, print_table, to_ms, warn
from pyspark_log.cli.target import Target
from pyspark_log.errors import InvalidTopicError
from pyspark_log.storage.catalog import check_name
from pyspark_log.storage.fs import clock
from pyspark_log.storage.groups import OffsetAndMetadata, check_empty, move_offsets
from pyspark_log.storage.seam import Offsets
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from pyspark_log.units import java_duration

#: What one group has committed.
_Committed = Mapping[TopicPartition, OffsetAndMetadata]
#: The offsets that a group is to have committed.
_Offsets = dict[TopicPartition, int]

_WHOLE = re.compile("[0-9]{1,19}")


def _duration(_ctx: click.Context, _param: click.Parameter, text: str | None) -> timedelta | None:
    """An option's callback."""
    try:
        return None if text is None else java_duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None


@dataclass(frozen=True, slots=True)
class _Scenario:
    """What the user has asked for; all but one are not given."""

    to_offset: int | None
    to_datetime: int | None
    by_duration: timedelta | None
    to_earliest: bool
    to_latest: bool
    shift_by: int | None
    to_current: bool

    def check(self, from_file: str | None) -> None:
        """click.UsageError unless it is exactly one."""
        values = (self.to_offset, self.to_datetime, self.by_duration, self.shift_by, from_file)
        if sum(value is not None for value in values) + self.to_earliest + self.to_latest + self.to_current != 1:
            raise click.UsageError(
                "Give one of --to-offset, --to-datetime, --by-duration, --to-earliest, --to-latest, --shift-by, "
                "--to-current and --from-file."
            )


_SCENARIO = (
    click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset."),
    click.option(
        "--to-datetime",
        callback=to_ms,
        metavar="TIME",
        help="To the first record at or after this time: YYYY-MM-DDTHH:mm:SS.sss (UTC unless it names a zone), or ms "
        "since 1970.",
    ),
    click.option(
        "--by-duration",
        callback=_duration,
        metavar="DURATION",
        help="To the first record younger than this, such as PT1H30M or P7D.",
    ),
    click.option("--to-earliest", is_flag=True, help="To the earliest offset."),
    click.option("--to-latest", is_flag=True, help="To the latest offset."),
    click.option("--shift-by", type=int, metavar="N", help="By N offsets; backwards if N is negative."),
    click.option("--to-current", is_flag=True, help="To the current offset, or to the latest one if there is none."),
)


@click.command("reset-offsets")
@group_options
@topic_option
@click.option("--all-topics", is_flag=True, help="All partitions for which the group has a committed offset.")
@options_as("scenario", _Scenario, _SCENARIO)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="To the offsets in a file written by --export.",
)
@click.option("--dry-run", is_flag=True, help="Only print the new offsets (the default).")
@click.option("--execute", is_flag=True, help="Commit the new offsets.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV.")
@json_option
@click.pass_obj
def reset_offsets(
    target: Target,
    names: Sequence[str],
    more: Sequence[str],
    all_groups: bool,
    topics: Sequence[str],
    all_topics: bool,
    scenario: _Scenario,
    from_file: str | None,
    dry_run: bool,
    execute: bool,
    export: bool,
    as_json: bool,
) -> None:
    """Reset the committed offsets of each GROUP.

    Prints the new offsets. They are committed only with --execute, and only if the group has not moved meanwhile. A
    group with members is refused. A running streaming query follows its checkpoint and ignores the reset.

    Of several groups, some may be refused: the others are reset and printed, the refused ones are listed at the end,
    and the exit code is 1.

    An offset outside the log becomes its earliest or latest one, with a warning. CSV lines are TOPIC,PARTITION,OFFSET
    for one group, and GROUP,TOPIC,PARTITION,OFFSET for several.
    """
    scenario.check(from_file)
    if export and as_json:
        raise click.UsageError("--export and --json cannot be combined.")
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute cannot be combined.")
    if bool(topics) + all_topics + (from_file is not None) != 1:
        raise click.UsageError("Which partitions? Give --topic, --all-topics or --from-file.")
    store = target.open()
    log = store.groups.log
    if execute:
        store.publishes.check_writable()
    chosen = chosen_groups(log, names, more, all_groups)
    single = len(chosen) == 1 and not all_groups
    listed = None if from_file is None else _read_plan(from_file, chosen[0] if single else None)
    named = topic_partitions(store, topics)
    plans, refusals = dict[str, _Offsets](), Refusals()
    for group in chosen:
        with refusals.of(group):
            committed = _committed(log, group)
            if listed is not None:
                offsets = _planned(store, listed, group, from_file)
            else:
                partitions = _held(store, group, committed) if all_topics else named
                offsets = _resolve(store, scenario, group, partitions, committed)
            if execute:
                move_offsets(log, group, committed, offsets)
            plans[group] = offsets
    if not plans:
        refusals.raise_if_any(chosen)
    _print(plans, export, single, as_json)
    refusals.raise_if_any(chosen)
    if not (dry_run or execute):
        click.echo("Nothing was changed. Give --execute to commit these, or --dry-run to hide this line.", err=True)


def _committed(log: Offsets, group: str) -> _Committed:
    check_empty(log.describe(group))
    return log.fetch(group)


def _held(store: Store, group: str, committed: _Committed) -> list[TopicPartition]:
    """The partitions that --all-topics means."""
    if not committed:
        raise click.ClickException(f"group {group} has no committed offsets, so --all-topics finds no topic")
    return existing_partitions(store, committed, group)


def _print(plans: Mapping[str, _Offsets], export: bool, single: bool, as_json: bool) -> None:
    rows = [
        (group, at.topic, at.partition, offset)
        for group, offsets in plans.items()
        for at, offset in sorted(offsets.items())
    ]
    if export:
        csv.writer(sys.stdout, lineterminator="\n").writerows(row[1:] if single else row for row in rows)
    elif as_json:
        print_json([dict(zip(("group", "topic", "partition", "new_offset"), row, strict=True)) for row in rows])
    else:
        print_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)


# ---- the scenarios


def _resolve(
    store: Store, scenario: _Scenario, group: str, partitions: Collection[TopicPartition], committed: _Committed
) -> _Offsets:
    """The offsets that a group is to have committed."""
    if scenario.to_current:
        ends = store.partitions.latest_offsets(at for at in partitions if at not in committed)
        return {at: ends[at] if at in ends else committed[at].offset for at in partitions}
    if scenario.shift_by is not None:
        for at in partitions:
            if at not in committed:
                raise click.ClickException(f"group {group} has no committed offset for {at} to shift")
        return _clamped(store, {at: committed[at].offset + scenario.shift_by for at in partitions})
    if scenario.to_offset is not None:
        return _clamped(store, dict.fromkeys(partitions, scenario.to_offset))
    if scenario.to_earliest:
        return _starts(store, partitions)
    since = scenario.to_datetime
    if scenario.by_duration is not None:
        since = max(clock.now_ms() - scenario.by_duration // timedelta(milliseconds=1), 0)
    if since is not None:
        return _at_time(store, partitions, since)
    return store.partitions.latest_offsets(partitions)


def _starts(store: Store, partitions: Iterable[TopicPartition]) -> _Offsets:
    return {at: store.earliest_offset(at.topic, at.partition) for at in partitions}


def _at_time(store: Store, partitions: Collection[TopicPartition], time: int) -> _Offsets:
    records = {at: store.offset_for_timestamp(at.topic, at.partition, time) for at in partitions}
    offsets = {at: record.offset for at, record in records.items() if record is not None}
    for at in partitions:
        if at not in offsets:
            warn(f"{at} has no record at or after that time; the latest offset is used")
    return offsets | store.partitions.latest_offsets(at for at in partitions if at not in offsets)


def _clamped(store: Store, offsets: _Offsets) -> _Offsets:
    """The same offsets, brought into the logs."""
    clamped, starts = {}, _starts(store, offsets)
    for at, end in store.partitions.latest_offsets(offsets).items():
        offset, start = offsets[at], starts[at]
        clamped[at] = min(max(offset, start), end)
        if offset < start:
            warn(f"{at}: {offset} is below the earliest offset; {start} is used")
        elif offset > end:
            warn(f"{at}: {offset} is above the latest offset; {end} is used")
    return clamped


# ---- files


def _read_plan(path: str, group: str | None) -> dict[str, _Offsets]:
    """The offsets of each group in a file written by --export; `group`: the group of lines without a group."""
    plan: dict[str, _Offsets] = {}
    layout = "orders,0,1234 (topic, partition, offset)"
    if group is None:
        layout = "g,orders,0,1234 (group, topic, partition, offset)"
    try:
        # Spreadsheets begin a file with a byte order mark.
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), 1) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise click.ClickException(f"{path} is not a CSV file with lines like {layout}: {error}") from None
    for number, row in rows:
        try:
            of, at, offset = _read_line(row, group, layout)
        except (ValueError, InvalidTopicError) as error:
            raise click.ClickException(f"{path}, line {number}: {error}") from None
        offsets = plan.setdefault(of, {})
        if at in offsets:
            raise click.ClickException(f"{path}, line {number}: {at} appears twice")
        offsets[at] = offset
    return plan


def _planned(store: Store, plan: Mapping[str, _Offsets], group: str, path: str | None) -> _Offsets:
    """The offsets of a group by a file, as the logs have them. click.ClickException: it has none there."""
    if group not in plan:
        raise click.ClickException(f"{path} has no line for group {group}")
    return _clamped(store, {at: plan[group][at] for at in existing_partitions(store, plan[group], group)})


def _read_line(row: Sequence[str], group: str | None, layout: str) -> tuple[str, TopicPartition, int]:
    """Group, partition and offset of a line. ValueError, InvalidTopicError."""
    fields = [group, *row] if len(row) == 3 and group is not None else list(row)
    whole = [text.strip() for text in fields[2:]]
    if len(fields) != 4 or not all(_WHOLE.fullmatch(text) for text in whole):
        raise ValueError(f"{','.join(row)!r} is not a line like {layout}")
    topic = fields[1].strip()
    check_name(topic)
    return fields[0], TopicPartition(topic, int(whole[0])), int(whole[1])
