"""Replicas of one partition on a network that fails, under a controller that elects leaders, and what must hold.

The leaders' state machines and the epochs of logs are the product's; logs are lists, and the controller follows Kafka's
rules (ISR, eligible leader replicas, fencing). Everything is drawn from a seed: a failure names it and the step.
`python tests/unit/server/cluster/leading_explorer.py SEED STEPS` explores further than the tests do.
"""

import itertools
import sys
from collections import Counter
from typing import NamedTuple

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.cluster.image import NO_LEADER, Partition
from pyspark_log.server.cluster.leading import UNKNOWN, Fetched, LedPartition
from pyspark_log.storage.log.leader_epochs import LeaderEpochs
from tests import exploring

BROKERS = (1, 2, 3)
STEPS_OF_A_WORLD = 20_000
LAG_MAX, SESSION = 300, 400  # ms


class Fact(NamedTuple):
    """What the metadata says: the partition, and of each broker its epoch and whether it is fenced."""

    partition: Partition
    epochs: dict
    fenced: frozenset


class Controller:
    """Elects leaders, as Kafka's does."""

    def __init__(self, world):
        self.world, self.min_isr = world, world.min_isr
        self.leader, self.isr, self.elr = 1, (1, 2, 3), ()
        self.leader_epoch = self.partition_epoch = 0
        self.epochs, self.fenced, self.seen = dict.fromkeys(BROKERS, 0), set(), dict.fromkeys(BROKERS, 0)
        self._next_epoch = 1

    def fact(self):
        one = Partition(
            BROKERS, (bytes(16),) * 3, self.isr, self.elr, (), (), (), self.leader, False,
            self.leader_epoch, self.partition_epoch,
        )  # fmt: skip
        return Fact(one, dict(self.epochs), frozenset(self.fenced))

    def register(self, broker, clean):
        """A new process of a broker. After an unclean end its log may lack records that it had."""
        self.epochs[broker], self._next_epoch = self._next_epoch, self._next_epoch + 1
        self.fenced.add(broker)
        if not clean:
            self.elr = tuple(one for one in self.elr if one != broker)
        self._leave(broker, trusted=clean)
        self.seen[broker] = self.world.now

    def heartbeat(self, broker, epoch):
        if epoch != self.epochs[broker]:
            return
        self.seen[broker] = self.world.now
        if broker in self.fenced:
            self.fenced.discard(broker)
            if self.leader == NO_LEADER:
                self._elect()
            self._changed()

    def check_sessions(self):
        for broker in BROKERS:
            if broker not in self.fenced and self.world.now - self.seen[broker] > SESSION:
                self.fenced.add(broker)
                self.world.counts["sessions that ended"] += 1
                self._leave(broker, trusted=True)

    def _leave(self, broker, *, trusted):
        """Takes a broker out of the ISR. It stays eligible if the ISR is too small, and its log is trusted."""
        left = tuple(one for one in self.isr if one != broker)
        if left == self.isr and self.leader != broker:
            self._changed()
            return
        if len(left) < self.min_isr and broker in self.isr and trusted:
            self.elr = (*self.elr, broker)
        self.isr = left
        if self.leader == broker:
            self._elect()
        self._changed()

    def _elect(self):
        chosen = next((one for one in (*self.isr, *self.elr) if one not in self.fenced), NO_LEADER)
        if chosen != NO_LEADER:
            if chosen in self.elr:
                self.isr, self.elr = (chosen,), tuple(one for one in self.elr if one != chosen)
        elif self.leader == NO_LEADER:
            return
        self.leader, self.leader_epoch = chosen, self.leader_epoch + 1
        self.world.counts["elections"] += 1

    def elect_again(self):
        """The same leader gets a new epoch, as at the end of a reassignment."""
        if self.leader != NO_LEADER and not self.world.calm:
            self.leader_epoch += 1
            self._changed()

    def _changed(self):
        self.partition_epoch += 1
        if len(self.isr) >= self.min_isr:
            self.elr = ()
        self.world.publish(self.fact())

    def alter(self, broker, epoch, leader_epoch, partition_epoch, isr):
        """AlterPartition: its answer."""
        now = (self.leader_epoch, self.isr, self.partition_epoch)
        if epoch != self.epochs[broker] or leader_epoch != self.leader_epoch or self.leader != broker:
            return (ErrorCode.FENCED_LEADER_EPOCH, *now)
        if partition_epoch != self.partition_epoch:
            return (ErrorCode.INVALID_UPDATE_VERSION, *now)
        for one, known in isr:
            if one in self.fenced or known not in (UNKNOWN, self.epochs[one]):
                return (ErrorCode.INELIGIBLE_REPLICA, *now)
        wanted = tuple(one for one, _ in isr)
        if len(wanted) < self.min_isr:
            self.elr = (*self.elr, *(one for one in self.isr if one not in wanted and one not in self.elr))
        self.isr = wanted
        self._changed()
        self.world.counts["changes of the ISR"] += 1
        return (ErrorCode.NONE, self.leader_epoch, self.isr, self.partition_epoch)


class Broker:
    """A broker: what its disk has, and what its process knows."""

    def __init__(self, world, number):
        self.world, self.number = world, number
        self.log, self.epochs, self.mark = [], LeaderEpochs(), 0
        self.alive, self.life = True, 0
        self._begin(0)

    def _begin(self, epoch):
        self.life += 1
        self.epoch, self.fact, self.led, self.copies, self.waits = epoch, None, None, 0, []
        self.since = UNKNOWN  # the epoch from which on it leads without a break
        self._proposing = self._fetching = False

    # ---- its life

    def crash(self, lost):
        """Ends the process; a power loss takes the last records, which were not synced."""
        self.alive, self.clean = False, False
        if lost:
            self._truncate(max(len(self.log) - lost, 0))
            self.mark = min(self.mark, len(self.log))

    def restart(self):
        self.alive = True
        self.world.controller.register(self.number, clean=not self.lost_power)
        self._begin(self.world.controller.epochs[self.number])
        self.take(self.world.controller.fact())

    def _truncate(self, end):
        del self.log[end:]
        self.epochs.cut_end(end)

    # ---- what the metadata says

    def take(self, fact):
        if not self.alive:
            return
        before, self.fact = self.fact, fact
        one = fact.partition
        is_new = before is None or before.partition.leader_epoch != one.leader_epoch
        # What an earlier process has led, this one does not.
        mine = one.leader == self.number and fact.epochs[self.number] == self.epoch
        if not mine:
            self.led = None
        elif is_new or self.led is None:
            last = self.epochs.of(len(self.log) - 1)
            assert one.leader_epoch > last or not self.log, f"epoch {one.leader_epoch} after {last}"
            if one.leader_epoch == self.world.controller.leader_epoch:
                self.world.check_leader(self.number)
            self.epochs.assign(one.leader_epoch, len(self.log))
            self.since = one.leader_epoch if self.led is None else self.since
            self.led = LedPartition(self.number, one, len(self.log), LAG_MAX, self.world.now)
        else:
            self.led.update(one)
        if is_new:
            self.copies, self._fetching = self.copies + 1, False
        self._raise()

    def _eligible(self, replica, epoch):
        return replica not in self.fact.fenced and epoch in (UNKNOWN, self.fact.epochs[replica])

    def _raise(self):
        if self.led is None:
            return
        mark = self.led.high_watermark(len(self.log), self.world.now, self.world.min_isr, self._eligible)
        self.mark = max(self.mark, mark)
        done = [one for one in self.waits if one[0] < self.since or one[1] < self.mark]
        self.waits = [one for one in self.waits if one not in done]
        for epoch, offset, value in done:
            if epoch >= self.since and not self.led.is_under(self.world.min_isr):
                self.world.counts["acknowledged in a later epoch"] += epoch != self.led.leader_epoch
                self.world.acknowledge(offset, value)

    def propose(self):
        if not self.alive or self.led is None or self._proposing:
            return
        led, drops = self.led, self.world.chance.random() < 0.3
        isr = led.propose(len(self.log), self.mark, self.world.now, self._eligible, drops=drops)
        if isr is None:
            return
        self._proposing, life, epoch = True, self.life, self.epoch
        rows = [(one, epoch if one == self.number else led.broker_epoch(one)) for one in isr]
        sent = (self.number, epoch, led.leader_epoch, led.partition_epoch, rows)

        def answered(answer):
            if self.life != life or not self.alive:
                return
            self._proposing = False
            if answer is None:
                led.failed()
            else:
                led.answered(*answer)
                self._raise()

        self.world.ask(self.number, 0, lambda: self.world.controller.alter(*sent), answered)

    # ---- records

    def produce(self, value):
        led = self.led
        if not self.alive or led is None or led.is_under(self.world.min_isr):
            return
        self.log.append((led.leader_epoch, value))
        self.waits.append((led.leader_epoch, len(self.log) - 1, value))
        self._raise()

    def fetch(self):
        """Asks the leader for more, as a follower, once at a time."""
        if not self.alive or self.fact is None or self._fetching:
            return
        one = self.fact.partition
        if one.leader in (NO_LEADER, self.number):
            return
        life, copy, end = self.life, self.copies, len(self.log)
        sent = (self.number, self.epoch, one.leader_epoch, end, self.epochs.of(end - 1))
        self._fetching = True

        def answered(answer):
            # A copy that has ended takes nothing.
            if self.alive and (self.life, self.copies) == (life, copy):
                self._fetching = False
                if answer is not None:
                    self._copy(*answer)

        self.world.ask(self.number, one.leader, lambda: self.world.brokers[one.leader].serve(*sent), answered)

    def serve(self, replica, broker_epoch, leader_epoch, offset, last_epoch):
        """A fetch of a follower: diverging epoch, records, high watermark; None: an error."""
        led = self.led
        if led is None or leader_epoch != led.leader_epoch:
            return None
        if last_epoch > UNKNOWN:
            end = self.epochs.end_of(last_epoch, len(self.log))
            if end.epoch < last_epoch or end.end_offset < offset:
                return end, (), 0
        if offset > len(self.log):
            return None
        if not led.fetched(Fetched(replica, broker_epoch, offset, 0), len(self.log), self.world.now):
            return None
        self._raise()
        most = offset + self.world.chance.randint(1, 5)
        return None, tuple(self.log[offset:most]), self.mark

    def _copy(self, diverging, records, mark):
        if diverging is not None:
            own = self.epochs.end_of(diverging.epoch, len(self.log))
            if own.epoch < 0:
                agreed = min(diverging.end_offset, len(self.log))
            else:
                is_same = own.epoch == diverging.epoch
                agreed = min(diverging.end_offset, own.end_offset) if is_same else own.end_offset
            assert agreed >= self.mark or self.world.may_lose, "a follower truncates what is committed"
            self._truncate(agreed)
            self.mark = min(self.mark, agreed)
            self.world.counts["truncations"] += 1
            return
        # As append_copied: an epoch in which this one has led, and written nothing, is one of no record.
        self.epochs.cut_end(len(self.log))
        for epoch, value in records:
            self.epochs.assign(epoch, len(self.log))
            self.log.append((epoch, value))
        self.mark = max(self.mark, min(mark, len(self.log)))


class World(exploring.World):
    """A cluster that is driven by chance.

    Attributes:
        acknowledged: values by offsets.
        seen: what a consumer has read.
        may_lose: whether power losses are drawn; then eligible leader replicas are what keeps records.
    """

    def __init__(self, seed):
        super().__init__(seed)
        self.counts = Counter()
        self.min_isr, self.may_lose = 2, self.chance.random() < 0.5
        self.acknowledged, self.seen, self._cut = {}, {}, set()
        self.controller = Controller(self)
        self.brokers = {number: Broker(self, number) for number in BROKERS}
        for broker in self.brokers.values():
            broker.lost_power = False
            broker.take(self.controller.fact())
        self._values = itertools.count()
        for number in BROKERS:
            self._repeat(60, lambda number=number: self._beat(number))
            self._repeat(15, lambda number=number: self.brokers[number].fetch())
            self._repeat(40, lambda number=number: self.brokers[number].propose())
        self._repeat(10, self._produce)
        self._repeat(20, self._consume)
        self._repeat(50, self.controller.check_sessions)
        self._repeat(150, self._hurt)
        self._repeat(1500, self.controller.elect_again)

    # ---- the scheduler and the network

    def _repeat(self, every, action):
        def again():
            action()
            self.after(self.chance.randint(1, 2 * every), again)

        self.after(self.chance.randint(0, every), again)

    def _passes(self, source, target):
        return (source, target) not in self._cut and (self.calm or self.chance.random() > 0.02)

    def ask(self, source, target, serve, answered):
        """A request and its answer; None: there is none, after a while."""
        delay = self.chance.choice([1, 2, 5, 30])

        def arrive():
            there = target == 0 or self.brokers[target].alive
            answer = serve() if there and self._passes(source, target) else None
            back = answer if self._passes(target, source) else None
            self.after(self.chance.choice([1, 2, 5, 30]) if back is not None else 80, lambda: answered(back))

        self.after(delay, arrive)

    def publish(self, fact):
        """Brings a change of the metadata to all brokers, to each in order."""
        for number in BROKERS:
            self._bring(number, fact)

    def _bring(self, number, fact):
        def arrive():
            if not self._passes(0, number):
                self.after(30, arrive)
                return
            known = self.brokers[number].fact
            if known is None or fact.partition.partition_epoch >= known.partition.partition_epoch:
                self.brokers[number].take(fact)

        self.after(self.chance.choice([1, 3, 10, 50]), arrive)

    def _beat(self, number):
        broker = self.brokers[number]
        if broker.alive and self._passes(number, 0):
            self.controller.heartbeat(number, broker.epoch)

    # ---- what happens to it

    def _hurt(self):
        if self.calm:
            return
        chance, what = self.chance, self.chance.random()
        down = [one for one in self.brokers.values() if not one.alive]
        if what < 0.25 and len(down) < 2:
            broker = self.brokers[chance.choice(BROKERS)]
            if broker.alive:
                # More at once, or before all are in sync again, is more than min.insync.replicas=2 is meant for.
                is_safe = self.may_lose and set(self.controller.isr) == set(BROKERS)
                broker.lost_power = is_safe and not down and chance.random() < 0.4
                broker.crash(chance.randint(1, 6) if broker.lost_power else 0)
                self.counts["power losses" if broker.lost_power else "crashes"] += 1
        elif what < 0.6 and down:
            chance.choice(down).restart()
        elif what < 0.8:
            self._cut.add((chance.choice([0, *BROKERS]), chance.choice([0, *BROKERS])))
            self.counts["cuts"] += 1
        else:
            self._cut.clear()

    def _produce(self):
        broker = self.brokers[self.chance.choice(BROKERS)]
        if not self.calm:
            broker.produce(next(self._values))

    def _consume(self):
        broker = self.brokers[self.chance.choice(BROKERS)]
        if broker.alive:
            for offset in range(max(broker.mark - 10, 0), broker.mark):
                known = self.seen.setdefault(offset, broker.log[offset])
                assert known == broker.log[offset], f"offset {offset} was {known}, and is {broker.log[offset]}"

    # ---- what must hold

    def acknowledge(self, offset, value):
        assert self.acknowledged.setdefault(offset, value) == value, f"offset {offset} is acknowledged twice"
        self.counts["acknowledged"] += 1

    def check_leader(self, number):
        """A leader that begins to lead has all that was acknowledged."""
        log = self.brokers[number].log
        for offset in list(self.acknowledged)[-50:]:
            assert offset < len(log), f"leader {number} lacks offset {offset} of {len(log)}"
            assert log[offset][1] == self.acknowledged[offset], f"leader {number} has another record at {offset}"

    def explore(self, steps):
        for _ in range(steps):
            self.do_next()
        self._settle()

    def _settle(self):
        """Without any more faults all replicas come to the same log, with all that was acknowledged."""
        self.calm = True
        self._cut.clear()
        for broker in self.brokers.values():
            if not broker.alive:
                broker.restart()
        end = self.now + 60_000
        while not self._is_settled():
            assert self.now < end, f"it does not settle: {self.controller.fact().partition}"
            self.do_next()
        log = self.brokers[1].log
        for offset, value in self.acknowledged.items():
            assert log[offset][1] == value, f"offset {offset} has another record in the end"
        self._consume()

    def _is_settled(self):
        logs = [broker.log for broker in self.brokers.values()]
        marks = {broker.mark for broker in self.brokers.values()}
        return set(self.controller.isr) == set(BROKERS) and logs[0] == logs[1] == logs[2] and marks == {len(logs[0])}


def explore(seed, steps):
    """Explores worlds from a seed on, for about as many steps; what has happened."""
    counts = Counter()
    for number in range(max(steps // STEPS_OF_A_WORLD, 1)):
        counts += exploring.explore(World, seed + number, min(steps, STEPS_OF_A_WORLD)).counts
    return counts


if __name__ == "__main__":
    print(explore(int(sys.argv[1]), int(sys.argv[2])))
