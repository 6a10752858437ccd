"""Has members of a group join, leave, die and stop, and checks what they have done.

    python -m tests.group_campaign.run --events 500 --seed 1

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

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

from pyspark_log import Producer, Store, TopicPartition
from pyspark_log.storage.groups import GroupState
from tests.group_campaign.member import GROUP, MOST_SILENT, TOPIC

PARTITIONS = 6
# In seconds.
_PATIENCE = 240
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
    """A process. `killed`: when, in ns."""

    name: str
    process: subprocess.Popen[bytes]
    journal: Path
    instance: str
    automatic: bool
    killed: int | None = None


class Producing(threading.Thread):
    """Appends numbered records; a record's value is its partition and its offset."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self._store, self.ends = store, threading.Event()

    def run(self) -> None:
        with Producer(self._store) as producer:
            for number in count():
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, f"{partition} {number}", partition=partition)
                if self.ends.wait(0.01):
                    return


class Campaign:
    """The processes, and what is done to them."""

    def __init__(self, folder: Path, seed: int, assignor: str) -> None:
        self.folder, self.random, self.assignor = folder, random.Random(seed), assignor
        self.path = folder / "store"
        self.store = Store.create(self.path)
        self.store.create_topic(TOPIC, PARTITIONS)
        self.counts: Counter[str] = Counter()
        self.all: list[Member] = []
        self.running: list[Member] = []
        self.producing = Producing(self.store)
        self.producing.start()

    # ---- what happens

    def disturb(self, events: int) -> None:
        """Lets so many events happen."""
        while sum(self.counts.values()) < events:
            kinds = list(EVENTS)
            kind = self.random.choices(kinds, [EVENTS[one] for one in kinds])[0]
            if kind == "join" and len(self.running) >= 5:
                continue
            if kind != "join" and len(self.running) < 2:
                continue
            getattr(self, kind)()
            self.counts[kind] += 1
            time.sleep(self.random.uniform(0, 0.5))

    def join(self) -> None:
        """A process joins; it may come back with the instance id of one that has ended."""
        used = {one.instance for one in self.running}
        instance = self.random.choice(["", "", "i1", "i2"])
        if instance in used:
            instance = ""
        automatic, name = self.random.random() < 0.5, f"m{len(self.all)}"
        journal = self.folder / f"{name}.journal"
        words = [self.path, journal, self.assignor, instance, "automatic" if automatic else "by hand"]
        with (self.folder / f"{name}.log").open("wb") as output:
            command = [sys.executable, "-m", "tests.group_campaign.member", *map(str, words)]
            process = subprocess.Popen(command, stdout=output, stderr=output)
        member = Member(name, process, journal, instance, automatic)
        self.all.append(member)
        self.running.append(member)

    def _take(self) -> Member:
        return self.running.pop(self.random.randrange(len(self.running)))

    def leave(self) -> None:
        """A process ends in order."""
        self._end(self._take())

    def _end(self, member: Member) -> None:
        wait_until(member.journal.exists, f"{member.name} has begun")
        member.process.send_signal(signal.SIGTERM)
        assert member.process.wait(_PATIENCE) == 0, (self.folder / f"{member.name}.log").read_text()

    def kill(self) -> None:
        """A process is killed."""
        member = self._take()
        member.killed = time.monotonic_ns()
        member.process.kill()
        member.process.wait()

    def sleep(self) -> None:
        """A process is stopped for longer than it may be silent."""
        self._stop(MOST_SILENT / 1000 + 2.5)

    def nap(self) -> None:
        """A process is stopped for a moment."""
        self._stop(0.5)

    def _stop(self, seconds: float) -> None:
        member = self.random.choice(self.running)
        member.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        member.process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Ends the producer, has all that is left read, and ends all members."""
        self.producing.ends.set()
        self.producing.join(_PATIENCE)
        # Those with an instance id that do not come back.
        if not self.running:
            self.join()
        ends = self.store.topic(TOPIC).latest_offsets()

        def committed() -> bool:
            found = self.store.groups[GROUP].committed()
            return all(found[at].offset == end for n, end in ends.items() if (at := TopicPartition(TOPIC, n)) in found)

        for member in self.running[1:]:
            self._end(member)
        last = self.running[0]
        wait_until(lambda: self._has_read(last, ends), "the last member has read all that is left")
        self._end(last)
        self.running = []
        assert committed(), "not all is committed"
        assert len(self.store.groups[GROUP].committed()) == PARTITIONS
        wait_until(lambda: self.store.groups[GROUP].describe().state is GroupState.EMPTY, "the group is empty")

    def _has_read(self, member: Member, ends: dict[int, int]) -> bool:
        read = defaultdict[int, int](int)
        for one in self.all:
            for _, word, *where in lines(one):
                if word == "record":
                    read[int(where[0])] = max(read[int(where[0])], int(where[1]) + 1)
        return member.process.poll() is None and read == ends

    def end(self) -> None:
        """Ends what still runs."""
        self.producing.ends.set()
        for member in self.all:
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()

    # ---- what must be

    def check(self) -> dict[str, object]:
        """Checks the journals; how much there was."""
        tenures = defaultdict[int, list[Tenure]](list)
        records = defaultdict[tuple[int, int], list[tuple[int, Member]]](list)
        commits = defaultdict[int, list[tuple[int, int]]](list)
        for member in self.all:
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
        return {
            "records": sum(ends.values()), "processed again": self._check_repeats(records, commits, tenures),
            "tenures": sum(map(len, tenures.values())),
            "removed": len({one.member for all_ in tenures.values() for one in all_ if one.lost}),
            "seconds until what was killed was taken, median and most": (moves[len(moves) // 2], moves[-1]),
        }  # fmt: skip

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
        for member in self.all:
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


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Waits for a condition."""
    until = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < until, f"not in time: {what}"
        time.sleep(0.1)


def main() -> None:
    """Runs a campaign, as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--assignor", default="cooperative-sticky")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="group-campaign-"))
    print(f"seed {given.seed}, in {folder}", flush=True)
    campaign = Campaign(folder, given.seed, given.assignor)
    try:
        campaign.disturb(given.events)
        campaign.finish()
        print(dict(campaign.counts), campaign.check(), "no fault")
    finally:
        campaign.end()


if __name__ == "__main__":
    main()
