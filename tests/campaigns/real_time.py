"""A query in Spark's real-time mode from a topic to a topic of `pylog serve`, whose driver and server are killed.

    python -m tests.campaigns real-time --kills 100 --seed 1

Numbered records are appended all the time. At last the driver is killed once more and works undisturbed. Then the
topic with `source.position.header` has each record once, and those of a source partition in their order. With `--system
kafka` it is a Kafka broker, and the driver alone is killed: the report counts what is doubled there.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict

import pyarrow as pa
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from pyspark_log import Store
from tests.campaigns import harness
from tests.kafka.kafka_tools import Broker
from tests.ports import free_ports
from tests.server_tools import HOST

_PARTITIONS = 2
_ROWS = 20


class OurServer:
    """`pylog serve`; records go in and out by the store itself."""

    words = ("marked",)
    struck = ("driver", "driver", "server")

    def __init__(self, campaign):
        self._campaign = campaign
        self.store = Store.create(campaign.folder / "store")
        self.store.create_topic("in", _PARTITIONS)
        self.store.create_topic("out", _PARTITIONS, {"source.position.header": "source"})
        [port] = free_ports(1)
        self.servers = f"{HOST}:{port}"

    def start(self):
        words = ["pylog", "--store", self.store.path, "serve", "--listen", self.servers]
        self._campaign.launch("server", words)

    def end(self):
        pass

    def append(self, values):
        self.store.append("in", pa.record_batch({"key": values, "value": values}))

    def read(self, topic):
        """The values of each partition."""
        return [
            [value.as_py().decode() for batch in self.store.read(topic, partition) for value in batch["value"]]
            for partition in range(_PARTITIONS)
        ]


class Kafkas:
    """A Kafka broker."""

    words = ()
    struck = ("driver",)

    def __init__(self, campaign):
        folder = campaign.folder / "broker"
        folder.mkdir()
        self._broker = Broker(folder)
        self._broker.start()
        self.servers = self._broker.bootstrap
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in ("in", "out")])
        admin.close()
        self._producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")

    def start(self):
        pass

    def end(self):
        self._producer.close()
        self._broker.kill()

    def append(self, values):
        for value in values:
            self._producer.send("in", key=value, value=value)
        self._producer.flush()

    def read(self, topic):
        consumer = KafkaConsumer(bootstrap_servers=self.servers, auto_offset_reset="earliest", enable_auto_commit=False)
        found = []
        for partition in range(_PARTITIONS):
            at = TopicPartition(topic, partition)
            [end] = consumer.end_offsets([at]).values()
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            values = []
            while consumer.position(at) < end:
                values += [one.value.decode() for one in consumer.poll(1000).get(at, [])]
            found.append(values)
        consumer.close()
        return found


class Campaign(harness.Campaign):
    """See above."""

    kills, tend_every = 100, 10

    @classmethod
    def arguments(cls, options):
        options.add_argument("--system", choices=("pylog", "kafka"), default="pylog")

    def prepare(self):
        self.system = {"pylog": OurServer, "kafka": Kafkas}[self.options.system](self)
        self.appended = self.doubled = 0

    def begin(self):
        self.system.start()
        self._start()

    def _start(self):
        self.launch_module("driver", "real_time_driver", self.system.servers, self.folder, *self.system.words)

    def look(self):
        self.system.append([b"%d" % (self.appended + number) for number in range(_ROWS)])
        self.appended += _ROWS

    def _works(self):
        """Whether all that is in by now has come out; looks meanwhile."""
        count = 2 * self.appended
        return self.wait(lambda: len({value for values in self.system.read("out") for value in values}) >= count)

    def pause(self):
        """Now and then it is killed in its start; else while it works, somewhere in a batch."""
        if self.random.random() > 1 / 5 and not self._works():
            raise AssertionError(f"nothing comes out: {self.log('driver')[-2000:]}")
        for _ in range(self.random.randrange(1, 12)):
            self.look()
            time.sleep(self.random.uniform(0, 0.5))

    def strike(self):
        name = self.random.choice(self.system.struck)
        if (code := self.running[name].poll()) is not None:
            raise AssertionError(f"the {name} has ended with {code}: {self.log(name)[-2000:]}")
        self.kill(name)
        self._start() if name == "driver" else self.system.start()
        return f"kills of the {name}"

    def finish(self):
        assert self._works(), self.log("driver")[-2000:]
        self.kill("driver")
        self._start()
        self.look()
        assert self._works(), self.log("driver")[-2000:]

    def check(self):
        source_of = {value: part for part, values in enumerate(self.system.read("in")) for value in values}
        times, order = Counter(), defaultdict(list)
        for partition, values in enumerate(self.system.read("out")):
            times.update(values)
            for value in dict.fromkeys(values):
                order[partition, source_of[value.partition(".")[0]]].append(float(value))
        expected = {f"{number}.{part}" for number in range(self.appended) for part in (0, 1)}
        lost = sorted(expected - times.keys(), key=float)
        self.doubled = sum(times.values()) - len(times)
        if lost or times.keys() - expected:
            yield f"{len(lost)} lost, as {lost[:5]}; strange: {sorted(times.keys() - expected)[:5]}"
        if self.doubled and self.options.system == "pylog":
            yield f"{self.doubled} doubled, as {[value for value, count in times.items() if count > 1][:5]}"
        for (partition, source), numbers in order.items():
            if numbers != sorted(numbers):
                yield f"out-{partition}: records of in-{source} are out of order"

    def figures(self):
        failed = self.log("driver").count("failed: ")
        return [f"{2 * self.appended:,} records, {self.doubled:,} doubled; {failed} times the query failed by itself"]

    def end(self):
        self.system.end()
