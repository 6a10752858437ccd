"""A consumer as Kafka's Java client is one: it joins, syncs, sends heartbeats, and joins again after errors."""

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from pyspark_log.server.coordinator import Client

GROUP = "g"
FATAL = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
RESET = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


class SimClient:
    """One process.

    Attributes:
        member_id, generation: what it believes to be.
        owned: the partitions of its assignment; None: it has none now.
        step: counts what it does; answers to earlier steps are dropped.
    """

    def __init__(self, world, name, instance):
        chance = world.chance
        self.world, self.name, self.instance = world, name, instance
        self.version = chance.choice([5, 7, 8, 9]) if instance else chance.choice([0, 1, 3, 4, 6, 9])
        self.session, self.rebalance = chance.choice([2_000, 4_000, 8_000]), chance.choice([3_000, 9_000, 15_000])
        self.protocols = chance.choice([["range"], ["range", "sticky"], ["sticky", "range"]])
        self.metadata = b"0"
        self.member_id, self.generation, self.owned = "", -1, None
        self.alive, self.step = True, 0

    def then(self, action):
        """The action, unless the client has done something else by then, or is dead."""
        self.step += 1
        step = self.step

        def act(*given):
            if self.alive and self.step == step:
                self.step += 1
                action(*given)

        return act

    def stop(self):
        """It is killed; or it gives up."""
        if self.alive:
            self.alive = False
            self.world.clients.remove(self)
            self.world.gone.append(self)

    # ---- joining

    def join(self):
        self.owned = None
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name, self.metadata) for name in self.protocols]
        request = JoinGroupRequest(
            GROUP, self.session, self.rebalance, self.member_id, self.instance, "consumer", protocols
        )
        answered = self.then(self.joined)
        retry = self.retry_of(self.step)

        def call(token):
            return self.world.coordinator.join(token, request, self.version, Client(self.name, "/h"), self.world.now)

        self.world.send("join", call, answered, retry)
        self.world.after(self.patience(), retry)

    def patience(self):
        """When it gives a request up: after a rebalance, as clients should; some are not so patient."""
        hurries = not self.world.calm and self.world.chance.random() < 0.1
        return self.world.chance.randrange(2_000) if hurries else self.rebalance + 5_000

    def retry_of(self, step):
        def retry():
            if self.alive and self.step == step:
                self.rejoin()

        return retry

    def rejoin(self):
        """Joins after a little while."""
        self.world.after(self.world.chance.randrange(1, 100), self.then(self.join))

    def joined(self, response):
        if response is None:
            self.rejoin()
            return
        error = response.error_code
        if error in FATAL:
            self.stop()
        elif error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif error in RESET:
            self.member_id, self.generation = "", -1
            self.rejoin()
        elif error != ErrorCode.NONE:
            self.rejoin()
        else:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.sync(response)
            self.beat_later(self.generation)

    def sync(self, joined):
        given = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            given = self.world.rules.new_assignment(joined)
        names = joined.protocol_type if self.version >= 7 else None, joined.protocol_name
        version = 5 if self.version >= 7 else 3
        structs = [SyncGroupRequest.SyncGroupRequestAssignment(*one) for one in given]
        request = SyncGroupRequest(GROUP, self.generation, self.member_id, self.instance, *names, structs)
        answered = self.then(self.synced)
        retry = self.retry_of(self.step)
        self.world.send(
            "sync", lambda token: self.world.coordinator.sync(token, request, version), answered, retry
        )  # fmt: skip
        self.world.after(self.patience(), retry)

    def synced(self, response):
        if response is None:
            self.rejoin()
        elif response.error_code == ErrorCode.NONE:
            self.owned = self.world.rules.assigned(self, response.assignment)
        else:
            self.failed(response.error_code)

    def failed(self, error):
        """A request was refused."""
        if error in FATAL:
            self.stop()
            return
        if error in RESET:
            self.member_id = self.member_id if error == ErrorCode.ILLEGAL_GENERATION else ""
            self.generation = -1
        self.rejoin()

    # ---- staying

    def beat_later(self, generation):
        def beat():
            if self.alive and self.generation == generation:
                self.beat(generation)
                self.beat_later(generation)

        self.world.after(self.session // 3, beat)

    def beat(self, generation):
        request = HeartbeatRequest(GROUP, generation, self.member_id, self.instance)

        def arrive():
            error = self.world.coordinator.heartbeat(request, self.world.now).error_code
            self.world.after(self.world.chance.randrange(1, 20), lambda: answered(error))

        def answered(error):
            # While it joins or syncs, the answer to that says the same.
            if self.alive and self.generation == generation and self.owned is not None and error:
                if error == ErrorCode.REBALANCE_IN_PROGRESS:
                    self.commit()
                self.failed(error)

        self.world.after(self.world.chance.randrange(1, 20), arrive)

    def commit(self):
        """Commits offsets as the member that it takes itself for."""
        if self.generation >= 0:
            error = self.world.coordinator.check_commit(
                GROUP, self.generation, self.member_id, self.instance, 9, self.world.now
            )
            self.world.rules.check_commit(self.generation, self.member_id, error)
            if self.alive and self.owned is not None and error not in (
                ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
            ):  # fmt: skip
                self.failed(error)

    def change(self):
        """It subscribes to other topics, or prefers another assignor, or sees a change of topics."""
        if self.owned is not None:
            if self.world.chance.random() < 0.6:
                self.metadata = str(self.world.chance.randrange(5)).encode()
            if len(self.protocols) > 1 and self.world.chance.random() < 0.3:
                self.protocols = self.protocols[::-1]
            self.rejoin()

    def leave(self):
        """It is closed. Static members do not leave."""
        if self.instance is None and self.member_id:
            self.world.send("leave", self.call_of_leave([(self.member_id, None)]))
        self.stop()

    def call_of_leave(self, members):
        request = LeaveGroupRequest(GROUP, members=[LeaveGroupRequest.MemberIdentity(*one) for one in members])
        return lambda token: self.world.coordinator.leave(token, request, 5, self.world.now)
