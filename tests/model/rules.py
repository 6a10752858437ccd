"""The rules of the protocol, each with a small case in which leaving it out is seen.

The name of a rule is what the model asks for (`keeps`); a rule that no case would miss has no place in the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .cases import HORIZON, Settings, given, make
from .checker.explorer import Explorer, Result
from .checker.machine import Model
from .publish_log import situations as publish_log
from .situations import (
    committed_offsets,
    compacted_decisions,
    fencing,
    janitor,
    leftovers,
    lock_order,
    lost_locks,
    members,
    one_partition,
    publishers,
    segment_swap,
    topic_deletion,
)

# More states than it takes to see the violation.
_LIMIT = 1_000_000


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes:
        name: what it says.
        violates: the invariant that is found to be violated without it.
        make, settings: the case in which that is seen.
    """

    name: str
    violates: str
    make: Callable[..., Model]
    settings: Settings


def run_without(rule: Rule) -> Result:
    """Explores the rule's case without it."""
    return Explorer(make(rule.make, rule.settings, rule.name)).explore(_LIMIT)


def _of(build: Callable[..., Model], settings: Settings, *rules: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple(Rule(name, violates, build, settings) for name, violates in rules)


_TWO = ("append", "append two", "append synced", "publish")

RULES = (
    # Entering, and the state file.
    *_of(
        one_partition.model, given(tasks=2, kinds=_TWO),
        ("entering syncs a state of the synced pair", "I2"),
        ("the pairs of slots never mix", "I2"),
        ("entering cuts what is beyond the end", "I1"),
        ("the cut is synced", "I1"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=("append", "append synced"), failing=(1, 0)),
        ("entering writes the state once more before it syncs", "I2"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=_TWO, kills=2),
        ("a flag while cutting", "I1"),
    ),
    *_of(
        one_partition.model, given(tasks=1, kinds=_TWO, torn=True),
        ("torn slots are mended before the boot id is written", "I15"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=("append", "append synced"), kills=0, powers=0, flips=True),
        ("a slot that no power loss explains is damage", "I7"),
    ),
    # Appending and rolling.
    *_of(
        one_partition.model, given(tasks=2, kinds=_TWO),
        ("offsets are reserved before they are shown", "I2"),
        ("the end moves when all is written", "I2"),
        ("a synced append syncs the log", "I7"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=("append two", "append synced", "publish"), segment_size=2),
        ("the old segment is synced before a new one is made", "I1"),
        ("the folder is synced when a segment is made", "I1"),
        ("newer segments go before one is made", "I1"),
        ("a roll is synced", "I7"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=_TWO, failing=(0, 1)),
        ("a segment is suspect while it is being synced", "I2"),
    ),
    *_of(
        one_partition.model, given(tasks=3, kinds=("append", "append synced"), failing=(0, 1), kills=0),
        ("what a failed sync may have lost is written again", "I1"),
    ),
    *_of(
        one_partition.model, given(tasks=3, kinds=("append", "append synced"), failing=(0, 1), kills=0, segment_size=1),
        ("a segment of that name is replaced in one step", "I1"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=("append", "append synced"), failing=(0, 1), kills=0, powers=2),
        ("recovery writes again what a failed sync of it may have lost", "I1"),
    ),
    # Applying.
    *_of(
        one_partition.model, given(tasks=2, kinds=_TWO),
        ("what is applied is not applied again", "I3"),
        ("an intent comes before the bytes", "I3"),
        ("the intent is synced before the bytes", "I3"),
        ("the bytes are synced before the end moves", "I2"),
        ("the end and the decision's number move at once", "I3"),
        ("that an intent was dropped is synced", "I7"),
        ("resolving syncs what it found", "I2"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=("append", "publish"), failing=(0, 1)),
        ("what a failed sync left is not mistaken for whole", "I2"),
    ),
    *_of(leftovers.model, given(), ("the digest identifies the decision's bytes", "I3")),
    # After a power loss.
    *_of(
        one_partition.model, given(tasks=2, kinds=_TWO),
        ("the boot id is written last", "I2"),
        ("whole batches beyond the end are adopted", "I7"),
        ("the log continues at the reserve", "I2"),
        ("an intent after a hole is dropped", "I1"),
        ("what is there of a dropped intent is cut", "I3"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=_TWO, powers=2, kills=0),
        ("recovery syncs the log", "I1"),
    ),
    # Staged files that become segments.
    *_of(
        one_partition.model, given(tasks=2, kinds=("append", "publish files", "publish two files")),
        ("an installed file is synced before it gets its name", "I2"),
        ("the folder is synced when a file is installed", "I2"),
        ("a staged file is never cut", "I9"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=("publish files",)),
        ("an installed file is cut to what was staged", "I2"),
    ),
    *_of(
        one_partition.model, given(tasks=3, kinds=("append", "publish files"), segment_size=1, powers=0),
        ("an installed file replaces an empty segment in one step", "I1"),
    ),
    *_of(
        one_partition.model,
        given(tasks=3, kinds=("append", "publish two files"), writers=2, handles=True, kills=0, powers=0),
        ("another generation means other files", "I1"),
    ),
    # Letting records go.
    *_of(
        one_partition.model, given(tasks=3, kinds=("append", "delete records"), segment_size=1, kills=1),
        ("the log start is written before files go", "I1"),
        ("the log start is synced", "I2"),
    ),
    *_of(
        one_partition.model, given(tasks=2, kinds=("append synced", "truncate")),
        ("a truncation is synced before files are cut", "I1"),
    ),
    # Deciding.
    *_of(
        fencing.model, given(batches=3, zombies=1, kills=0, back=2),
        ("a run that was replaced decides nothing", "I8"),
        ("only the last number or the next one is taken", "I8"),
        ("the last number again is a replay", "I5"),
    ),
    *_of(
        fencing.model, given(batches=2, zombies=0, kills=0, back=1),
        ("a replay with another plan is refused", "I8"),
    ),
    *_of(
        fencing.model, given(batches=2, zombies=0, kills=0, copied=True),
        ("another checkpoint decides nothing", "I8"),
    ),
    *_of(
        fencing.model, given(batches=1, zombies=1, kills=0, helpers=1),
        ("what is done is recorded as it is known under the lock", "I8"),
    ),
    *_of(
        fencing.model, given(batches=1, zombies=0, kills=1, powers=1),
        ("the staging folder is synced before the decision", "I9"),
        ("a decision is synced before the end moves", "I4"),
    ),
    *_of(
        publishers.model, given(numbers=(0, 1), one_offs=0, helpers=0, skips=True),
        ("the last decision is finished before the next is made", "I5"),
    ),
    *_of(
        publishers.model, given(numbers=(), one_offs=1, helpers=1, tidies=True, kills=0),
        ("a publisher is forgotten though another was faster", "I15"),
    ),
    *_of(
        publishers.model, given(numbers=(0,), one_offs=0, helpers=1, kills=0, powers=1),
        ("no process acts on a decision beyond the end", "I4"),
        ("after a restart the log of decisions is recovered before it is read", "I15"),
    ),
    *_of(
        publishers.model, given(numbers=(0,), one_offs=1, helpers=0),
        ("earlier decisions are applied first", "I3"),
    ),
    *_of(
        fencing.model, given(batches=1, zombies=1, kills=0, patient=False),
        ("a refused publish leaves what is decided", "I9"),
        ("an error after the decision says that it is published", "I17"),
    ),
    *_of(
        fencing.model, given(batches=2, zombies=1, kills=0, patient=False),
        ("an error before the decision says that nothing is published", "I17"),
    ),
    *_of(
        publishers.model, given(numbers=(0,), one_offs=0, helpers=0, kills=0, powers=1, failing=2),
        ("an error of the decision's sync leaves it open", "I17"),
    ),
    # Staged output and deleted topics.
    *_of(
        janitor.model, given(kills=0),
        ("a publisher that decides looks for its manifest", "I9"),
        ("a publisher that decides looks for its file", "I9"),
        ("the janitor holds the lock of decisions", "I9"),
        ("the janitor spares what a decision names", "I9"),
    ),
    *_of(
        topic_deletion.model, given(helpers=0, writers=1),
        ("a partition of a deleted topic is dead", "I7"),
    ),
    # Committed offsets.
    *_of(
        committed_offsets.model, given(members=1, commits=1),
        ("a commit comes after what is decided", "I11"),
        ("a publisher that decides holds the group's partition", "I11"),
    ),
    *_of(committed_offsets.model, given(members=2, commits=0), ("what is decided counts before it is applied", "I11")),
    *_of(
        committed_offsets.model, given(members=1, commits=1, powers=1),
        ("committed offsets are durable before a decision rests on them", "I11"),
    ),
    *_of(
        committed_offsets.model, given(members=0, commits=2, sweeps=1),
        ("what has expired is checked again under the lock", "I11"),
    ),
    *_of(
        committed_offsets.model, given(members=1, commits=1, sweeps=1),
        ("a sweep comes after what is decided", "I11"),
    ),
    # Members of groups.
    *_of(
        members.model, given(records=1),
        ("a member takes only what no other owns", "I18"),
        ("a member gives up only what it has ended its work for", "I18"),
        ("an owner begins where the group is after it has taken a partition", "I20"),
        ("what is given up is committed before", "I20"),
        ("a member that ends in order leaves after its last commit", "I20"),
    ),
    *_of(members.model, given(partitions=1, records=2, removals=1), ("only the owner commits", "I19")),
    # Compaction.
    *_of(compacted_decisions.model, given(kills=0, publishers=2), ("the last record of a publisher stays", "I13")),
    *_of(
        segment_swap.model, given(powers=1),
        ("a swap begins with an intent", "I15"),
        ("the swap's intent is synced", "I15"),
        ("the new segment comes before the old ones go", "I16"),
        ("the new segment takes the old one's name in one step", "I16"),
        ("the new segment's name is on the disk before the old ones go", "I16"),
        ("a process that enters finishes a swap", "I15"),
    ),
    *_of(
        segment_swap.model, given(),
        ("a reader that misses a segment looks at the state again", "I16"),
        ("readers hear of the swap before the old segments go", "I16"),
        ("what is replaced does not count", "I16"),
    ),
    *_of(
        segment_swap.model, given(readers=0, truncates=True),
        ("only segments that are as they were are replaced", "I1"),
    ),
    *_of(
        segment_swap.model, given(powers=1, kills=0),
        ("the cleaned segment is on the disk before the swap", "I16"),
    ),
    # Shared file systems.
    *_of(
        lost_locks.model, given(tasks=3),
        ("a claim comes before the log is changed", "I1"),
        ("a writer that finds a claim continues in another segment", "I1"),
        ("a claim comes right before a change by name", "I1"),
        ("a state written without the lock is refused", "I7"),
    ),
    *_of(
        lost_locks.model, given(tasks=2, begun=True),
        ("what is cut is open before that is said", "I1"),
    ),
    *_of(
        lost_locks.model, given(tasks=3, losses=0, stray=1),
        ("newer segments go even where no claim was found", "I1"),
    ),
    # Locks.
    *_of(lock_order.model, given(), ("no process waits for the decision log under a partition's lock", "I15")),
    *_of(lock_order.model, given(turns=True), ("every waiter takes its turn", "I15")),
    # The publish log of an object store.
    *_of(
        publish_log.publishers, given(runs="", appends=1, failing=1),
        ("publish log: after a refusal, a process reads whose decision it is", "P1"),
    ),
    *_of(
        publish_log.publishers, given(runs="", appends=2),
        ("publish log: a decision with another token is another's", "P1"),
        ("publish log: what was checked on a state is the decision after it", "P2"),
    ),
    *_of(
        publish_log.publishers, given(runs="aa"),
        ("publish log: a publish checks that its run holds the publisher", "P4"),
        ("publish log: a publish checks its number", "P1"),
    ),
    *_of(
        publish_log.publishers, given(runs="a", failing=2, revokes=True),
        ("publish log: what is unknown is taken back by a decision", "P7"),
    ),
    *_of(
        publish_log.publishers, given(runs="ab", moves=True),
        ("publish log: a publish checks each offset that it moves", "P3"),
    ),
    *_of(
        publish_log.served, given(producers=2, batches=2, failing=2),
        ("publish log: a decision has the sequences of its batches", "P1"),
        ("publish log: a batch is compared with its producer's last one", "P1"),
        ("publish log: a batch follows its producer's last one", "P9"),
    ),
    *_of(
        publish_log.served, given(servers="cl", renews=1, commits=2),
        ("publish log: a server commits only if it coordinates", "P10"),
        ("publish log: a commit checks the term of its coordinator", "P10"),
        ("publish log: a coordinator loads what it coordinates after its claim", "P10"),
    ),
    *_of(
        publish_log.served, given(instances="ab"),
        ("publish log: a part is of the epoch that is open", "P11"),
        ("publish log: an end is of the epoch that is open", "P11"),
        ("publish log: a new epoch aborts what is open", "P11"),
    ),
    *_of(
        publish_log.served, given(instances="a", failing=2),
        ("publish log: a commit that is repeated is compared with what is known", "P7"),
    ),
    *_of(
        publish_log.kept, given(begun=("staged", "staged"), mergers=1, delete=1, cleaners=()),
        ("publish log: a merge checks that what it replaces is still there", "P2"),
    ),
    *_of(
        publish_log.kept, given(begun=(), appends=1, staged=True, asleep=False, cleaners=(HORIZON,)),
        ("publish log: no decision names an object from before the horizon", "P6"),
        ("publish log: staged objects stay until the horizon", "P6"),
    ),
    *_of(
        publish_log.kept, given(cleaners=(HORIZON,)),
        ("publish log: what a piece names stays", "P6"),
    ),
    *_of(
        publish_log.kept, given(),
        ("publish log: there is a checkpoint at the floor", "P8"),
        ("publish log: the floor's checkpoint stays", "P8"),
        ("publish log: decisions after the floor stay", "P8"),
    ),
    *_of(
        publish_log.kept, given(readers=1),
        ("publish log: without a next decision, a process that has slept looks for a floor", "P5"),
    ),
    *_of(
        publish_log.kept, given(appends=1),
        ("publish log: a process that has slept looks for a floor after it creates", "P1"),
        ("publish log: what a process has tried to create before a floor is unknown", "P1"),
    ),
    *_of(
        publish_log.kept, given(begun=("empty",), appends=1, readers=1),
        ("publish log: floors are counted in the state before the sleep", "P5"),
    ),
    *_of(
        publish_log.kept, given(begun=("empty", "inline"), appends=1, readers=1),
        ("publish log: what contradicts is no damage if there is a floor", "P8"),
    ),
    *_of(
        publish_log.kept,
        given(readers=1, asleep=False, cleaners=((("floor",), ("floor", "list"), ("delete",)),)),
        ("publish log: a missing checkpoint was deleted for a later floor", "P8"),
    ),
    *_of(
        publish_log.kept, given(begun=("inline", "deleted"), tasks=1, appends=1),
        ("publish log: a reader that has slept looks for a floor after a decision's records", "P5"),
    ),
    *_of(
        publish_log.kept, given(readers=1, cleaners=((("floor", "list"),), (("delete",),))),
        ("publish log: the floor is written before a decision is deleted", "P5"),
    ),
    *_of(
        publish_log.kept, given(begun=("staged", "floor"), readers=1),
        ("publish log: the last floor is written before the next is decided", "P5"),
    ),
    *_of(
        publish_log.kept, given(begun=(), appends=1, cleaners=((("horizon", "floor", "list"), ("delete",)),)),
        ("publish log: what is listed is deleted a day later", "P1"),
    ),
    *_of(
        publish_log.kept,
        given(begun=(), appends=1, asleep=False, cleaners=((("horizon", "floor", "list"),), (("delete",),))),
        ("publish log: the time of a list is read after the state", "P1"),
    ),
)  # fmt: skip
