"""`pylog groups`: lists consumer groups, their lag, and deletes committed offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from pyspark_log.cli.groups.group_choice import (
    Refusals,
    chosen_groups,
    group_options,
    topic_and_numbers,
    topic_option,
    topic_partitions,
)
from pyspark_log.cli.groups.reset_offsets import reset_offsets
from pyspark_log.cli.support import (
    CommandGroup,
    cell,
    complete_groups,
    confirm,
    interval_option,
    json_option,
    plural,
    print_json,
    print_table,
    table_text,
    watch,
    yes_option,
)
from pyspark_log.cli.target import Target
from pyspark_log.errors import UnknownGroupError
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.groups import (
    NEVER,
    GroupDescription,
    GroupMember,
    GroupState,
    OffsetAndMetadata,
    assigned_partitions,
)
from pyspark_log.storage.groups.members.query_readers import QUERY, query_of, state_of
from pyspark_log.storage.seam import Offsets
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

# The value of --state that means all of them.
_ANY = "any"


@click.group(cls=CommandGroup)
def groups() -> None:
    """List, describe, delete and reset consumer groups.

    A streaming query can be a group, too.
    """


groups.add_command(reset_offsets)


@groups.command("list")
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value=_ANY,
    metavar="[STATE,...]",
    help="Also print state and protocol type; with STATEs (Empty, Stable), only of groups in one of them.",
)
@json_option
@click.pass_obj
def list_groups(target: Target, states: str | None, as_json: bool) -> None:
    """Print the names of all groups."""
    log = target.open().groups.log
    names = log.groups()
    if states is None:
        if as_json:
            print_json(names)
        for name in [] if as_json else names:
            click.echo(name)
        return
    wanted = _states(states)
    rows = [row for row in (_state(log.describe(name), log) for name in names) if row["state"] in wanted]
    shown = {"GROUP": "group", "STATE": "state", "PROTOCOL-TYPE": "protocol_type"}
    if as_json:
        print_json([{name: row[name] for name in shown.values()} for row in rows])
    else:
        print_table(list(shown), [[cell(row[name]) for name in shown.values()] for row in rows])


def _states(text: str) -> set[str]:
    known = {state.lower(): state for state in (*(state.value for state in GroupState), QUERY)}
    found = set(known.values()) if text == _ANY else {known.get(word.strip().lower()) for word in text.split(",")}
    if None in found:
        raise click.UsageError(f"--state {text}: the states are {', '.join(known.values())}")
    return {state for state in found if state is not None}


@groups.command()
@group_options
@click.option("--offsets", "_offsets", is_flag=True, help="Print committed offsets and lag (the default).")
@click.option("--members", is_flag=True, help="Print the members instead.")
@click.option("--state", is_flag=True, help="Print the state instead.")
@click.option("--watch", "watched", is_flag=True, help="Repeat in a terminal, until q or Ctrl-C.")
@interval_option
@json_option
@click.pass_obj
def describe(
    target: Target,
    names: Sequence[str],
    more: Sequence[str],
    all_groups: bool,
    _offsets: bool,
    members: bool,
    state: bool,
    watched: bool,
    interval: float,
    as_json: bool,
) -> None:
    """Print each GROUP's committed offset in each partition, the log end, and the lag."""
    if _offsets + members + state > 1:
        raise click.UsageError("Give only one of --offsets, --members and --state.")
    if watched and as_json:
        raise click.UsageError("--watch and --json cannot be combined.")
    store = target.open()
    log = store.groups.log
    shown = _MEMBERS if members else _STATE if state else _OFFSETS

    def describe() -> tuple[list[str], list[dict[str, object]], Refusals]:
        chosen = chosen_groups(log, names, more, all_groups)
        return chosen, *_described(store, log, chosen, shown)

    def table(rows: Sequence[Mapping[str, object]]) -> list[list[object]]:
        return [[_cell(name, row[name]) for name in shown.values()] for row in rows]

    chosen, rows, refusals = describe()
    if watched:
        refusals.raise_if_any(chosen)

        def again() -> None:
            nonlocal rows
            rows = describe()[1]

        watch(again, lambda: table_text(list(shown), table(rows)), interval)
        return
    if not rows:
        refusals.raise_if_any(chosen)  # Without a table that has nothing but its head.
    if as_json:
        print_json(rows)
    else:
        print_table(list(shown), table(rows))
    refusals.raise_if_any(chosen)


def _described(
    store: Store, log: Offsets, groups: Sequence[str], shown: Mapping[str, str]
) -> tuple[list[dict[str, object]], Refusals]:
    """A row for each thing that is shown of the groups, and the groups of which nothing can be."""
    rows, refusals = list[dict[str, object]](), Refusals()
    for name in groups:
        with refusals.of(name):
            group = log.describe(name)
            if group.state is GroupState.DEAD:
                raise UnknownGroupError(f"there is no group {name!r} in {store.path}")
            if shown is _MEMBERS:
                rows += [_member(group, member) for member in group.members]
            elif shown is _STATE:
                rows.append(_state(group, log))
            else:
                rows += _committed(store, group, log.fetch(name, with_resets=True))
    return rows, refusals


_MEMBERS = {
    "GROUP": "group",
    "CONSUMER-ID": "consumer_id",
    "HOST": "host",
    "CLIENT-ID": "client_id",
    "#PARTITIONS": "partitions",
}
_STATE = {
    "GROUP": "group",
    "ASSIGNMENT-STRATEGY": "assignment_strategy",
    "STATE": "state",
    "#MEMBERS": "members",
    "PROTOCOL-TYPE": "protocol_type",
    "HOST": "host",
    "PROCESS": "process",
    "QUERY": "query",
    "LAST-COMMIT": "last_commit",
}
_OFFSETS = {
    "GROUP": "group", "TOPIC": "topic", "PARTITION": "partition", "CURRENT-OFFSET": "current_offset",
    "LOG-END-OFFSET": "log_end_offset", "LAG": "lag", "CONSUMER-ID": "consumer_id", "HOST": "host",
    "CLIENT-ID": "client_id",
}  # fmt: skip


def _member(group: GroupDescription, member: GroupMember) -> dict[str, object]:
    return {
        "group": group.group,
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "host": member.client_host,
        "client_id": member.client_id,
        "partitions": len(_assigned(group, member)),
    }


def _cell(name: str, value: object) -> object:
    return format_time(value) if name == "last_commit" and isinstance(value, int) else cell(value)


def _state(group: GroupDescription, log: Offsets) -> dict[str, object]:
    committed = log.fetch(group.group, with_resets=True)
    state, reader = state_of(group.state.value, committed), query_of(committed)
    return {
        "group": group.group,
        "protocol_type": group.protocol_type or None,
        "assignment_strategy": group.protocol or None,
        "state": state,
        # Of a state that is not known none may have been found.
        "members": None if group.state is GroupState.UNKNOWN and not group.members else len(group.members),
        "host": None if reader is None else reader.host,
        "process": None if reader is None else reader.process.number,
        "query": None if reader is None else reader.name or None,
        "last_commit": max((one.commit_timestamp for one in committed.values()), default=None),
    }


def _committed(
    store: Store, group: GroupDescription, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[dict[str, object]]:
    """Each committed offset of a group, and each partition that a member has and the group never committed."""
    owners = {at: member for member in group.members for at in _assigned(group, member)}
    rows: list[dict[str, object]] = []
    known = sorted(committed.keys() | owners.keys())
    # A topic may be deleted since; the commit stays until the group's offsets expire.
    ends = store.partitions.latest_offsets(known, skip_missing=True)
    for at in known:
        kept, owner, end = committed.get(at), owners.get(at), ends.get(at)
        rows.append(
            {
                "group": group.group,
                "topic": at.topic,
                "partition": at.partition,
                "current_offset": None if kept is None else kept.offset,
                "log_end_offset": end,
                "lag": None if end is None or kept is None or kept.offset < 0 else max(end - kept.offset, 0),
                "consumer_id": owner and owner.member_id,
                "host": owner and owner.client_host,
                "client_id": owner and owner.client_id,
                "metadata": kept and kept.metadata,
                "commit_timestamp": kept and kept.commit_timestamp,
                "expire_timestamp": kept and _expiry(kept.expire_timestamp),
            }
        )
    return rows


def _expiry(time: int) -> int | str | None:
    return "never" if time == NEVER else None if time < 0 else time


def _assigned(group: GroupDescription, member: GroupMember) -> Sequence[TopicPartition]:
    if member.partitions is not None:
        return member.partitions
    # What members of other protocols have, only they know.
    return () if group.topics is None else assigned_partitions(member.assignment)


@groups.command()
@group_options
@yes_option
@click.pass_obj
def delete(target: Target, names: Sequence[str], more: Sequence[str], all_groups: bool, yes: bool) -> None:
    """Delete each GROUP with its committed offsets.

    A group with members is refused.
    """
    store = target.open()
    log = store.groups.log
    store.publishes.check_writable()
    chosen, refusals = chosen_groups(log, names, more, all_groups), Refusals()
    if chosen:
        confirm(f"Delete {plural(len(chosen), 'group')} with all committed offsets: {', '.join(chosen)}?", yes)
    for name in chosen:
        with refusals.of(name):
            log.delete_group(name)
            click.echo(f"Deleted group {name}.")
    refusals.raise_if_any(chosen)


@groups.command("delete-offsets")
@click.option("--group", required=True, metavar="GROUP", shell_complete=complete_groups, help="The group.")
@topic_option
@yes_option
@json_option
@click.pass_obj
def delete_offsets(target: Target, group: str, topics: Sequence[str], yes: bool, as_json: bool) -> None:
    """Delete a group's committed offsets for a topic, or for some of its partitions.

    The topic may have been deleted already. Refused while members of the group read the topic.
    """
    if not topics:
        raise click.UsageError("Which partitions? Give --topic.")
    store = target.open()
    log = store.groups.log
    committed, partitions = log.fetch(group, with_resets=True), set[TopicPartition]()
    for spec in topics:
        topic, numbers = topic_and_numbers(spec)
        held = {at for at in committed if at.topic == topic and (numbers is None or at.partition in numbers)}
        if not held or (numbers is not None and len(held) < len(set(numbers))):
            held |= set(topic_partitions(store, [spec]))
        partitions |= held
    listed = ", ".join(map(str, sorted(partitions)))
    confirm(f"Delete the committed offsets of group {group} for {listed}?", yes)
    deleted = log.delete_offsets(group, partitions)
    rows = [
        (at.topic, at.partition, "deleted" if at in deleted else "nothing was committed") for at in sorted(partitions)
    ]
    if as_json:
        print_json([dict(zip(("topic", "partition", "status"), row, strict=True)) for row in rows])
    else:
        print_table(("TOPIC", "PARTITION", "STATUS"), rows)
