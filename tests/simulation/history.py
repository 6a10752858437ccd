"""What clients have done and seen, and the rules that must hold: those of Jepsen's workload for Kafka."""

from collections import defaultdict
from dataclasses import dataclass, field

# How long after the answer to a commit another server may still answer with the offset before, in seconds: one that was
# replaced finds out within the 15 s after which it is taken for dead.
STALE = 20.0


@dataclass(eq=False)
class Write:
    """Values that a client has appended, or a transaction.

    Attributes:
        name: of its writer, which has written all before it that has the name.
        began, ended: when it was sent first, and when it was answered; a transaction: its end.
        values: the partition of each.
        outcome: "there", "absent", or "unknown".
        offsets: what a transaction commits, by group; each one of a writer is larger than those before.
    """

    name: str
    began: float
    values: dict[bytes, int] = field(default_factory=dict)
    outcome: str = "unknown"
    ended: float = float("inf")
    offsets: dict[str, int] = field(default_factory=dict)


class History:
    """All of it.

    Attributes:
        counts: how much there was of what.
    """

    def __init__(self, world):
        self.world, self.writes = world, list[Write]()
        self.counts = defaultdict(int)
        self._of_value, self.places = dict[bytes, Write](), dict[bytes, tuple[int, int]]()
        self.log = defaultdict[int, dict[int, bytes]](dict)
        self._numbers, self._known = defaultdict(int), defaultdict(int)
        # What was answered of each group: when, the offset, and by which process.
        self._committed = defaultdict[str, list[tuple[float, int, str]]](list)
        self._generations = defaultdict[str, list[tuple[float, int]]](list)

    def fault(self, why):
        self.world.fault(why)

    # ---- what clients report

    def begin(self, name):
        """A write begins; nothing of it was sent yet."""
        write = Write(name, self.world.now)
        self.writes.append(write)
        return write

    def value(self, write, partition):
        """A new value of a write."""
        self._numbers[write.name] += 1
        value = b"%s/%06d" % (write.name.encode(), self._numbers[write.name])
        write.values[value] = partition
        self._of_value[value] = write
        return value

    def end(self, write, outcome):
        """What became of a write is known."""
        write.outcome, write.ended = outcome, self.world.now
        self.counts[f"{'transactions' if write.name.startswith('tx') else 'appends'} {outcome}"] += 1
        if outcome == "absent" and any(value in self.places for value in write.values):
            self.fault(f"{write.name}: what was aborted or refused was seen: {list(write.values)}")

    def place(self, partition, offset, value):
        """A value is at an offset, as a reader has seen it, or its writer was answered."""
        before = self.log[partition].setdefault(offset, value)
        if before != value:
            self.fault(f"offset {offset} of partition {partition} had {before}, and has {value}")
        write, place = self._of_value.get(value), (partition, offset)
        if self.places.setdefault(value, place) != place:
            self.fault(f"{value} is at {self.places[value]} and at {place}")
        if write is None or write.values[value] != partition:
            self.fault(f"{value} is in partition {partition}, for which it was not written")
        elif write.outcome == "absent":
            self.fault(f"{value} was aborted or refused, and is at {place}")

    def known(self, partition):
        """Up to which offset all values of a partition are known."""
        log, end = self.log[partition], self._known[partition]
        while end in log:
            end += 1
        self._known[partition] = end
        return end

    def write_of(self, value):
        return self._of_value[value]

    def committed(self, group, offset, process):
        """The commit of an offset was answered by a process; "": any may know it."""
        self._committed[group].append((self.world.now, offset, process))

    def fetched(self, group, offset, asked, process):
        """A process has answered a question of some time with the committed offset of a group; -1: none."""
        for when, known, other in reversed(self._committed[group]):
            if offset < known and when < asked - (0 if process == other else STALE):
                self.fault(f"group {group}: {known} was committed at {when} at {other}; {process} has {offset}")
            if when < asked - STALE:
                break

    def commit_of(self, place, generation, began):
        """A member's commit was answered, which began at some time, in a generation of its group."""
        self.counts["commits of members"] += 1
        for when, other in reversed(self._generations[place]):
            if when < began and other > generation:
                self.fault(f"{place}: one of generation {generation} commits after {other} has, at {when}")
        self._generations[place].append((self.world.now, generation))

    # ---- at the end

    def check(self, ends, committed):
        """The rules; `ends`: of the partitions, all of which was read, `committed`: the offsets of groups."""
        for partition, end in ends.items():
            if sorted(self.log[partition]) != list(range(end)):
                missing = set(range(end)) ^ self.log[partition].keys()
                self.fault(f"partition {partition} ends at {end}; offsets that differ: {sorted(missing)[:9]}")
        for write in self.writes:
            seen = [value for value in write.values if value in self.places]
            if write.outcome == "there" and len(seen) < len(write.values):
                self.fault(f"{write.name}: acknowledged, and lost: {write.values.keys() - set(seen)}")
            if write.name.startswith("tx"):
                if write.outcome == "unknown" and 0 < len(seen) < len(write.values):
                    self.fault(f"{write.name}: of a transaction with {list(write.values)} there is {seen}")
                if write.outcome == "absent" and seen:
                    self.fault(f"{write.name}: of an aborted transaction there is {seen}")
        self._check_order()
        self._check_times()
        self._check_groups(committed)

    def _check_order(self):
        for partition, log in self.log.items():
            last = dict[bytes, bytes]()
            for offset in sorted(log):
                writer = log[offset].partition(b"/")[0]
                if last.get(writer, b"") > log[offset]:
                    self.fault(f"partition {partition}: {log[offset]} at {offset} comes after {last[writer]}")
                last[writer] = log[offset]

    def _check_times(self):
        """What was acknowledged before something else began has smaller offsets."""
        by_partition = defaultdict[int, list[tuple[float, float, int, int]]](list)
        for write in self.writes:
            offsets = defaultdict[int, list[int]](list)
            for value in write.values:
                if value in self.places:
                    offsets[self.places[value][0]].append(self.places[value][1])
            for partition, there in offsets.items():
                by_partition[partition].append((write.began, write.ended, min(there), max(there)))
        for partition, spans in by_partition.items():
            ended = sorted((end, last) for _, end, _, last in spans)
            place, most = 0, -1
            for began, _, first, _ in sorted(spans):
                while place < len(ended) and ended[place][0] < began:
                    most = max(most, ended[place][1])
                    place += 1
                if first < most:
                    self.fault(f"partition {partition}: {first} was begun after {most} was acknowledged")

    def _check_groups(self, committed):
        for group, offset in committed.items():
            acknowledged = max((known for _, known, _ in self._committed[group]), default=-1)
            writes = [write for write in self.writes if group in write.offsets]
            if not writes:
                if offset < acknowledged:
                    self.fault(f"group {group}: {acknowledged} was committed, and it has {offset}")
                continue
            there = [write for write in writes if any(value in self.places for value in write.values)]
            expected = max((write.offsets[group] for write in there), default=-1)
            if offset != expected:
                self.fault(f"group {group} has {offset}, and the last transaction that is there {expected}")
