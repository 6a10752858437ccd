"""What may be decided in a state of the store: each function gives a proposal, or refuses it. Pure: no request.

PublishLog.decide calls them with the newest state, as often as another process was faster; so what they have checked is
true at the moment of the decision. Arguments that need no state are checked before, by their callers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from pyspark_log.errors import (
    OffsetConflictError,
    OffsetOutOfRangeError,
    StagedOutputError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.near_names import did_you_mean
from pyspark_log.storage.catalog.topics import check_added, check_has_id
from pyspark_log.storage.publish import Decision
from pyspark_log.storage.publish.claims import check_fenced, check_number
from pyspark_log.storage.publish.decision import NO_NUMBER, Origin
from pyspark_log.storage.publish_log import naming
from pyspark_log.storage.publish_log.entries.changes import (
    Addition,
    Document,
    GroupRecord,
    LogStart,
    Merge,
    Numbered,
    OffsetMove,
    Region,
    ServerNote,
    Staged,
    StagedOffset,
    TransactionStep,
)
from pyspark_log.storage.publish_log.state import PartitionLog, Piece, State
from pyspark_log.types import OffsetStep, TopicDescription, TopicPartition


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is to be decided: the parts of an Entry that depend on the state, and the bytes that it brings along."""

    topics: tuple[TopicDescription, ...] = ()
    deleted: tuple[str, ...] = ()
    publisher: Decision | None = None
    additions: tuple[Addition, ...] = ()
    numbered: tuple[Numbered, ...] = ()
    moves: tuple[OffsetMove, ...] = ()
    group_records: tuple[GroupRecord, ...] = ()
    staged: tuple[Staged, ...] = ()
    staged_offsets: tuple[StagedOffset, ...] = ()
    steps: tuple[TransactionStep, ...] = ()
    server: ServerNote | None = None
    documents: tuple[Document, ...] = ()
    log_starts: tuple[LogStart, ...] = ()
    merges: tuple[Merge, ...] = ()
    horizon: int | None = None
    floor: int | None = None
    data: Sequence[bytes | memoryview] = field(default=(), repr=False)


def together(parts: Sequence[Proposal]) -> Proposal | None:
    """All that proposals want, at once, if at most one brings bytes along; None: there is none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return Proposal(
        additions=tuple(chain.from_iterable(part.additions for part in parts)),
        numbered=tuple(chain.from_iterable(part.numbered for part in parts)),
        moves=tuple(chain.from_iterable(part.moves for part in parts)),
        group_records=tuple(chain.from_iterable(part.group_records for part in parts)),
        staged=tuple(chain.from_iterable(part.staged for part in parts)),
        staged_offsets=tuple(chain.from_iterable(part.staged_offsets for part in parts)),
        steps=tuple(chain.from_iterable(part.steps for part in parts)),
        data=next((part.data for part in parts if part.data), ()),
    )


class Output(NamedTuple):
    """Records for a partition of a topic, in the order in which they are to appear."""

    topic: str
    topic_id: str
    partition: int
    regions: tuple[Region, ...]


class Replacement(NamedTuple):
    """Records of a partition that were merged.

    Attributes:
        pieces: where they were, one after the other.
        merge: where they are to be.
    """

    pieces: Sequence[Piece]
    merge: Merge


# ---- records


def publish(
    state: State,
    wanted: Decision,
    outputs: Sequence[Output],
    steps: Sequence[OffsetStep] = (),
    *,
    claimed: bool = False,
) -> Proposal | None:
    """Publishes output with moves of committed offsets, exactly once; None: that number is published already.

    Args:
        state: the store.
        wanted: the publisher, its number, run, location and plan; which process publishes, and when.
        outputs: what it publishes.
        steps: the moves.
        claimed: whether the run has claimed the publisher.

    Raises:
        PublisherFencedError, PublishNumberError: the run or the number is not the publisher's.
        OffsetConflictError: a committed offset is not the one that a move starts from.
        StagedOutputError: a topic was deleted or recreated since the output was staged.
    """
    last = state.publishers.get(wanted.publisher)
    check_fenced(wanted, last, claimed)
    check_number(wanted, last)
    if last is not None and last.number == wanted.number:
        return None
    for step in steps:
        _check_step(state, step)
    count = sum(region.records for one in outputs for region in one.regions)
    return Proposal(
        publisher=replace(_held(wanted, last), records=count),
        additions=_additions(state, outputs),
        moves=tuple(OffsetMove(one.group, one.at, one.expected, one.offset) for one in steps),
    )


def claim(state: State, wanted: Decision, number: int | None = None, *, take_over: bool = False) -> Proposal | None:
    """Gives a publisher to a run, and fences those before it; None: it has it.

    Args:
        state: the store.
        wanted: the publisher, the run and its location; which process claims it, and when. Its number is not looked at.
        number: what the run is about to publish. With a number that is refused, no run is fenced.
        take_over: whether a publisher of another location becomes that of this one, with any number.

    Raises:
        PublisherFencedError, PublishNumberError: `number` is given, and the run or it is not the publisher's.
    """
    last = state.publishers.get(wanted.publisher)
    origin = Origin(wanted.host, wanted.process, wanted.time)
    if last is None:
        return Proposal(publisher=replace(wanted, number=NO_NUMBER, holder=origin))
    is_elsewhere = bool(wanted.location and last.location and last.location != wanted.location)
    if take_over and is_elsewhere and wanted.run not in last.replaced:
        return Proposal(
            publisher=replace(
                last.fenced_by(wanted.run, origin), number=NO_NUMBER, location=wanted.location, plan="", records=0
            )
        )
    if number is not None:
        check_fenced(replace(wanted, number=number), last, claimed=False)
        check_number(replace(wanted, number=number), last)
    if last.run == wanted.run:
        return None
    return Proposal(publisher=last.fenced_by(wanted.run, origin))


def append(state: State, outputs: Sequence[Output]) -> Proposal:
    """Appends records. UnknownTopicError: a topic was deleted or recreated since they were made."""
    try:
        return Proposal(additions=_additions(state, outputs))
    except StagedOutputError as error:
        raise UnknownTopicError(str(error)) from None


def _additions(state: State, outputs: Sequence[Output]) -> tuple[Addition, ...]:
    found: dict[tuple[str, int], list[Region]] = {}
    for topic, topic_id, partition, regions in outputs:
        now = state.topics.get(topic)
        if now is None or now.topic_id != topic_id:
            raise StagedOutputError(f"topic {topic!r} was deleted or recreated while output for it was being staged")
        for region in regions:
            check_horizon(state, region.object)
        found.setdefault((topic_id, partition), []).extend(regions)
    return tuple(Addition(*at, state.log_end(*at), tuple(regions)) for at, regions in found.items())


def check_horizon(state: State, name: str) -> None:
    """Refuses staged output that may be deleted, by the name of its object. StagedOutputError."""
    staged = naming.staged_time(name)
    if staged is not None and staged < state.horizon:
        raise StagedOutputError(
            f"{name} was staged {(state.horizon - staged) / 1000:.0f} s before the time from which on staged output "
            "counts, and may be deleted: publish sooner, set staged.output.expiration.ms higher, or set the clock of "
            "the machine that has staged it"
        )


def merge(state: State, wanted: Sequence[Replacement], *, together: bool = False) -> Proposal | None:
    """Moves records to other objects, for partitions that still have them where they were; None: no one has.

    Args:
        state: the store.
        wanted: the records.
        together: all of them, or none.

    Raises:
        StagedOutputError: a new object is older than the horizon.
    """
    merges = []
    for pieces, one in wanted:
        log = state.partitions.get((one.topic_id, one.partition), PartitionLog())
        if log.between(one.base_offset, one.next_offset) == list(pieces):
            for region in one.regions:
                check_horizon(state, region.object)
            merges.append(one)
    if not merges or (together and len(merges) < len(wanted)):
        return None
    return Proposal(merges=tuple(merges))


def expire(state: State, starts: Sequence[LogStart]) -> Proposal | None:
    """Deletes the first records of partitions, by a retention; None: all are deleted already."""
    found = []
    for one in starts:
        log = state.partitions.get((one.topic_id, one.partition))
        if log is not None and log.log_start < one.offset <= log.log_end:
            found.append(one)
    return Proposal(log_starts=tuple(found)) if found else None


def set_horizon(state: State, time: int) -> Proposal | None:
    """Makes staged output from before a time (ms) void; None: it is."""
    return Proposal(horizon=time) if time > state.horizon else None


def set_floor(state: State, floor: int, number: int) -> Proposal | None:
    """Makes `number` the floor after `floor`; None: there is another one by now."""
    return Proposal(floor=number) if state.floor == floor < number else None


def _held(wanted: Decision, last: Decision | None) -> Decision:
    """What is known of the publisher once a number of it is decided."""
    origin = Origin(wanted.host, wanted.process, wanted.time)
    if last is None:
        return replace(wanted, holder=origin)
    held = last if last.run == wanted.run else last.fenced_by(wanted.run, origin)
    location, about = wanted.location or last.location, wanted.about.after(last.about)
    return replace(wanted, replaced=held.replaced, holder=held.holder, location=location, about=about)


def _check_step(state: State, step: OffsetStep) -> None:
    committed = state.groups.get(step.group, {}).get(step.at)
    found = None if committed is None else committed.offset
    if found != step.expected:
        raise OffsetConflictError(step.group, step.at.topic, step.at.partition, step.expected, found)


# ---- topics


def create_topic(state: State, topic: TopicDescription) -> Proposal:
    """Creates a topic. TopicExistsError."""
    if topic.name in state.topics:
        raise TopicExistsError(f"topic {topic.name!r} exists already")
    return Proposal(topics=(topic,))


def add_partitions(state: State, name: str, total: int) -> Proposal:
    """Adds partitions to a topic. UnknownTopicError; InvalidConfigError: it has as many, or cannot have more."""
    topic = topic_of(state, name)
    check_added(topic, total)
    return Proposal(topics=(replace(topic, partitions=total),))


def alter_configs(state: State, name: str, configs: Mapping[str, str], delete: Sequence[str] = ()) -> Proposal | None:
    """Changes configs of a topic, which were checked; None: they are so already. UnknownTopicError."""
    topic = topic_of(state, name)
    changed = {**{key: one for key, one in topic.configs.items() if key not in delete}, **configs}
    return None if changed == topic.configs else Proposal(topics=(replace(topic, configs=changed),))


def delete_topic(state: State, name: str, topic_id: str | None = None) -> Proposal:
    """Deletes a topic with its records, and what groups have committed for it; arguments and errors as of Store."""
    topic = topic_of(state, name)
    check_has_id(topic, topic_id)
    moves = [
        OffsetMove(group, at, known.offset, None)
        for group, offsets in state.groups.items()
        for at, known in offsets.items()
        if at.topic == name
    ]
    return Proposal(deleted=(topic.topic_id,), moves=tuple(moves))


def delete_records(state: State, name: str, partition: int, before_offset: int) -> Proposal | None:
    """Deletes the records before an offset; None: they are already. UnknownTopicError, OffsetOutOfRangeError."""
    topic_id = topic_of(state, name).topic_id
    log = state.partitions.get((topic_id, partition))
    start, end = (0, 0) if log is None else (log.log_start, log.log_end)
    if not 0 <= before_offset <= end:
        raise OffsetOutOfRangeError(name, partition, before_offset, start, end)
    return Proposal(log_starts=(LogStart(topic_id, partition, before_offset),)) if before_offset > start else None


def topic_of(state: State, name: str) -> TopicDescription:
    """A topic. UnknownTopicError."""
    try:
        return state.topics[name]
    except KeyError:
        raise UnknownTopicError(f"there is no topic {name!r}{did_you_mean(name, state.topics)}") from None


def log_of(state: State, name: str, partition: int) -> PartitionLog:
    """The log of a partition. UnknownTopicError: there is no such topic, or partition of it."""
    topic = topic_of(state, name)
    if not 0 <= partition < topic.partitions:
        raise UnknownTopicError(f"topic {name!r} has no partition {partition}; it has {topic.partitions}")
    return state.partitions.get((topic.topic_id, partition)) or PartitionLog()


# ---- documents of servers


def change_document(state: State, before: Document | None, after: Document) -> Proposal | None:
    """Puts a document in the place of `before`; None: there is another one by now. StagedOutputError: it took days."""
    check_horizon(state, after.object)
    return Proposal(documents=(after,)) if state.documents.get(after.name) == before else None


# ---- committed offsets


def commit(state: State, group: str, offsets: Mapping[TopicPartition, int | None], metadata: str = "") -> Proposal:
    """Commits offsets of a group, whatever they were before; None deletes one."""
    known = state.groups.get(group, {})
    befores = {at: known[at].offset if at in known else None for at in offsets}
    return Proposal(moves=tuple(OffsetMove(group, at, befores[at], offset, metadata) for at, offset in offsets.items()))
