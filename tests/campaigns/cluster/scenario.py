"""Attacks a cluster of Kafka again and again, and checks after each fault that nothing acknowledged is lost.

    python -m tests.campaigns cluster --members kafka,kafka39,ours --kills 200 --seed 1

Three members (Kafka 4.3.1, Kafka 3.9.1, or `pylog serve` as a node) have all partitions, under three controllers of
Kafka; each is in a network namespace of its own, and each member has a disk of its own. Producers write with acks=all
and min.insync.replicas=2, and a reader for each member reads what it gives to consumers. Members and the controller
that leads are killed, restarted and frozen; hosts lose their way to others, one way or both; disks are full; the ends
of segments are torn. After each step all is repaired, and within a minute

- all members are in sync;
- all replicas have the same bytes below the high watermark, and what was there before has not changed;
- each acknowledged record is at its offset, once if its producer is idempotent;
- each record that a member gave to a consumer is at its offset;
- no high watermark went back while its leader led, no member has ended by itself, except one of Kafka with a full disk.

The same holds at the end; then each member gives all records to consumers, and `pylog verify` finds no damage.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter

from tests.campaigns import harness
from tests.campaigns.cluster.acknowledged import Acknowledged
from tests.campaigns.cluster.exact import ExactProducer
from tests.campaigns.cluster.faults import KINDS, drawn
from tests.campaigns.cluster.load import Load
from tests.campaigns.cluster.network import Network
from tests.campaigns.cluster.readers import Reader
from tests.campaigns.cluster.replicas import Replicas
from tests.campaigns.cluster.topics import ALL, TOPICS
from tests.campaigns.members import KAFKAS, OURS, Cluster, Place
from tests.store_tools import damages

# How long all members may take to be in sync after a step, and readers and producers to come to an end, in seconds.
_HEALED, _FINISHED = 60, 60
# How long the first acknowledgement to each producer may take then, in seconds.
_ANSWERED = 20
_HOSTS = (1, 2, 3, 101, 102, 103)
_PORT, _CONTROLLER_PORT = 9092, 9093
# What each member can store, in bytes: more than a campaign of some hours writes.
_DISK = 256 << 20


def _members(text):
    kinds = text.split(",")
    if len(kinds) != 3 or not {*kinds} <= {*KAFKAS, OURS}:
        raise ValueError(text)
    return kinds


class Campaign(harness.Campaign):
    """A cluster under attack. A kill is any fault; the first thing that is wrong ends it."""

    @classmethod
    def arguments(cls, options):
        about = f"three of {', '.join((*KAFKAS, OURS))}"
        options.add_argument("--members", type=_members, default="kafka,kafka,kafka", help=about)

    def prepare(self):
        self.cluster, self._network, self._running, self._now = None, None, contextlib.ExitStack(), []
        self.gaps, self._seen = Counter(), {}

    def begin(self):
        self._network = network = self._running.enter_context(Network(_HOSTS))
        places = {
            number: Place(host.address, _CONTROLLER_PORT if number > 100 else _PORT, host.enter)
            for number, host in network.hosts.items()
        }
        disk = lambda folder: network.disk(folder, _DISK)  # noqa: E731
        cluster = self.cluster = Cluster(self.folder, self.options.members, places, TOPICS, disk=disk)
        self._running.callback(cluster.close)
        cluster.start()
        known, seed = Acknowledged(), self.options.seed
        addresses = {number: one.address for number, one in cluster.members.items()}
        self._known, self._load = known, Load(cluster.bootstrap, known, seed, self.folder / "librdkafka")
        self._exact = [ExactProducer(at, addresses, known, seed) for at in ALL]
        self._readers = [Reader(*one) for one in addresses.items()]
        self._replicas = Replicas(cluster, known, self._readers, self._restart)
        # All leaders must know that they lead: a broker of Kafka takes a producer's second batch first if the first one
        # came too early, and librdkafka then takes both for stored.
        self._compare()
        for one in self._clients():
            self._running.enter_context(one)
        assert self.wait(known.has_each, _HEALED, every=0.05), "a partition has no acknowledged record"
        self._compare()

    def _clients(self):
        return [self._load, *self._exact, *self._readers]

    def _compare(self):
        self.found += self._replicas.check(_HEALED)

    def attack(self):
        steps = drawn(self.options.seed, self.options.kills, self.options.members)
        for number, step in enumerate(steps, 1):
            if self.found:
                break
            self.say(f"{number} of {len(steps)}: {step}")
            self._known.longest()
            self._step(step)
            begun = time.monotonic()
            self._compare()
            self._look()
            self.found += [f"the producer {name} gets no answers any more" for name in self._load.stuck(_ANSWERED)]
            longest, at = self._known.longest()
            for kind in (*(one.kind for one in step.faults), *["two at once"][: len(step.faults) - 1]):
                self.counts[kind] += 1
                self.gaps[kind] = max(self.gaps[kind], longest)
            self.say(
                f"    in sync after {time.monotonic() - begun:.1f} s; {at} had no acknowledgement for "
                f"{longest:.1f} s; {self._known.count} records, {self._load.unknown.total()} unknown"
            )
            self.cluster.elect_preferred()

    def _step(self, step):
        """Lets the faults of a step begin and end, each at its time."""
        self._now = [KINDS[one.kind](self.cluster, self._network, one.about) for one in step.faults]
        times = []
        for place, (fault, one) in enumerate(zip(self._now, step.faults, strict=True)):
            begin = place * step.later
            times += [(begin, fault.begin), (begin + one.seconds, fault.end)]
        begun = time.monotonic()
        # The sort is stable: what takes no time ends after it has begun.
        for at, act in sorted(times, key=lambda one: one[0]):
            time.sleep(max(0.0, begun + at - time.monotonic()))
            said = act()
            if said:
                self.say(f"    {said}")
        for fault in self._now:
            fault.finish()

    def _restart(self):
        """Starts again what has ended, if it may have."""
        ended = [one for one in self.cluster.nodes() if one.process.poll() is not None]
        if ended:
            self.cluster.forget()
        for one in ended:
            if not any(fault.may_end(one) for fault in self._now):
                self.found.append(f"node {one.number} has ended by itself with {one.process.returncode}")
            one.kill()
            one.launch()
        for one in ended:
            try:
                one.await_start()
            except RuntimeError as error:
                self.found.append(f"node {one.number}: {error}")

    def _look(self):
        """What else is wrong: what our members and the clients have said since the last look."""
        for one in self.cluster.ours:
            output, seen = one.output(), self._seen.get(one.number, 0)
            self._seen[one.number], new = len(output), output[seen:]
            if "Traceback" in new:
                self.found.append(f"member {one.number} has said: {new[new.index('Traceback') :][:2000]}")
        for one in self._clients():
            self.found += one.faults

    def finish(self):
        """Lets producers and readers come to the end, and our members end in order."""
        if self.found:
            return
        for one in (self._load, *self._exact):
            one.finish(_FINISHED)
        self._compare()
        self.wait(lambda: not self._unread(), _FINISHED, every=0.1)
        self.found += self._unread()
        # Once more: what was read since then.
        self._compare()
        for one in self.cluster.ours:
            if code := one.stop():
                self.found.append(f"member {one.number} has ended with {code}")
            self.found += [f"member {one.number}: {damage}" for damage in damages(str(one.path))]
        self._look()

    def _unread(self):
        return [text for one in self._readers for text in one.left(self._replicas.ends)]

    def keep(self):
        """Ends all, and copies the disks, which are in memory, to the folder."""
        if self.cluster is not None:
            self.cluster.close()
            for one in self.cluster.nodes():
                away = shutil.ignore_patterns("ballast")
                shutil.copytree(one.disk, self.folder / f"kept{one.number}", ignore=away, symlinks=True)

    def end(self):
        # Clients first, then the cluster, then the network.
        self._running.close()

    def figures(self):
        yield f"{self._known.count} records acknowledged; replicas late {self._replicas.late} times"
        yield from (f"{count:4} of unknown outcome: {why}" for why, count in sorted(self._load.unknown.items()))
        yield from (
            f"{kind}: at most {gap:.1f} s without an acknowledgement" for kind, gap in sorted(self.gaps.items())
        )
