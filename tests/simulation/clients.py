"""Clients of the simulation, which do what Kafka's do: each is a task that asks servers, and reports to the history."""

import contextlib

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests import requests as r
from tests.simulation.batches import decode, encode
from tests.simulation.scheduler import Clock, Process
from tests.simulation.servers import ask

TOPIC, PARTITIONS = "t", 3
#: After these a client tries again, at another server; None: it got no answer.
AGAIN = {
    None, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER,
}  # fmt: skip
# After these another one has its transactional id, or its transaction has taken too long.
_FENCED = {
    ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE,
}  # fmt: skip


class OverError(Exception):
    """The client ends, or gives up what it does."""


class Client:
    """What all share."""

    def __init__(self, house, name):
        self.house, self.name, self.world, self.history = house, name, house.world, house.history
        self.chance = house.world.chance
        self.process = Process(name, Clock(house.world))
        self.host = self.chance.choice(house.hosts)
        self.world.spawn(self.process, "client", self._run)

    def _run(self):
        while not self.house.is_over:
            with contextlib.suppress(OverError):
                self.work()

    def pause(self, longest):
        """Waits; longer while the house is quiet."""
        self.world.sleep(max(self.chance.uniform(0, longest), self.house.quiet_until - self.world.now))

    def ask(self, request, version, code_of, *, tries=1000, again=AGAIN):
        """The answer that is no reason to try again, and how often there was none. OverError."""
        unknown = 0
        for _ in range(tries):
            process = self.host.process
            response = ask(self.world, self.host, request, version)
            self.answered_by = process and process.name
            code = None if response is None else ErrorCode(code_of(response))
            if code not in again:
                return response, code, unknown
            unknown += code in (None, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT,
                                ErrorCode.COORDINATOR_NOT_AVAILABLE)  # fmt: skip
            self.host = self.chance.choice(self.house.hosts)
            self.pause(1)
            if self.house.is_over and self.house.has_given_up:
                break
        raise OverError

    def refused(self, what, code):
        self.history.fault(f"{self.name}: {what} was refused: {code!r}")
        raise OverError

    def produce(self, partition, data, transactional_id, version):
        request = r.produce(TOPIC, (partition, data), transactional_id=transactional_id)
        return self.ask(request, version, lambda answer: _part(answer).error_code)


def _part(answer):
    [topic] = answer.responses
    [part] = topic.partition_responses
    return part


class Writer(Client):
    """An idempotent producer, which sends a batch again until it is acknowledged, or gives up."""

    lives = 0

    def work(self):
        self.lives += 1
        name, sequences, sent = f"{self.name}.{self.lives}", [0] * PARTITIONS, []
        answer, _, _ = self.ask(m.InitProducerIdRequest(None, 60_000), 4, lambda answer: answer.error_code)
        producer = answer.producer_id, answer.producer_epoch
        while not self.house.is_over:
            write, partition = self.history.begin(name), self.chance.randrange(PARTITIONS)
            values = [self.history.value(write, partition) for _ in range(self.chance.choice([1, 1, 1, 2, 5, 20]))]
            data = encode(values, producer, sequences[partition], self.house.time_ms())
            tries = 3 if self.chance.random() < 0.05 else 1000
            answer, code = self._send(partition, data, tries)
            if code:
                self.refused(values, code)
            sequences[partition] += len(values)
            for number, value in enumerate(values):
                self.history.place(partition, answer.base_offset + number, value)
            self.history.end(write, "there")
            sent.append((partition, data))
            if self.chance.random() < 0.05:
                # One that was late on its way.
                self.host = self.chance.choice(self.house.hosts)
                ask(self.world, self.host, r.produce(TOPIC, self.chance.choice(sent[-9:])), 11)
            self.pause(self.house.pace)

    def _send(self, partition, data, tries):
        request = r.produce(TOPIC, (partition, data))
        answer, code, _ = self.ask(request, 11, lambda answer: _part(answer).error_code, tries=tries)
        return _part(answer), code


class PlainWriter(Client):
    """A producer without an id, which sends each batch once: it is there once, or not at all."""

    sent = 0

    def work(self):
        self.sent += 1
        # One that got no answer may come later than the next one.
        write, partition = self.history.begin(f"{self.name}.{self.sent}"), self.chance.randrange(PARTITIONS)
        value = self.history.value(write, partition)
        data = encode([value], (-1, -1), -1, self.house.time_ms())
        self.host = self.chance.choice(self.house.hosts)
        answer = ask(self.world, self.host, r.produce(TOPIC, (partition, data)), 11)
        if answer is not None and not _part(answer).error_code:
            self.history.place(partition, _part(answer).base_offset, value)
            self.history.end(write, "there")
        self.pause(self.house.pace)


class Transactor(Client):
    """A transactional producer, which aborts now and then, or dies; several share an id, and fence each other."""

    lives = 0

    def __init__(self, house, name, transactional_id, protocol):
        self.transactional_id, self.each = transactional_id, protocol == 2
        super().__init__(house, name)

    def work(self):
        self.lives += 1
        timeout = self.chance.choice([20_000, 60_000])
        answer, code, _ = self.ask(
            m.InitProducerIdRequest(self.transactional_id, timeout), 5 if self.each else 4,
            lambda answer: answer.error_code,
        )  # fmt: skip
        if code:
            self.refused("its begin", code)
        self.producer, self.sequences, self.unknown = (answer.producer_id, answer.producer_epoch), [0] * PARTITIONS, 0
        # In the first protocol a request that was late could belong to the next transaction.
        try:
            while not self.house.is_over and (self.each or not self.unknown):
                self._transaction()
                self.pause(3 * self.house.pace)
        finally:
            # The other one that has the id gets some time.
            self.pause(self.chance.choice([0, 10, 100]) * self.house.pace)

    def _transaction(self):
        write, chance = self.history.begin(f"tx-{self.name}.{self.lives}"), self.chance
        partitions = chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS))
        has_ended = False
        try:
            if not self.each:
                request = r.add_partitions(self.transactional_id, self.producer, {TOPIC: partitions})
                self._do(request, 3, lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0]
                         .partition_error_code)  # fmt: skip
            for partition in [*partitions, chance.choice(partitions)]:
                values = [self.history.value(write, partition) for _ in range(chance.choice([1, 1, 3]))]
                self._append(partition, values)
                self.world.sleep(chance.uniform(0, self.house.pace))
            if chance.random() < 0.5:
                self._commit_offset(write)
            fate = chance.random()
            if fate < 0.1:
                raise OverError  # It dies.
            if fate < 0.15:
                self.world.sleep(chance.uniform(10, 90))  # It hangs.
            has_ended = fate > 0.25
            self._end(write, commit=has_ended)
        finally:
            if not has_ended and write.outcome == "unknown":
                self.history.end(write, "absent")

    def _do(self, request, version, code_of):
        answer, code, unknown = self.ask(request, version, code_of)
        self.unknown += unknown
        if code in _FENCED:
            raise OverError
        if code:
            self.refused(type(request).__name__, code)
        return answer

    def _append(self, partition, values):
        data = encode(values, self.producer, self.sequences[partition], self.house.time_ms(), in_transaction=True)
        request = r.produce(TOPIC, (partition, data), transactional_id=self.transactional_id)
        self._do(request, 12 if self.each else 11, lambda answer: _part(answer).error_code)
        self.sequences[partition] += len(values)

    def _commit_offset(self, write):
        group = f"of-{self.transactional_id}"
        offset = self.house.next_offset(group)
        if not self.each:
            request = m.AddOffsetsToTxnRequest(self.transactional_id, *self.producer, group)
            self._do(request, 3, lambda answer: answer.error_code)
        request = r.commit_in_transaction(self.transactional_id, group, self.producer, TOPIC, offset)
        self._do(request, 5 if self.each else 3, lambda answer: answer.topics[0].partitions[0].error_code)
        write.offsets[group] = offset

    def _end(self, write, *, commit):
        request = m.EndTxnRequest(self.transactional_id, *self.producer, committed=commit)
        answer, code, unknown = self.ask(request, 5 if self.each else 4, lambda answer: answer.error_code)
        self.unknown += unknown
        if code in _FENCED:
            if not unknown:
                self.history.end(write, "absent")
            raise OverError
        if code:
            self.refused("an end", code)
        self.history.end(write, "there" if commit else "absent")
        for group, offset in write.offsets.items() if commit else ():
            self.history.committed(group, offset, "")
        if self.each:
            self.producer, self.sequences = (answer.producer_id, answer.producer_epoch), [0] * PARTITIONS


class Committer(Client):
    """Commits offsets of a group of its own, one larger than the other, and asks for them."""

    def work(self):
        offset = self.house.next_offset(self.name)
        request = r.commit(self.name, TOPIC, offset)
        _, code, _ = self.ask(request, 8, lambda answer: answer.topics[0].partitions[0].error_code)
        if code:
            self.refused("a commit", code)
        self.history.committed(self.name, offset, self.answered_by)
        self.history.counts["commits"] += 1
        groups = self.house.groups()
        for _ in range(self.chance.randrange(4)):
            # It may be one that was replaced, and has not noticed.
            self.host = self.chance.choice(self.house.hosts)
            self.fetch(self.chance.choice(groups))
            self.pause(2 * self.house.pace)
        self.pause(4 * self.house.pace)

    def fetch(self, group):
        """The committed offset of a group, or, as GROUP/PARTITION, of another partition than the first; -1: none."""
        asked, (name, _, partition) = self.world.now, group.partition("/")
        answer, code, _ = self.ask(r.committed(name, TOPIC, int(partition or 0)), 7, lambda answer: answer.error_code)
        if code:
            self.refused("a question for an offset", code)
        offset = answer.topics[0].partitions[0].committed_offset
        self.history.fetched(group, offset, asked, self.answered_by)
        return offset


class Reader(Client):
    """Reads all partitions at one server for a while, and begins somewhere else then."""

    def work(self):
        chance = self.chance
        known = [self.history.known(partition) for partition in range(PARTITIONS)]
        positions = [chance.choice([0, end, chance.randint(0, end)]) for end in known]
        self.host = chance.choice(self.house.hosts)
        isolation, process, due = chance.randrange(2), self.host.process, set()
        for _ in range(chance.randint(1, 20)):
            self.pause(self.house.pace)
            ends = None if self.host.process is not process else self.poll(positions, isolation)
            if self.house.is_over or ends is None:
                break
            if due and ends == positions:
                self._check_whole(due, positions)
            due = self.seen

    def poll(self, positions, isolation):
        """Reads on, and moves the positions; the ends of the partitions, None: one was not read."""
        of = m.FetchRequest
        parts = [of.FetchPartition(number, -1, offset, -1, -1, 1 << 20) for number, offset in enumerate(positions)]
        topics = [of.FetchTopic(TOPIC, r.NO_ID, parts)]
        request = of(max_wait_ms=500, min_bytes=1, max_bytes=1 << 24, isolation_level=isolation, topics=topics)
        answer = ask(self.world, self.host, request, 11)
        self.seen = set()
        if answer is None or answer.error_code:
            return None
        ends = {}
        for part in answer.responses[0].partitions:
            number, code = part.partition_index, ErrorCode(part.error_code)
            if code and code not in AGAIN:
                self.refused(f"a fetch of partition {number} from {positions[number]}", code)
            if code:
                continue
            for offset, value in decode(part.records or b""):
                if offset < positions[number]:
                    continue
                if offset > positions[number]:
                    self.history.fault(f"{self.name}: partition {number} has no offset {positions[number]}")
                self.history.place(number, offset, value)
                self.seen.add(self.history.write_of(value))
                positions[number] = offset + 1
            ends[number] = part.high_watermark
        return [ends[number] for number in range(PARTITIONS)] if len(ends) == PARTITIONS else None

    def _check_whole(self, due, positions):
        places = self.history.places
        for write in due:
            if not write.name.startswith("tx"):
                continue
            missing = [
                value
                for value, number in write.values.items()
                if value not in places or places[value][1] >= positions[number]
            ]
            if missing:
                self.history.fault(f"{self.name} at {self.host.process.name}: of a transaction {missing} is missing")
