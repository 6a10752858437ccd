"""Nodes of a cluster on a network that fails, under controllers that are replaced, and what must hold all the time.

Everything is drawn from a seed. `python tests/unit/server/cluster/cluster_explorer.py SEED EVENTS` explores further
than the tests do; a failure names the seed and the event.
"""

from collections import Counter

from cluster_sim import Controllers

from pyspark_log.kafka import messages as m
from pyspark_log.server.cluster import NodeConfig, Observer, ObserverConfig, Registration, State
from pyspark_log.server.cluster.errors import RegistrationError
from pyspark_log.server.cluster.features import SUPPORTED
from pyspark_log.server.cluster.image import START, FeatureRange
from pyspark_log.server.cluster.registration import NO_EPOCH
from tests import exploring
from tests.replica_changes import replica_changes
from tests.replica_changes import replicas_of as all_replicas_of

EVENTS_OF_A_WORLD = 5_000
NODES = (1, 2)  # among the brokers that the scribe gives replicas to
#: Longer than any session, request, or pause between attempts, in ms.
LONG = 60_000
# What the scribe makes of features is not what this is about.
KNOWN = SUPPORTED | dict.fromkeys(("transaction.version", "share.version", "other.version"), FeatureRange(0, 9))


class SimNode:
    """A process of a node: what its driver does, and what it has seen.

    Attributes:
        held: the replicas that it has, by what changed so far.
    """

    def __init__(self, world, number, incarnation, *, previous_epoch, stays_fenced):
        chance = world.chance
        self.world, self.number, self.incarnation, self.stays_fenced = world, number, incarnation, stays_fenced
        known = chance.sample(world.controllers.all, chance.randint(1, 3))
        self.observer = Observer(
            ObserverConfig(tuple(one.address for one in known), node_id=number, max_bytes=chance.choice([500, 1 << 20]))
        )
        self.registration = Registration(
            NodeConfig(
                number, "cluster", incarnation, (), (incarnation,), None, previous_epoch, KNOWN, stays_fenced,
            )
        )  # fmt: skip
        self.alive, self.is_ready, self.held, self.epochs = True, False, {}, set()
        self._wake = None

    def run(self):
        """Sends what is to be sent now, and wakes up when there is more."""
        if not self.alive:
            return
        now = self.world.now
        send = self.observer.poll(now)
        if send is not None:
            self.world.send(self, self.observer, send, send.to)
        try:
            send = self.registration.poll(now)
        except RegistrationError:
            self.world.rules.check_given_up(self)
            self.stop()
            return
        if send is not None:
            self.world.rules.check_request(self, send.request)
            self.world.send(self, self.registration, send, self.observer.leader)
        deadlines = [self.observer.next_deadline(), self.registration.next_deadline()]
        due = max(min(one for one in deadlines if one is not None), now + 1)
        if self._wake is None or due < self._wake or self._wake <= now:
            self._wake = due
            self.world.after(due - now, self.run)

    def answered(self, machine, number, response):
        """Takes an answer."""
        if not self.alive:
            return
        if machine is self.observer:
            before = self.observer.image
            change = self.observer.answered(number, response, self.world.now)
            if change is not None:
                self.world.rules.check_change(self, before, change)
            self.registration.follow(self.observer.image, self.observer.is_current)
        else:
            was = self.registration.epoch
            self.registration.answered(number, response, self.world.now)
            if self.registration.epoch not in (was, NO_EPOCH):
                self.epochs.add(self.registration.epoch)
        self.run()

    def failed(self, machine, number, why):
        """Takes that there is no answer."""
        if self.alive:
            machine.failed(number, why, self.world.now)
            self.run()

    def stop(self):
        """The process is gone."""
        self.alive = False


class Rules:
    """What must hold."""

    def __init__(self, world):
        self.world, self.counts = world, Counter()

    def check_change(self, node, before, change):
        """An image is one that the controllers have agreed on, and follows from the last one."""
        world, image = self.world, change.after
        if change.before is not before or image is not node.observer.image:
            world.fail("a change does not begin where the last one has ended")
        if image.position.offset < before.position.offset:
            world.fail(f"an image goes back from {before.position} to {image.position}")
        expected = world.controllers.images.get(image.position.offset)
        if image != START and image.position.offset >= 0 and image != expected:
            world.fail(f"the image at {image.position} is not that of the controllers: {image} != {expected}")
        for one in replica_changes(change, node.number):
            key = one.topic_id, one.number
            if node.held.get(key) != one.before:
                world.fail(f"{one} does not begin with what the node has")
            node.held[key] = one.after
            if one.after is None:
                del node.held[key]
        if node.held != {(one.topic_id, one.number): one.partition for one in all_replicas_of(image, node.number)}:
            world.fail("the node's replicas are not those of the image")
        self.counts["changes"] += 1

    def check_request(self, node, request):
        """A node says what is so, and does not ask to be unfenced before its time."""
        offset = node.observer.image.position.offset
        if isinstance(request, m.BrokerRegistrationRequest):
            self.counts["registrations"] += 1
            if request.incarnation_id != node.incarnation or (
                request.previous_broker_epoch != NO_EPOCH and node.epochs
            ):
                self.world.fail(f"a registration says {request}")
            return
        self.counts["heartbeats"] += 1
        if request.broker_epoch not in node.epochs or request.current_metadata_offset > offset:
            self.world.fail(f"a heartbeat says {request}, with {node.epochs} and offset {offset}")
        may = node.is_ready and not node.stays_fenced and offset >= request.broker_epoch
        if not request.want_fence and not may:
            self.world.fail(f"{request} asks to be unfenced too soon")
        self.counts["unfencing"] += not request.want_fence

    def check_given_up(self, node):
        """Only a node whose id has another process, or that has no controllers, gives up."""
        others = [one for one in self.world.nodes if one.number == node.number and one is not node]
        if not others and self.world.calm:
            self.world.fail("a node has given up that nothing was in the way of")
        self.counts["given up"] += 1

    def check_settled(self):
        """All nodes that run know everything, and are what they are to be."""
        controllers = self.world.controllers
        for node in self.world.nodes:
            if not node.alive:
                continue
            registration = node.registration
            if node.observer.image != controllers.image or not node.observer.is_current or node.observer.trouble:
                self.world.fail(f"node {node.number} is at {node.observer.image.position}: {node.observer.trouble}")
            if registration.state is State.STOPPED:
                continue
            own = controllers.image.brokers.get(node.number)
            if own is None or (own.incarnation_id, own.epoch) != (node.incarnation, registration.epoch):
                self.world.fail(f"node {node.number} has epoch {registration.epoch}, and the controllers {own}")
            if own.fenced != node.stays_fenced or registration.is_fenced != node.stays_fenced:
                self.world.fail(f"node {node.number} is fenced: {own.fenced}, {registration.trouble}")
        self.counts["worlds"] += 1


class World(exploring.World):
    """The controllers, some nodes, and the network between them."""

    def __init__(self, seed):
        super().__init__(seed)
        self.controllers = Controllers(self.chance)
        self.rules = Rules(self)
        self.nodes = []
        self._tick()

    # ---- time and network

    def _tick(self):
        """The controllers commit, and look for brokers that are silent."""
        if self.calm or self.chance.random() < 0.7:
            self.controllers.commit()
        self.controllers.expire(self.now)
        self.after(self.chance.randrange(20, 200), self._tick)

    def send(self, node, machine, send, address):
        """A request and its answer may each be late, be lost, or come twice."""
        of = {one.address: one for one in self.controllers.all}.get(address)
        if of is None or not of.alive:
            self.after(self._latency(), lambda: node.failed(machine, send.number, "refused"))
            return

        def back(response):
            for _ in range(self._copies()):
                self.after(self._latency(), lambda: node.answered(machine, send.number, response))

        def deliver():
            if not of.alive:
                self.after(self._latency(), lambda: node.failed(machine, send.number, "closed"))
            elif isinstance(send.request, m.FetchRequest):
                response = self.controllers.fetch(of.number, send.request)
                (part,) = response.responses[0].partitions
                is_idle = not part.records and not part.error_code and part.snapshot_id.end_offset < 0
                self.after(send.request.max_wait_ms if is_idle else 0, lambda: back(response))
            elif isinstance(send.request, m.FetchSnapshotRequest):
                back(self.controllers.fetch_snapshot(of.number, send.request))
            else:
                self.controllers.hear(of.number, send.request, self.now, back)

        counts = self.rules.counts
        counts["snapshot parts"] += isinstance(send.request, m.FetchSnapshotRequest)
        counts["asked a leader that was replaced"] += of.is_leader and of is not self.controllers.truth
        for _ in range(self._copies()):
            self.after(self._latency(), deliver)

    def _copies(self):
        if self.calm:
            return 1
        return self.chance.choices([0, 1, 2], [0.05, 0.92, 0.03])[0]

    def _latency(self):
        if not self.calm and self.chance.random() < 0.05:
            return self.chance.randrange(10_000)
        return self.chance.randrange(1, 30)

    # ---- what happens

    def explore(self, events):
        """Lets things happen until there were so many events; then it lets them settle."""
        self.drive(self._actions(), events)
        for one in self.controllers.all:
            one.alive = True
        self.controllers.elect(self.now)
        self.controllers.learn()
        self.calm = True
        for number in NODES:
            # Of two processes with one id, one gives up in the end; here the older one ends.
            running = [one for one in self.nodes if one.number == number and one.alive]
            for node in running[:-1]:
                node.stop()
            for node in running[-1:]:
                self._make_ready(node)
        self.run(self.now + LONG)
        self.rules.check_settled()

    def _actions(self):
        return {
            self.nothing: 20, self.controllers.write: 40, self.controllers.snapshot: 6, self._elect: 4,
            self.controllers.learn: 6, self._kill_controller: 3, self._start_controller: 6, self._start: 10,
            self._kill: 3, self._ready: 12, self._shut_down: 2, self._unregister: 1, self._lag: 2,
        }  # fmt: skip

    def _elect(self):
        self.controllers.elect(self.now)
        self.rules.counts["elections"] += self.controllers.truth is not None

    def _kill_controller(self):
        one = self.chance.choice(self.controllers.all)
        one.alive = False
        if one is self.controllers.truth:
            self._elect()

    def _start_controller(self):
        dead = [one for one in self.controllers.all if not one.alive]
        if dead:
            one = self.chance.choice(dead)
            one.alive, one.leader = True, -1
        if self.controllers.truth is None:
            self._elect()

    def _start(self):
        number = self.chance.choice(NODES)
        running = [one for one in self.nodes if one.number == number and one.alive]
        if running and self.chance.random() < 0.9:
            return
        gone = [one for one in self.nodes if one.number == number]
        clean = gone and gone[-1].registration.state is State.STOPPED
        self.nodes.append(
            SimNode(
                self, number, next(self._numbers).to_bytes(16, "big"), stays_fenced=self.chance.random() < 0.2,
                previous_epoch=gone[-1].registration.epoch if clean else NO_EPOCH,
            )
        )  # fmt: skip
        self.nodes[-1].run()

    def _one(self):
        running = [one for one in self.nodes if one.alive]
        return self.chance.choice(running) if running else None

    def _kill(self):
        if node := self._one():
            node.stop()

    def _ready(self):
        if node := self._one():
            self._make_ready(node)

    def _make_ready(self, node):
        node.is_ready = True
        node.registration.be_ready()
        node.run()

    def _shut_down(self):
        if node := self._one():
            node.registration.shut_down()
            node.run()

    def _unregister(self):
        self.controllers.unregister(self.chance.choice(NODES))

    def _lag(self):
        """A process is frozen for longer than a session: it takes nothing, and what was due is done late."""
        if node := self._one():
            run, answered, failed = node.run, node.answered, node.failed
            until = self.now + 15_000

            def later(action):
                return lambda *given: (
                    action(*given) if self.now >= until else self.after(until - self.now, lambda: action(*given))
                )

            node.run, node.answered, node.failed = later(run), later(answered), later(failed)


if __name__ == "__main__":
    exploring.main(World, EVENTS_OF_A_WORLD)
