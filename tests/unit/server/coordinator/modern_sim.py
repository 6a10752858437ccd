"""A client of a group of KIP-848 that does what Kafka's does, in the simulated world of the explorer."""

from modern_rig import Owned
from modern_rules import GROUP

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ConsumerGroupHeartbeatRequest
from pyspark_log.server.coordinator import Client

INTERVAL, PATIENCE, REBALANCE = 1_000, 3_000, 20_000
OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
SUBSCRIPTIONS = [(["t"], ""), (["u"], ""), (["t", "u"], ""), ([], "t|u"), (["t"], "u"), (["later"], "")]


class ModernClient:
    """A process.

    Attributes:
        owned: the partitions that it reads, pairs of topic and number.
        next: those that it is to have, while it gives others up; None: it does not.
    """

    def __init__(self, world, member_id, instance):
        self.world, self.member_id, self.instance = world, member_id, instance
        self.epoch, self.owned, self.next = 0, set(), None
        self.alive, self.is_acknowledged, self.sends_all = True, True, True
        self.names, self.regex = world.chance.choice(SUBSCRIPTIONS)
        self.number = 0  # of its last request

    def beat(self):
        """Sends a heartbeat, if it is time for one. A client has one request at a time."""
        if not self.alive:
            return
        self.number += 1
        number, everything = self.number, self.sends_all or self.epoch == 0
        # While it gives partitions up it does not say what it has, as that is not what it will have.
        says = self.next is None and (everything or not self.is_acknowledged)
        request = ConsumerGroupHeartbeatRequest(
            GROUP, self.member_id, self.epoch, self.instance, None, REBALANCE if everything else -1,
            list(self.names) if everything else None, self.regex if everything else None, None,
            self._partitions() if says or self.epoch == 0 else None,
        )  # fmt: skip
        self.sends_all = self.next is not None and self.sends_all
        if says:
            self.is_acknowledged = True
        coordinator = self.world
        client = Client("c", "/127.0.0.1")
        self.world.send(
            lambda token: coordinator.coordinator.modern_heartbeat(
                token, request, 1, client, coordinator.topics, coordinator.now
            ),
            lambda response: self.alive and self.number == number and self.answered(response),
            lambda: self.number == number,
        )
        self.world.after(PATIENCE, lambda: self.number == number and self.again())

    def _partitions(self):
        topics = sorted({topic for topic, _ in self.owned})
        return [Owned(one, sorted(number for topic, number in self.owned if topic == one)) for one in topics]

    def again(self):
        """No answer came, or a passing error: it says everything."""
        self.sends_all, self.is_acknowledged = True, False
        self.beat()

    def answered(self, response):
        self.number += 1
        error = response.error_code
        if error in OUT:
            self.epoch, self.owned, self.next = 0, set(), None
            self.again()
        elif error in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            self._later(INTERVAL, self.again)
        elif error == ErrorCode.FENCED_INSTANCE_ID:
            self.stop()
        elif error:
            self._later(100, self.again)
        else:
            self.world.rules.check_epoch(self, response)
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self._reconcile(response.assignment)
            self._later(INTERVAL if self.is_acknowledged else 1, self.beat)

    def _later(self, delay, action):
        number = self.number
        self.world.after(delay, lambda: self.alive and self.number == number and action())

    def _reconcile(self, assignment):
        wanted = {(one.topic_id, number) for one in assignment.topic_partitions for number in one.partitions}
        if wanted == self.owned and self.next is None:
            return
        self.next = wanted
        slow = 30_000 if not self.world.calm and self.world.chance.random() < 0.02 else 500
        self.world.after(self.world.chance.randrange(1, slow), lambda: self._reconciled(wanted))

    def _reconciled(self, wanted):
        if self.alive and self.next is wanted:
            self.owned, self.next, self.is_acknowledged = wanted, None, False
            self._later(1, self.beat)

    def subscribe(self):
        """It reads something else."""
        self.names, self.regex = self.world.chance.choice(SUBSCRIPTIONS)
        self.sends_all = True

    def commit(self):
        """Commits an offset of a partition that it reads."""
        names = self.world.topics.names()
        for topic, number in sorted(self.owned):
            error = self.world.coordinator.check_commit(
                GROUP,
                self.epoch,
                self.member_id,
                self.instance,
                10,
                self.world.now,
                partitions=[(names[topic], number)],
            )
            self.world.rules.check_commit(self, (topic, number), error)

    def leave(self, epoch):
        request = ConsumerGroupHeartbeatRequest(GROUP, self.member_id, epoch, self.instance)
        world, client = self.world, Client("c", "/127.0.0.1")
        self.stop()
        world.send(
            lambda token: world.coordinator.modern_heartbeat(token, request, 1, client, world.topics, world.now),
            lambda _: None,
        )

    def stop(self):
        self.alive = False
        if self in self.world.clients:
            self.world.clients.remove(self)
