"""The same transactions at a real Kafka and at `pylog serve`, drawn by chance: the answers must be equal."""

import random
import time

import pytest

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.storage.record.end_txn_marker import decode_end_txn_marker
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.record.walk import read_pairs
from tests import requests as r
from tests.amounts import one_in
from tests.server_tools import Peer, served
from tests.unit.record_tools import Record, build
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kafka")

SCRIPTS, STEPS = 12, 60
TOPICS = ("x", "y")
_NOW = int(time.time() * 1000)
# Both sides answer so while the last transaction is not complete, for a time of their own; then they are asked again.
_AGAIN = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
          ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}  # fmt: skip


class Side:
    """A server, and the producers that a script has there.

    Attributes:
        peer: a connection to it.
        producers: id and epoch of each producer of the script.
    """

    def __init__(self, peer, script):
        self.peer, self.prefix = peer, f"s{script}-"
        self.producers = dict.fromkeys("pqr", (999, 0))
        self._ids = {}

    def named(self, producer_id):
        """A producer id as the number by which the script saw it first."""
        return -1 if producer_id < 0 else self._ids.setdefault(producer_id, len(self._ids))

    def ask(self, request, version, errors):
        """The answer, once it is not that the client is to ask again; `errors`: what it has of them."""

        def answered():
            answer = self.peer.ask(request, version)
            return None if _AGAIN & set(errors(answer)) else answer

        return wait_until(answered, f"{request} is not to be asked again")

    # ---- a producer's requests; each gives what is compared

    def init(self, producer, name, version, timeout, knows):
        known = self.producers[producer] if knows and version >= 3 else (-1, -1)
        request = m.InitProducerIdRequest(self.prefix + name, timeout, *known)
        answer = self.ask(request, version, lambda one: [one.error_code])
        if not answer.error_code:
            self.producers[producer] = answer.producer_id, answer.producer_epoch
        return answer.error_code, self.named(answer.producer_id), answer.producer_epoch

    def add(self, producer, name, version, parts):
        topics = {self.prefix + topic: numbers for topic, numbers in parts}
        request = r.add_partitions(self.prefix + name, self.producers[producer], topics)

        def errors(answer):
            found = answer.results_by_topic_v3_and_below
            return [part.partition_error_code for topic in found for part in topic.results_by_partition]

        return sorted(errors(self.ask(request, version, errors)))

    def add_offsets(self, producer, name, version, group):
        request = m.AddOffsetsToTxnRequest(self.prefix + name, *self.producers[producer], self.prefix + group)
        return self.ask(request, version, lambda one: [one.error_code]).error_code

    def produce(self, producer, name, version, topic, value, sequence):
        producer_id, epoch = self.producers[producer]
        batch = build(
            [Record(None, value, _NOW)], "none", transactional=True, producer_id=producer_id, producer_epoch=epoch,
            base_sequence=sequence,
        )  # fmt: skip
        request = r.produce(self.prefix + topic, (0, batch), transactional_id=self.prefix + name)

        def errors(answer):
            return [part.error_code for topic in answer.responses for part in topic.partition_responses]

        answer = self.ask(request, version, errors)
        [part] = [part for topic in answer.responses for part in topic.partition_responses]
        return part.error_code, part.base_offset

    def commit_offset(self, producer, name, version, group, offset):
        request = r.commit_in_transaction(
            self.prefix + name, self.prefix + group, self.producers[producer], f"{self.prefix}x", offset
        )

        def errors(answer):
            return [part.error_code for topic in answer.topics for part in topic.partitions]

        return errors(self.ask(request, version, errors))

    def end(self, producer, name, version, commit):
        request = m.EndTxnRequest(self.prefix + name, *self.producers[producer], commit)
        answer = self.ask(request, version, lambda one: [one.error_code])
        self.described(name)  # Kafka answers before it has written the markers.
        if version >= 5 and not answer.error_code:
            self.producers[producer] = answer.producer_id, answer.producer_epoch
        return answer.error_code, self.named(answer.producer_id), answer.producer_epoch

    # ---- what there is

    def described(self, name):

        def completed():
            request = m.DescribeTransactionsRequest([self.prefix + name])
            [one] = self.peer.ask(request, 0).transaction_states
            return None if one.transaction_state.startswith("Prepare") else one

        one = wait_until(completed, f"the transaction of {name} is complete")
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in one.topics)
        mine = [(topic, parts if topic.startswith(self.prefix) else []) for topic, parts in topics]
        return one.error_code, one.transaction_state, one.transaction_timeout_ms, one.producer_epoch, mine

    def offset(self, group, stable):
        request = r.committed_of(self.prefix + group, f"{self.prefix}x", 0, stable=stable)
        answer = self.ask(request, 8, lambda one: [one.groups[0].error_code])
        [part] = answer.groups[0].topics[0].partitions
        return part.error_code, part.committed_offset

    def log(self, topic):
        """What a consumer of committed records gets: ends, aborted transactions, and all batches."""
        request = r.fetch(self.prefix + topic, 0, isolation_level=1)
        [found] = self.ask(request, 11, lambda one: [one.responses[0].partitions[0].error_code]).responses[0].partitions
        records, batches = bytes(found.records or b""), []
        for header in scan(records, 0, len(records)):
            data = records[header.position : header.end]
            marker = decode_end_txn_marker(data, header) if header.is_control else None
            pairs = read_pairs(records, header.position, header.end, from_offset=0, until_offset=1 << 40).pairs
            batches.append((
                header.base_offset, header.last_offset_delta, header.attributes, self.named(header.producer_id),
                header.producer_epoch, header.base_sequence, marker and marker.commit, [value for _, value, _ in pairs],
            ))  # fmt: skip
        # Kafka adds later ones, by a guess of where the records end.
        aborted = sorted(
            (self.named(one.producer_id), one.first_offset)
            for one in found.aborted_transactions or ()
            if one.first_offset < found.last_stable_offset
        )
        return found.high_watermark, found.last_stable_offset, aborted, batches

    def producers_of(self, topic):
        request = m.DescribeProducersRequest([m.DescribeProducersRequest.TopicRequest(self.prefix + topic, [0])])
        [part] = self.peer.ask(request, 0).topics[0].partitions
        return sorted(
            (self.named(one.producer_id), one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
            for one in part.active_producers
        )


class Script:
    """Requests of three producers with two transactional ids, most of which make sense."""

    def __init__(self, seed, sides):
        self.chance, self.sides = random.Random(seed), sides
        self.names = {"p": "one", "q": "one", "r": "two"}
        self.sequences, self.values, self.history = {}, 0, []

    def both(self, call, *arguments):
        """The answer, which is that of both sides."""
        kafka, ours = (getattr(side, call)(*arguments) for side in self.sides)
        self.history.append(f"{call} {arguments}: {ours}")
        assert ours == kafka, f"Kafka's answer is {kafka}:\n" + "\n".join(self.history)
        return ours

    def run(self):
        for topic in TOPICS:
            for side in self.sides:
                side.peer.ask(r.create_topic(side.prefix + topic), 5)
                wait_for_leader(side.peer, side.prefix + topic)
        for producer in self.names:
            self.init(producer)
        for _ in range(STEPS):
            steps = [self.produce, self.end, self.init, self.add, self.offsets, self.look]
            (step,) = self.chance.choices(steps, [10, 6, 2, 3, 3, 2])
            step(self.chance.choice(list(self.names)))
        self.look("p")

    def init(self, producer):
        version, timeout = self.chance.choice([0, 2, 4, 5]), self.chance.choice([60_000] * 6 + [0, 2_000_000])
        self.both("init", producer, self.names[producer], version, timeout, self.chance.random() < 0.3)
        # As a client does that begins again; but its old one may continue.
        self.sequences.pop(producer, None)

    def add(self, producer):
        parts = self.chance.choice([[("x", [0])], [("x", [0]), ("y", [0])], [("y", [0])], [("y", [0, 9])]])
        self.both("add", producer, self.names[producer], self.chance.choice([0, 2, 3]), parts)

    def produce(self, producer):
        topic, version = self.chance.choice(TOPICS), self.chance.choice([9, 11, 12])
        if version < 12 and self.chance.random() < 0.8:
            self.both("add", producer, self.names[producer], 3, [(topic, [0])])
        self.values += 1
        ids = tuple(side.producers[producer] for side in self.sides)
        place = (ids, topic)
        sequence = self.sequences.get(place, 0)
        error, _ = self.both("produce", producer, self.names[producer], version, topic, b"%d" % self.values, sequence)
        if not error:
            self.sequences[place] = sequence + 1

    def offsets(self, producer):
        version, group = self.chance.choice([3, 4, 5]), self.chance.choice(["g", "h"])
        if version < 5 and self.chance.random() < 0.8:
            self.both("add_offsets", producer, self.names[producer], self.chance.choice([0, 3]), group)
        self.values += 1
        self.both("commit_offset", producer, self.names[producer], version, group, self.values)

    def end(self, producer):
        self.both("end", producer, self.names[producer], self.chance.choice([1, 3, 4, 5]), self.chance.random() < 0.6)

    def look(self, _producer):
        for name in ("one", "two", "three"):
            self.both("described", name)
        for group in ("g", "h"):
            for stable in (True, False):
                self.both("offset", group, stable)
        for topic in TOPICS:
            self.both("log", topic)
            self.both("producers_of", topic)


def wait_for_leader(peer, topic):
    wait_until(lambda: not peer.ask(r.metadata(topic), 7).topics[0].error_code, f"{topic} has a leader")


@pytest.fixture(scope="module")
def peers(broker, tmp_path_factory):
    """Connections to Kafka, which has coordinators by then, and to ours."""
    broker.prepare()
    folder = tmp_path_factory.mktemp("server")
    Store.create(folder / "store", {"offsets.topic.num.partitions": "1"}).close()
    with served(folder / "store", folder) as server, Peer(broker) as kafka, Peer(server) as ours:
        yield kafka, ours


@pytest.mark.parametrize("seed", one_in(3, range(SCRIPTS)))
def test_scripts(peers, seed):
    Script(seed, [Side(peer, seed) for peer in peers]).run()
