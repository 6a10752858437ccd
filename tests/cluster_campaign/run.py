"""Attacks a cluster of Kafka again and again, and checks after each fault that nothing acknowledged is lost.

    python -m tests.cluster_campaign.run --members kafka,kafka39,ours --faults 200 --seed 1

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

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from pyspark_log.kafka.errors import ClusterError
from tests.cluster_campaign.acknowledged import Acknowledged
from tests.cluster_campaign.cluster import ALL, KAFKAS, OURS, Cluster, KafkaNode
from tests.cluster_campaign.exact import ExactProducer
from tests.cluster_campaign.faults import KINDS, drawn
from tests.cluster_campaign.load import Load
from tests.cluster_campaign.network import Network
from tests.cluster_campaign.readers import Reader
from tests.cluster_campaign.replicas import Replicas
from tests.store_tools import damages

# How long all members may take to be in sync after a step, and readers and producers to come to an end, in seconds.
_HEALED, _FINISHED = 60, 60
# How long the first acknowledgement to each producer may take then, in seconds.
_ANSWERED = 20
_HOSTS = (1, 2, 3, 101, 102, 103)


class Campaign:
    """A cluster under attack.

    Attributes:
        found: what is wrong.
        counts: faults by kind.
        gaps: for each kind the longest time without an acknowledgement in a partition, in seconds.
    """

    def __init__(self, folder, kinds, seed, *, say=print):
        self.folder, self.kinds, self.seed, self.found, self._say = folder, kinds, seed, [], say
        self.counts, self.gaps, self.records, self.unknown, self.late = Counter(), defaultdict(float), 0, Counter(), 0
        self._now = []

    def run(self, count):
        """Runs this many faults, or until something is wrong; gives what that is."""
        with Network(_HOSTS) as network:
            cluster = Cluster(self.folder, network, self.kinds)
            try:
                self._run(count, cluster, network)
            except BaseException:
                self._keep(cluster)
                raise
            cluster.close()
            if self.found:
                self._keep(cluster)
        return self.found

    def _run(self, count, cluster, network):
        cluster.start()
        known, addresses = Acknowledged(), {number: one.address for number, one in cluster.members.items()}
        load = Load(cluster.bootstrap, known, self.seed, self.folder / "librdkafka")
        exact = [ExactProducer(at, addresses, known, self.seed) for at in ALL]
        readers = [Reader(*one) for one in addresses.items()]
        replicas = Replicas(cluster, known, readers, lambda: self._tend(cluster))
        # All leaders must know that they lead: a broker of Kafka takes a producer's second batch first if the first one
        # came too early, and librdkafka then takes both for stored.
        self.found += replicas.check(_HEALED)
        with contextlib.ExitStack() as running:
            for one in (load, *exact, *readers):
                running.enter_context(one)
            deadline = time.monotonic() + _HEALED
            while not known.has_each():
                assert time.monotonic() < deadline, "a partition has no acknowledged record"
                time.sleep(0.05)
            self.found += replicas.check(_HEALED)
            steps = drawn(self.seed, count, self.kinds)
            for number, step in enumerate(steps, 1):
                if self.found:
                    break
                self._say(f"{number} of {len(steps)}: {step}")
                known.longest()
                self._step(step, cluster, network)
                begun = time.monotonic()
                self.found += replicas.check(_HEALED)
                self._look(cluster, load, *exact, *readers)
                self.found += [f"the producer {name} gets no answers any more" for name in load.stuck(_ANSWERED)]
                longest, at = known.longest()
                self._note(step, longest)
                self._say(
                    f"    in sync after {time.monotonic() - begun:.1f} s; {at} had no acknowledgement for "
                    f"{longest:.1f} s; {known.count} records, {load.unknown.total()} unknown"
                )
                with contextlib.suppress(OSError, ClusterError):
                    cluster.elect_preferred()
            if not self.found:
                for one in (load, *exact):
                    one.finish(_FINISHED)
                self._finish(cluster, readers, replicas)
                self._look(cluster, load, *exact, *readers)
        self.records, self.unknown, self.late = known.count, load.unknown, replicas.late

    def _step(self, step, cluster, network):
        """Lets the faults of a step begin and end, each at its time."""
        self._now = [KINDS[one.kind](cluster, network, one.about) for one in step.faults]
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
                self._say(f"    {said}")
        for fault in self._now:
            fault.finish()

    def _tend(self, cluster):
        """Starts again what has ended, if it may have."""
        ended = [one for one in cluster.all() if one.process.poll() is not None]
        if ended:
            cluster.forget()
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

    def _look(self, cluster, *clients):
        """What else is wrong."""
        for one in cluster.members.values():
            if trouble := one.trouble():
                self.found.append(f"member {one.number} has said: {trouble}")
        for one in clients:
            self.found += one.faults

    def _note(self, step, longest):
        for fault in step.faults:
            self.counts[fault.kind] += 1
            self.gaps[fault.kind] = max(self.gaps[fault.kind], longest)
        if len(step.faults) > 1:
            self.counts["two at once"] += 1
            self.gaps["two at once"] = max(self.gaps["two at once"], longest)

    def _finish(self, cluster, readers, replicas):
        """Lets readers come to the end, and our members end in order."""
        self.found += replicas.check(_HEALED)
        deadline = time.monotonic() + _FINISHED
        while left := [text for one in readers for text in one.left(replicas.ends)]:
            if time.monotonic() > deadline:
                self.found += left
                break
            time.sleep(0.1)
        # Once more: what was read since then.
        self.found += replicas.check(_HEALED)
        for one in cluster.members.values():
            if not isinstance(one, KafkaNode):
                if code := one.stop():
                    self.found.append(f"member {one.number} has ended with {code}")
                self.found += [f"member {one.number}: {damage}" for damage in damages(str(one.path))]

    def _keep(self, cluster):
        """Ends all, and copies the disks, which are in memory, to the folder."""
        cluster.close()
        for one in cluster.all():
            shutil.copytree(
                one.disk, self.folder / f"kept{one.number}", ignore=shutil.ignore_patterns("ballast"), symlinks=True
            )

    def figures(self):
        """What was done, in lines."""
        yield f"{self.records} records acknowledged; replicas late {self.late} times"
        yield from (f"{count:4} of unknown outcome: {why}" for why, count in sorted(self.unknown.items()))
        for kind, count in sorted(self.counts.items()):
            yield f"{count:4} {kind}: at most {self.gaps[kind]:.1f} s without an acknowledgement"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--members", default="kafka,kafka,kafka", help=f"three of {', '.join((*KAFKAS, OURS))}")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    kinds = options.members.split(",")
    if len(kinds) != 3 or not {*kinds} <= {*KAFKAS, OURS}:
        parser.error(f"--members wants three of {', '.join((*KAFKAS, OURS))}")
    folder = Path(tempfile.mkdtemp(prefix="cluster-campaign-"))
    print(f"seed {options.seed}, {options.members}, in {folder}", flush=True)
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:6.1f} {text}", flush=True)

    campaign = Campaign(folder, kinds, options.seed, say=say)
    found = campaign.run(options.faults)
    for line in campaign.figures():
        print(line)
    print(f"{time.monotonic() - begun:.0f} s, {len(found)} faults found")
    for one in found[:20]:
        print(one)
    if found:
        print(f"repeat: --members {options.members} --faults {options.faults} --seed {options.seed}; kept: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
