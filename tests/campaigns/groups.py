"""Has members of a group join, leave, die and stop, and checks what they have done.

    python -m tests.campaigns groups --kills 500 --seed 1

A producer appends numbered records to six partitions all the time. Members read them, as processes: some commit as
time passes, others by hand; some have an instance id. An event is one of: a process joins, one leaves in order
(SIGTERM), one is killed, one is stopped for a moment, or for longer than it may be silent. At last all leave, and a
last member reads what is left. Then

- each record was processed, and each committed offset is the log's end;
- no partition had two owners at one time, but for one that was stopped until others had removed it;
- a record was processed twice only where its first owner was killed or removed, and not if that had committed it;
- what a killed process had is read by another one within seconds.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

from pyspark_log import Producer, Store, TopicPartition
from pyspark_log.storage.groups import GroupState
from tests.campaigns import harness
from tests.campaigns.group_member import GROUP, MOST_SILENT, TOPIC

PARTITIONS = 6
_SILENT_NS = MOST_SILENT * 1_000_000
EVENTS = {"join": 4, "leave": 2, "kill": 3, "sleep": 1, "nap": 1}


@dataclass
class Tenure:
    """How long a member has owned a partition, by the times of its journal in ns.

    Attributes:
        end: when it gave it up, was killed, or fell silent for so long that others have removed it.
        lost: when it found that out; else 0. What it was handed before it fell silent it may have processed until then.
    """

    member: str
    begin: int
    end: int = 1 << 62
    lost: int = 0


@dataclass
class Member:
    """A process, which may be gone. `killed`: when, in ns."""

    name: str
    journal: Path
    instance: str
    killed: int | None = None


class Producing(threading.Thread):
    """Appends numbered records; a record's value is its partition and its offset."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self._store, self._ends = store, threading.Event()

    def stop(self) -> None:
        """Ends it."""
        self._ends.set()
        if self.is_alive():
            self.join(harness.PATIENCE)

    def run(self) -> None:
        with Producer(self._store) as producer:
            for number in count():
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, f"{partition} {number}", partition=partition)
                if self._ends.wait(0.01):
                    return


class Campaign(harness.Campaign):
    """The members of a group. A kill is any event."""

    kills, taken = 500, "nothing"

    @classmethod
    def arguments(cls, options):
        options.add_argument("--assignor", default="cooperative-sticky")

    def prepare(self):
        self.path = self.folder / "store"
        self.store = Store.create(self.path)
        self.store.create_topic(TOPIC, PARTITIONS)
        self.members = {}
        self.producing = Producing(self.store)

    def begin(self):
        self.producing.start()

    # ---- what happens

    def pause(self):
        time.sleep(self.random.uniform(0, 0.5))

    def strike(self):
        """One event: five members at most, and two before one of them is disturbed."""
        few, many = len(self.running) < 2, len(self.running) >= 5
        weights = {kind: weight for kind, weight in EVENTS.items() if not (many if kind == "join" else few)}
        [kind] = self.random.choices([*weights], weights.values())
        if kind == "join":
            self.join()
        else:
            name = self.random.choice([*self.running])
            {"leave": self.leave, "kill": self.lose, "sleep": self.sleep, "nap": self.nap}[kind](name)
        return f"{kind}s"

    def join(self):
        """A process joins; it may come back with the instance id of one that has ended."""
        used, name = {self.members[one].instance for one in self.running}, f"m{len(self.members)}"
        instance = self.random.choice(["", "", "i1", "i2"])
        if instance in used:
            instance = ""
        journal = self.folder / f"{name}.journal"
        self.members[name] = Member(name, journal, instance)
        commits = "automatic" if self.random.random() < 0.5 else "by hand"
        self.launch_module(name, "group_member", self.path, journal, self.options.assignor, instance, commits)

    def leave(self, name):
        """A process ends in order, when it has begun."""
        assert self.wait(self.members[name].journal.exists), f"{name} has not begun: {self.log(name)}"
        self.terminate(name)

    def lose(self, name):
        """A process is killed."""
        self.members[name].killed = time.monotonic_ns()
        self.kill(name)

    def sleep(self, name, seconds=MOST_SILENT / 1000 + 2.5):
        """A process is stopped for longer than it may be silent."""
        self.running[name].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.running[name].send_signal(signal.SIGCONT)

    def nap(self, name):
        """A process is stopped for a moment."""
        self.sleep(name, 0.5)

    def finish(self):
        """Ends the producer, has all that is left read, and ends all members."""
        self.producing.stop()
        # Those with an instance id that do not come back.
        if not self.running:
            self.join()
        ends = self.store.topic(TOPIC).latest_offsets()
        last, *others = self.running
        for name in others:
            self.leave(name)
        assert self.wait(lambda: self._has_read(last, ends)), "the last member has not read all that is left"
        self.leave(last)
        found = {at: one.offset for at, one in self.store.groups[GROUP].committed().items()}
        assert found == {TopicPartition(TOPIC, number): end for number, end in ends.items()}, f"committed is {found}"
        empty = self.wait(lambda: self.store.groups[GROUP].describe().state is GroupState.EMPTY)
        assert empty, "the group is not empty"

    def _has_read(self, name, ends):
        read = defaultdict(int)
        for one in self.members.values():
            for _, word, *where in lines(one):
                if word == "record":
                    read[int(where[0])] = max(read[int(where[0])], int(where[1]) + 1)
        return self.running[name].poll() is None and read == ends

    def figures(self):
        return [self.taken]

    def end(self):
        self.producing.stop()

    # ---- what must be

    def check(self):
        """Checks the journals; AssertionError."""
        tenures = defaultdict[int, list[Tenure]](list)
        records = defaultdict[tuple[int, int], list[tuple[int, Member]]](list)
        commits = defaultdict[int, list[tuple[int, int]]](list)
        for member in self.members.values():
            for at, one in self._tenures(member):
                tenures[at].append(one)
            for when, word, *where in lines(member):
                if word == "record":
                    records[int(where[0]), int(where[1])].append((int(when), member))
                elif word == "commit":
                    commits[int(where[0])].append((int(where[1]), int(when)))
        self._check_owners(tenures)
        ends = self.store.topic(TOPIC).latest_offsets()
        missing = [(n, offset) for n, end in ends.items() for offset in range(end) if (n, offset) not in records]
        assert not missing, f"{len(missing)} records were skipped: {missing[:10]}"
        moves = self._moves(tenures) or [0.0]
        self.counts.update({
            "records": sum(ends.values()), "records processed again": self._check_repeats(records, commits, tenures),
            "tenures": sum(map(len, tenures.values())),
            "members removed": len({one.member for all_ in tenures.values() for one in all_ if one.lost}),
        })  # fmt: skip
        self.taken = (
            f"what was killed was taken after {moves[len(moves) // 2]:.2f} s (median), {moves[-1]:.2f} s (most)"
        )
        return []

    def _tenures(self, member: Member) -> list[tuple[int, Tenure]]:
        found, open_ = list[tuple[int, Tenure]](), dict[int, Tenure]()
        for when, word, *where in lines(member):
            if word == "take":
                tenure = open_[int(where[0])] = Tenure(member.name, int(when))
                found.append((int(where[0]), tenure))
            elif word in ("give", "lost") and int(where[0]) in open_:
                tenure = open_.pop(int(where[0]))
                tenure.end = int(when)
                if word == "lost":
                    tenure.lost = tenure.end
        for tenure in open_.values():
            tenure.end = member.killed or tenure.end
        times = [int(when) for when, *_ in lines(member)]
        for _, tenure in found:
            if tenure.lost:
                silences = [one for one, after in pairwise(times) if after <= tenure.lost and after - one > _SILENT_NS]
                tenure.end = max([tenure.begin, *silences])
        return found

    def _check_owners(self, tenures: dict[int, list[Tenure]]) -> None:
        for at, all_ in tenures.items():
            ordered = sorted(all_, key=lambda one: one.begin)
            for one, other in pairwise(ordered):
                assert one.end <= other.begin, f"partition {at} had two owners: {one} and {other}"

    def _check_repeats(
        self,
        records: dict[tuple[int, int], list[tuple[int, Member]]],
        commits: dict[int, list[tuple[int, int]]],
        tenures: dict[int, list[Tenure]],
    ) -> int:
        def was_removed(member: Member, partition: int, when: int) -> bool:
            return any(one.member == member.name and one.begin <= when <= one.lost for one in tenures[partition])

        count = 0
        for (partition, offset), times in records.items():
            ordered = sorted(times, key=lambda one: one[0])
            count += len(ordered) - 1
            for (at, first), (again, second) in pairwise(ordered):
                if was_removed(second, partition, again):
                    continue
                was_disturbed = first.killed is not None or was_removed(first, partition, at)
                assert was_disturbed, f"{partition}:{offset} was processed again, and {first.name} has ended in order"
                done = [when for upto, when in commits[partition] if upto > offset and when < again]
                assert not done, f"{partition}:{offset} was processed again {again - min(done)} ns after its commit"
        return count

    def _moves(self, tenures: dict[int, list[Tenure]]) -> list[float]:
        """How long it took until partitions of killed members had another owner, in seconds."""
        found = []
        for member in self.members.values():
            if member.killed is None or member.instance:
                continue
            for all_ in tenures.values():
                had = any(one.member == member.name and one.end == member.killed for one in all_)
                later = [one.begin for one in all_ if one.begin > member.killed]
                if had and later:
                    found.append((min(later) - member.killed) / 1e9)
        return sorted(found)


def lines(member: Member) -> list[list[str]]:
    """The whole lines of a journal, as words."""
    if not member.journal.exists():
        return []
    return [line.split() for line in member.journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
