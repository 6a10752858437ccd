"""What the tests of `pylog mirror` need: writers to a cluster, mirrors as processes, and what both sides have."""

import contextlib
import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from typing import NamedTuple

import confluent_kafka
from kafka_tools import PATIENCE
from written import Row, read

from pyspark_log import Store
from pyspark_log.errors import PylogError
from pyspark_log.storage.catalog.kafka_files import CLEANER, read_offsets
from pyspark_log.storage.record import headers_in
from pyspark_log.types import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from tests import requests as r
from tests.store_tools import faults
from tests.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)


# --- a cluster's records ----------------------------------------------------------------------------


class Message(NamedTuple):
    """What is sent to a partition; with Kafka's time of the call if it has none."""

    partition: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 0


def messages(seed, count, partitions=1, size=500, keys=None):
    """Messages by chance: with and without keys and headers, some with no value; of about `size` bytes.

    `keys`: how many keys there are; each message has one then. Values can be printed, and no codec makes them less than
    half as large.
    """
    chance = random.Random(seed)
    headers = ((), (), (("h", b"1"), ("h", None)), (("größe", b""), ("other", b"%d" % seed)))
    made = []
    for number in range(count):
        key = (
            chance.choice([None, b"", b"key %d" % (number % 7)]) if keys is None else b"key %d" % chance.randrange(keys)
        )
        value = None if key is not None and chance.random() < 0.05 else chance.randbytes(chance.randrange(size)).hex()
        made.append(Message(chance.randrange(partitions), value and value.encode(), key, chance.choice(headers)))
    return made


class Writer:
    """librdkafka's producer, whose messages must all arrive.

    Attributes:
        producer: itself, for transactions.
    """

    def __init__(self, cluster, **options):
        """`options` are librdkafka's, with underscores in place of dots."""
        settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, "batch.num.messages": 20}
        settings |= {name.replace("_", "."): value for name, value in options.items()}
        self.producer = confluent_kafka.Producer(settings)
        self._failed = []
        if "transactional_id" in options:
            self.producer.init_transactions(PATIENCE)

    def send(self, topic, sent):
        """Sends messages; returns before they arrive."""
        for one in sent:
            while True:
                try:
                    self.producer.produce(
                        topic,
                        one.value,
                        one.key,
                        partition=one.partition,
                        on_delivery=self._note,
                        timestamp=one.timestamp,
                        headers=list(one.headers),
                    )
                    break
                except BufferError:
                    self.producer.poll(0.1)
        self.producer.poll(0)

    def flush(self):
        """Returns when all have arrived."""
        assert self.producer.flush(PATIENCE) == 0, "messages do not arrive"
        assert self._failed == []

    def transact(self, topic, sent, *, commit):
        """Sends messages as one transaction."""
        self.producer.begin_transaction()
        self.send(topic, sent)
        self.flush()
        if commit:
            self.producer.commit_transaction(PATIENCE)
        else:
            self.producer.abort_transaction(PATIENCE)

    def _note(self, error, _message):
        if error is not None:
            self._failed.append(error)


def create(cluster, topic, assignment=((1, 2),), **configs):
    """Makes a topic of small segments that keeps its records; names of configs have underscores in place of dots."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    cluster.create_topic(topic, assignment=assignment, configs={"segment.bytes": 2**20, "retention.ms": -1} | given)


def write(cluster, topic, sent, **options):
    """Sends messages by a writer of their own; returns when they are there."""
    writer = Writer(cluster, **options)
    writer.send(topic, sent)
    writer.flush()


def end_of(cluster, topic, partition=0, level=READ_UNCOMMITTED, time_ms=-1):
    """Where a partition ends for consumers of that isolation level, or, with -2 as the time, where it begins."""
    asked = r.list_offsets(topic, time_ms, partition=partition, isolation_level=LEVELS.index(level))

    def answer():
        # A new leader does not know it at once.
        leader = cluster.leader_of(topic, partition)
        found = leader and cluster.ask(leader, asked, 7).topics[0].partitions[0]
        return found if found and found.error_code == 0 else None

    return wait_until(answer, f"the leader of {topic}-{partition} knows where it ends").offset


def start_of(cluster, topic, partition=0):
    """The log start of a partition."""
    return end_of(cluster, topic, partition, time_ms=-2)


def settle(cluster, *topics):
    """Waits until all transactions in topics have their markers: a producer gets its answer before."""
    for topic in topics:
        for partition in range(cluster.partitions_of(topic)):
            wait_until(
                lambda at=(topic, partition): len({end_of(cluster, *at, level) for level in LEVELS}) == 1,
                f"no transaction in {topic}-{partition} is open",
            )


def consumed(cluster, topic, level=READ_UNCOMMITTED):
    """What a consumer of Kafka gets of each partition: all records, and the offset after them, as `written.read`."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
        "isolation.level": level, "enable.partition.eof": True, "fetch.wait.max.ms": 10,
    })  # fmt: skip
    rows, ends = [[] for _ in range(cluster.partitions_of(topic))], {}
    deadline = time.monotonic() + PATIENCE
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, number, begin) for number in range(len(rows))])
    try:
        while len(ends) < len(rows):
            assert time.monotonic() < deadline, f"only the ends {ends} of {topic} are found"
            for one in consumer.consume(1000, 0.05):
                if one.error() is None:
                    headers = tuple(one.headers() or ())
                    row = Row(one.offset(), one.timestamp()[1], one.key(), one.value(), headers)
                    rows[one.partition()].append(row)
                elif one.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ends[one.partition()] = one.offset()
                else:
                    raise confluent_kafka.KafkaException(one.error())
    finally:
        consumer.close()
    return [(found, ends[number]) for number, found in enumerate(rows)]


def cleaned(cluster, topic):
    """Waits until the leader's cleaner has done all that it can before the next append."""
    folder = of_leader(cluster, topic)

    def done():
        active = max(folder.glob("*.log"))
        with contextlib.suppress(FileNotFoundError):
            known = read_offsets(str(folder.parent / CLEANER)).get(TopicPartition(topic, 0), 0)
            return known >= int(active.stem)
        return False

    wait_until(done, f"{topic} is cleaned")


# --- files ------------------------------------------------------------------------------------------


def _files(folder):
    """The bytes of each segment file of a partition, by its name, in order."""
    while True:
        # Retention, or a topic's deletion, may delete one meanwhile.
        with contextlib.suppress(FileNotFoundError):
            return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def segments(folder):
    """The hash of each segment file of a partition, by its name. Kafka also has empty ones: the next may be there."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in _files(folder).items() if data}


def whole(folder):
    """The bytes of all segments, one after the other."""
    return b"".join(_files(folder).values())


def batches(folder):
    """The batches of a partition: header and bytes."""
    found = []
    for data in _files(folder).values():
        found += [(one, data[one.position : one.end]) for one in headers_in(data, 0, len(data))]
    return found


def of_leader(cluster, topic, partition=0):
    """The folder of a partition at its leader."""
    return cluster.folder_of(cluster.leader_of(topic, partition), topic, partition)


def of_mirror(path, topic, partition=0):
    """The folder of a partition in a store."""
    return path / "data" / f"{topic}-{partition}"


def assert_mirrored(cluster, path, topic, *, same_segments=True):
    """The files of a store are the leaders', and consumers of Kafka get what the store has.

    `same_segments`: also where a segment begins; without it, the bytes of all of them, one after the other.
    """
    store = Store.open(path)
    assert store.describe_topic(topic).partitions == cluster.partitions_of(topic)
    for partition in range(cluster.partitions_of(topic)):
        ours, theirs = of_mirror(path, topic, partition), of_leader(cluster, topic, partition)
        if same_segments:
            assert segments(ours) == segments(theirs), f"{topic}-{partition}"
        assert whole(ours) == whole(theirs), f"{topic}-{partition}"
        assert store.earliest_offset(topic, partition) == start_of(cluster, topic, partition)
    for level in LEVELS:
        for partition, got in enumerate(consumed(cluster, topic, level)):
            assert read(store, topic, partition, level) == got, f"{topic}-{partition}, {level}"


# --- mirrors ----------------------------------------------------------------------------------------


class Mirror:
    """`pylog mirror` as a process."""

    def __init__(self, cluster, path, folder, *arguments, bootstrap=None):
        """Starts it; `folder` is for what it says."""
        self._output, self._errors = folder / "mirrored", folder / "mirror-log"
        command = [sys.executable, "-m", "pyspark_log.cli.start", "--store", path, "mirror"]
        command += [f"kafka://{bootstrap or cluster.bootstrap}", *arguments]
        with open(self._output, "wb") as output, open(self._errors, "ab") as errors:
            self._begin = errors.tell()
            self.process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=errors)

    def wait(self):
        """Its exit status, when it has ended by itself."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the mirror does not end: {self.log()}") from None

    def stop(self, number=signal.SIGTERM):
        """Ends it in order; its exit status."""
        self.process.send_signal(number)
        return self.wait()

    def kill(self):
        """Ends it at once, if it runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def kill_after(self, seconds):
        """Ends it at once, after that time; it must not have ended before."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            raise AssertionError(f"the mirror has ended: {self.log()}")

    def is_running(self):
        """Whether it has not ended."""
        return self.process.poll() is None

    def output(self):
        """What it has printed."""
        return self._output.read_text()

    def log(self):
        """What it has said on standard error."""
        return self._errors.read_bytes()[self._begin :].decode()

    def wait_for(self, text):
        """Returns when it has said something."""
        wait_until(lambda: text in self.log() or not self.is_running(), f"the mirror says {text!r}")
        assert text in self.log(), self.log()


def mirror_once(cluster, path, folder, *arguments, status=0, bootstrap=None):
    """Mirrors until now; what was done for each partition, by its name."""
    run = Mirror(cluster, path, folder, *arguments, "--until-now", "--json", bootstrap=bootstrap)
    assert run.wait() == status, run.log()
    assert "Traceback" not in run.log(), run.log()
    return {f"{one['topic']}-{one['partition']}": one for one in json.loads(run.output())}, run.log()


def mirror_and_compare(cluster, path, folder, topic):
    """Mirrors a topic until now: the store has the same, and no fault."""
    mirror_once(cluster, path, folder, "--topics", topic)
    assert_mirrored(cluster, path, topic)
    assert faults(path) == []


@contextlib.contextmanager
def mirroring(cluster, path, folder, *arguments, bootstrap=None):
    """A mirror that runs on; it is stopped at the end of the block, and must end well."""
    run = Mirror(cluster, path, folder, *arguments, bootstrap=bootstrap)
    try:
        yield run
        assert run.is_running(), run.log()
        assert run.stop() == 0, run.log()
        assert "Traceback" not in run.log(), run.log()
    finally:
        run.kill()


def wait_for_end(cluster, path, *topics):
    """Returns when a store has the records of topics up to where they end now."""
    ends = {
        (topic, number): end_of(cluster, topic, number)
        for topic in topics
        for number in range(cluster.partitions_of(topic))
    }

    wait_until(lambda: all(has(path, *at, end) for at, end in ends.items()), f"{path} has {ends}")


def has(path, topic, partition, end):
    """Whether a store has the records before an offset."""
    with contextlib.suppress(PylogError):  # There is no such store, topic or partition yet.
        return Store.open(path).latest_offset(topic, partition) >= end
    return False
