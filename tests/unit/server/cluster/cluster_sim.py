"""A small model of Kafka's controllers: a log with leaders, commits and snapshots, and what it says of nodes."""

import copy

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.cluster import Address
from pyspark_log.server.cluster.batches import read_batches
from pyspark_log.server.cluster.fold import Fold
from tests.metadata_tools import Scribe, batch_of, control_batch, records_of

SESSION = 9_000
NO_ID = -1
_NO_END = 1 << 60


class Entry:
    """A batch of the log, what its scribe and the image of the brokers were after it, and if a transaction is open."""

    def __init__(self, base, data, values, epoch, scribe, brokers, is_open):
        self.base, self.data, self.epoch, self.is_open, self.is_control = base, data, epoch, is_open, not values
        self.end = base + max(len(values), 1)
        self.scribe, self.brokers = scribe, brokers


class Controller:
    """One controller.

    Attributes:
        epoch, leader: what it believes; a leader that was replaced may not know it yet.
        log, high_watermark: of a leader; what it knows.
        log_start, snapshots: the first offset that is left; snapshots by end offset and epoch.
    """

    def __init__(self, number, address):
        self.number, self.address = number, address
        self.alive, self.epoch, self.leader = True, 0, NO_ID
        self.log, self.high_watermark, self.log_start, self.snapshots = [], -1, 0, {}

    @property
    def is_leader(self):
        return self.leader == self.number

    @property
    def end(self):
        return self.log[-1].end if self.log else 0


class Controllers:
    """All of them.

    Attributes:
        log: of the true leader, or of the last one.
        committed: how many entries of it are committed, for good.
        truth: the true leader; None: there is none.
        images: the image after each committed batch, by its position's offset.
    """

    def __init__(self, chance, count=3):
        self.chance = chance
        self.all = [Controller(number, Address(f"c{number}", 9093)) for number in range(count)]
        self.log, self.committed, self.truth = [], 0, None
        self._fold, self.images = Fold(), {}
        self._waiting = []  # answers that are given when a log end is committed
        self._sessions = {}  # when a broker was heard of last, as the leader has it
        self.elect(0)

    # ---- the log

    def elect(self, now):
        """A new leader: it has what is committed, and maybe some of what is not. The old one may not know."""
        chance, alive = self.chance, [one for one in self.all if one.alive]
        self.truth = None
        self._fail_waiting()
        if len(alive) <= len(self.all) // 2:
            return
        new = chance.choice(alive)
        self.log = new.log = self.log[: chance.randint(self.committed, len(self.log))]
        epoch = max(one.epoch for one in self.all) + 1
        new.epoch, new.leader, new.high_watermark = epoch, new.number, -1
        self.truth = new
        for one in alive:
            if one is not new and chance.random() < 0.7:
                one.epoch, one.leader = epoch, chance.choice([new.number, NO_ID])
        last = new.log[-1] if new.log else None
        scribe = copy.deepcopy(last.scribe) if last else Scribe(chance, (0, 3))
        brokers, is_open = (last.brokers, last.is_open) if last else ({}, False)
        base = new.end
        new.log.append(Entry(base, control_batch(base, epoch), [], epoch, scribe, brokers, is_open))
        self._settle()
        if all(entry.is_control for entry in self.log):
            self._append([m.FeatureLevelRecord("metadata.version", 30)])
        self._sessions = dict.fromkeys(brokers, now)

    def learn(self):
        """The controllers hear of the leader; one that was replaced is a follower from then on."""
        if self.truth is not None:
            for one in self.all:
                if one.alive:
                    one.epoch, one.leader = self.truth.epoch, self.truth.number

    def write(self):
        """Something else in the cluster changes."""
        leader, chance = self.truth, self.chance
        if leader is None:
            return
        is_open = leader.log[-1].is_open
        scribe = copy.deepcopy(leader.log[-1].scribe)
        values = []
        if not is_open and chance.random() < 0.1:
            scribe.begin()
            values.append(m.BeginTransactionRecord())
            is_open = True
        values += scribe.batch(leader.end + len(values))
        if is_open and chance.random() < 0.4:
            values.append(m.EndTransactionRecord())
            is_open = False
        scribe.finish()
        self._append(values, scribe=scribe, is_open=is_open)

    def _settle(self):
        """Ends a transaction that is open: it would hold back what follows."""
        if self.log[-1].is_open:
            scribe = copy.deepcopy(self.log[-1].scribe)
            scribe.abort()
            self._append([m.AbortTransactionRecord()], scribe=scribe)

    def _append(self, values, *, scribe=None, brokers=None, is_open=False):
        leader = self.truth
        last = leader.log[-1]
        base = leader.end
        data = batch_of(values, base, leader.epoch)
        brokers = last.brokers if brokers is None else brokers
        leader.log.append(Entry(base, data, values, leader.epoch, scribe or last.scribe, brokers, is_open))

    def commit(self):
        """Some of what is not committed is. A leader commits nothing of others' epochs before it does of its own."""
        leader = self.truth
        if leader is None or self.committed == len(leader.log):
            return
        count = self.chance.randint(self.committed + 1, len(leader.log))
        if leader.log[count - 1].epoch != leader.epoch:
            return
        for entry in leader.log[self.committed : count]:
            self._fold.apply(read_batches(entry.data, 0, _NO_END)[0])
            self.images[self._fold.image.position.offset] = self._fold.image
        self.committed = count
        leader.high_watermark = leader.log[count - 1].end
        for one in [one for one in self._waiting if one[0] <= leader.high_watermark]:
            self._waiting.remove(one)
            one[1]()

    def snapshot(self):
        """A controller makes a snapshot of what is committed, and may delete the log before it."""
        one = self.chance.choice(self.all)
        image, last = self._fold.image, self.log[self.committed - 1] if self.committed else None
        end = image.position.offset + 1
        if last not in one.log or self._fold.position != image.position:
            return
        data = control_batch(0) + batch_of(records_of(image), 1) + control_batch(10_000)
        one.snapshots = {**one.snapshots, (end, last.epoch): data}
        if self.chance.random() < 0.5:
            one.log_start = end
            one.snapshots = {key: kept for key, kept in one.snapshots.items() if key[0] >= end}

    @property
    def image(self):
        """The image of all that is committed."""
        return self._fold.image

    # ---- what observers ask

    def fetch(self, number, request):
        """The answer of a controller."""
        (part,) = request.topics[0].partitions
        one = self.all[number]
        of = m.FetchResponse
        error, said = self._heard(one, part.current_leader_epoch)
        answer = of.PartitionData(0, error, current_leader=of.LeaderIdAndEpoch(one.leader, one.epoch), records=b"")
        if not error:
            answer = self._fetched(one, part, answer)
        nodes = [of.NodeEndpoint(node.number, *node.address) for node in said]
        return of(responses=[of.FetchableTopicResponse("", bytes(16), [answer])], node_endpoints=nodes)

    def _heard(self, one, epoch):
        """The error for an epoch, and the controllers whose addresses are in the answer."""
        said = [self.all[one.leader]] if one.leader != NO_ID else []
        if epoch != one.epoch:
            return (ErrorCode.FENCED_LEADER_EPOCH if epoch < one.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH), said
        return (ErrorCode.NONE if one.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER), said

    def _fetched(self, one, part, answer):
        of, offset = m.FetchResponse, part.fetch_offset
        answer = answer._replace(high_watermark=one.high_watermark)
        newest = max(one.snapshots, default=None)
        if newest and (offset == 0 or offset < one.log_start):
            return answer._replace(snapshot_id=of.SnapshotId(*newest))
        before = [entry for entry in one.log if entry.end <= offset]
        expected = before[-1].epoch if before else 0
        if expected != part.last_fetched_epoch or offset > one.end or (before and before[-1].end != offset):
            same = [entry for entry in one.log if entry.epoch <= part.last_fetched_epoch]
            return answer._replace(diverging_epoch=of.EpochEndOffset(expected, same[-1].end if same else 0))
        data = b"".join(entry.data for entry in one.log if entry.base >= offset)
        most = self.chance.choice([300, 3_000, 100_000])
        whole = next((len(entry.data) for entry in one.log if entry.base >= offset), 0)
        return answer._replace(records=data[: max(most, whole)])

    def fetch_snapshot(self, number, request):
        """The answer of a controller."""
        (part,) = request.topics[0].partitions
        one, of = self.all[number], m.FetchSnapshotResponse
        error, said = self._heard(one, part.current_leader_epoch)
        data = one.snapshots.get(tuple(part.snapshot_id))
        if not error and (data is None or part.position > len(data)):
            error = ErrorCode.SNAPSHOT_NOT_FOUND if data is None else ErrorCode.POSITION_OUT_OF_RANGE
        leader = of.LeaderIdAndEpoch(one.leader, one.epoch)
        answer = of.PartitionSnapshot(0, error, of.SnapshotId(*part.snapshot_id), leader)
        if not error:
            size = self.chance.choice([50, 1_000, 1_000_000])
            piece = data[part.position : part.position + size]
            answer = answer._replace(size=len(data), position=part.position, unaligned_records=piece)
        nodes = [of.NodeEndpoint(node.number, *node.address) for node in said]
        return of(topics=[of.TopicSnapshot("", [answer])], node_endpoints=nodes)

    # ---- what nodes say

    def hear(self, number, request, now, answer):
        """Takes a registration or a heartbeat. `answer` is called with the response, now or when it is committed."""
        if self.truth is None or self.truth.number != number:
            response = m.BrokerRegistrationResponse if isinstance(request, m.BrokerRegistrationRequest) else None
            answer((response or m.BrokerHeartbeatResponse)(error_code=ErrorCode.NOT_CONTROLLER))
        elif isinstance(request, m.BrokerRegistrationRequest):
            self._register(request, now, answer)
        else:
            self._beat(request, now, answer)

    def _register(self, request, now, answer):
        of, brokers = m.BrokerRegistrationResponse, self.log[-1].brokers
        known = brokers.get(request.broker_id)
        is_same = known is not None and known.incarnation_id == request.incarnation_id
        if known is not None and not is_same and now < self._sessions.get(request.broker_id, -SESSION) + SESSION:
            answer(of(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
            return
        self._settle()
        record = m.RegisterBrokerRecord
        epoch = known.broker_epoch if is_same else self.truth.end
        made = record(
            request.broker_id, False, request.incarnation_id, epoch, fenced=known.fenced if is_same else True,
            features=[record.BrokerFeature(*one) for one in request.features], log_dirs=request.log_dirs,
        )  # fmt: skip
        self._sessions[request.broker_id] = now
        self._append([made], brokers={**brokers, request.broker_id: made})
        self._answer_when_committed(answer, of(broker_epoch=epoch))

    def _beat(self, request, now, answer):
        of, brokers = m.BrokerHeartbeatResponse, self.log[-1].brokers
        known = brokers.get(request.broker_id)
        if known is None or known.broker_epoch != request.broker_epoch:
            answer(of(error_code=ErrorCode.STALE_BROKER_EPOCH))
            return
        is_caught_up = request.current_metadata_offset >= known.broker_epoch
        fenced, leaves = known.fenced, request.want_shut_down
        if fenced and not request.want_fence and not leaves and is_caught_up:
            fenced = False
        elif not fenced and (request.want_fence or leaves):
            fenced = True
        self._sessions[request.broker_id] = now
        response = of(is_caught_up=is_caught_up, is_fenced=fenced, should_shut_down=leaves)
        if fenced == known.fenced:
            answer(response)
        else:
            self._fence(known, fenced)
            self._answer_when_committed(answer, response)

    def expire(self, now):
        """Brokers that were not heard of for long are fenced."""
        for number, known in self.log[-1].brokers.items() if self.truth else ():
            if not known.fenced and now >= self._sessions.get(number, now) + SESSION:
                self._fence(known, True)

    def unregister(self, number):
        """An administrator removes a broker."""
        if self.truth is not None and number in self.log[-1].brokers:
            self._settle()
            brokers = dict(self.log[-1].brokers)
            known = brokers.pop(number)
            self._append([m.UnregisterBrokerRecord(number, known.broker_epoch)], brokers=brokers)

    def _fence(self, known, fenced):
        self._settle()
        number = known.broker_id
        change = m.BrokerRegistrationChangeRecord(number, known.broker_epoch, 1 if fenced else -1)
        self._append([change], brokers={**self.log[-1].brokers, number: known._replace(fenced=fenced)})

    def _answer_when_committed(self, answer, response):
        failed = type(response)(error_code=ErrorCode.NOT_CONTROLLER)
        self._waiting.append((self.truth.end, lambda: answer(response), lambda: answer(failed)))

    def _fail_waiting(self):
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one[2]()
