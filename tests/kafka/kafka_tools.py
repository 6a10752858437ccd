"""Kafka itself: its command-line classes, and its processes, from the jars that `make kafka-jars` fetches."""

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests.ports import HOST, free_ports
from tests.quick_java import made_at_exit, quick_start
from tests.server_tools import Peer
from tests.spark.java import java_version

FOLDER = Path(__file__).parents[2] / ".kafka"
#: Spark's connector to Kafka, with what it needs beside Spark.
SPARK_JARS = FOLDER / "spark-jars"
#: The folder of Java's own classes of Avro and Protobuf, in `FOLDER`.
SCHEMAS = "schemas-jars"
#: The folders of each version of Kafka, in `FOLDER`.
JARS = {"4.3.1": "jars", "3.9.1": "jars-3.9"}
NEWEST, OLDER = JARS
#: How long a broker may take to start or to stop, in seconds, on a machine that has other things to do.
PATIENCE = 240

_STARTED = "Kafka Server started"
#: Settings of a node that starts quickly and does soon what tests wait for.
QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    # A member that a test leaves stays, however slow the machine is.
    "group.consumer.max.session.timeout.ms": 3_600_000,
    "group.consumer.session.timeout.ms": 3_600_000,
    # The indexes that are written to are made this large, and mapped.
    "log.index.size.max.bytes": 65536,
    "log.cleaner.dedupe.buffer.size": 2097152,
    # Tests do not wait for what is usually done in seconds or minutes.
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 1000,
    "log.cleaner.backoff.ms": 200,
    "num.network.threads": 1,
    "num.io.threads": 2,
}
#: Settings of a cluster in which a broker that is gone is noticed within seconds, and leaders move for that alone, or
#: when a test says so.
FAILOVER = {
    "broker.session.timeout.ms": 6000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 6000,
    "replica.fetch.wait.max.ms": 100,
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.interval.ms": 1000,
}
#: Settings of a cluster in which no test ends a broker: none is lost because the machine is slow.
STEADY = {"broker.session.timeout.ms": 60_000, "replica.lag.time.max.ms": 60_000}
#: How a cluster with nodes of both versions is formatted: its controllers may use what the older Kafka knows.
SHARED_VERSION = ("--release-version", "3.9-IV0")


def missing(version=NEWEST):
    """Why a version of Kafka cannot be run here; "" if it can."""
    return _missing(f"Kafka {version}", ".stamp" if version == NEWEST else f".stamp-{version}")


def missing_schemas():
    """Likewise, of Java's classes of Avro and Protobuf."""
    return _missing("Avro and Protobuf", ".stamp-schemas")


def _missing(what, stamp):
    if java_version() < 17:
        return "Kafka needs Java 17 or later: set JAVA_HOME, or put java on the PATH"
    return "" if (FOLDER / stamp).exists() else f"The jars of {what} are not here: make kafka-jars"


def archive(jars):
    """Where the classes of such a folder are that a broker loads, if `archive_classes` was called once."""
    return FOLDER / f"{jars}.jsa"


def archive_classes(version):
    """Makes the archive of the classes that a broker loads."""
    with tempfile.TemporaryDirectory() as folder, made_at_exit(archive(JARS[version])) as options:
        port, controller_port = free_ports(2)
        settings = node_settings(1, {1: controller_port}, {"PLAINTEXT": port}) | QUICK
        node = Node(folder, settings, version=version, java=options)
        node.format(new_cluster_id())
        node.start()
        node.stop()


def command(main, *arguments, memory="128m", options=(), java=None, jars="jars"):
    """The command that runs one of Kafka's classes; `jars` is the folder that has it.

    `options` are Java's, beside those for a quick start, and `java` those in place of these.
    """
    options = (*options, *(quick_start(archive(jars)) if java is None else java))
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else "java"
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [program, f"-Xmx{memory}", level, *options, "-cp", f"{FOLDER}/{jars}/*", main, *map(str, arguments)]


def run(main, *arguments, text="", stderr=subprocess.PIPE, **how):
    """Runs one of Kafka's classes on `text` as its input; what it prints. AssertionError if it fails."""
    done = subprocess.run(
        command(main, *arguments, **how), input=text, stdout=subprocess.PIPE, stderr=stderr, text=True,
        errors="replace", timeout=2 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{main} {arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


def dump(option, *files):
    """What Kafka's DumpLogSegments prints of files and, after all of them, of what is wrong with them."""
    tool = "org.apache.kafka.tools.DumpLogSegments"
    return run(tool, option, "--print-data-log", "--files", ",".join(map(str, files)), stderr=subprocess.STDOUT)


def node_settings(number, voters, listeners, copies=1):
    """The settings that say what a node (KRaft) is.

    Arguments:
        number: its id.
        voters: the ports of all controllers, by their ids; it is one of them if its id is there.
        listeners: the ports at which it serves as a broker, by protocol; none: it is no broker.
        copies: how many replicas Kafka's own topics have.
    """
    ports = listeners | ({"CONTROLLER": voters[number]} if number in voters else {})
    roles = [role for role, plays in (("broker", listeners), ("controller", number in voters)) if plays]
    return {
        "process.roles": ",".join(roles),
        "node.id": number,
        "controller.quorum.voters": ",".join(f"{voter}@{HOST}:{port}" for voter, port in voters.items()),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join([*(f"{name}:{name}" for name in listeners), "CONTROLLER:PLAINTEXT"]),
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": 1,
    }


def new_cluster_id():
    """An id for a cluster, as Kafka makes one."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode().replace("-", "_")


class Node:
    """A process of Kafka (KRaft), with a folder of its own. It can be ended and started again.

    Attributes:
        log_dir: its only log.dir.
        version: Kafka's.
        process: itself; None: it was not started yet.
    """

    def __init__(self, folder, settings, *, version=NEWEST, memory="512m", java=None, enter=()):
        """Writes its settings, but for those that are None; `format` comes next.

        `java` are options of Java in place of those for a quick start, `enter` the words of a command that runs Java
        elsewhere, such as in a namespace.
        """
        self._folder, self._memory, self._java, self._enter = Path(folder), memory, java, enter
        self._output, self._begin = self._folder / "output", 0
        self._settings, self._number = self._folder / "server.properties", settings["node.id"]
        self.process, self.version, self._paused = None, version, False
        self.log_dir = self._folder / "logs"
        settings = {name: value for name, value in ({"log.dirs": self.log_dir} | settings).items() if value is not None}
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def format(self, cluster_id, *options):
        """Makes its log.dir one of that cluster; `options` are those of Kafka's tool."""
        arguments = ("format", "--cluster-id", cluster_id, "--config", self._settings, *options)
        run("kafka.tools.StorageTool", *arguments, jars=JARS[self.version])

    def _format_like(self, other):
        """The same, without Java, after that of a node of the same version and cluster."""
        shutil.copytree(other.log_dir, self.log_dir, dirs_exist_ok=True)
        path, text = self.log_dir / "meta.properties", (other.log_dir / "meta.properties").read_text()
        for name, own in (("node.id", self._number), ("directory.id", new_cluster_id())):
            text, count = re.subn(rf"(?m)^{name}=.*$", f"{name}={own}", text)
            assert count == 1, text
        path.write_text(text)

    def start(self):
        """Returns when it serves."""
        self.launch()
        self.await_start()

    def launch(self):
        """Starts it, and returns at once."""
        say = ["-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"]
        self._paused = False
        with open(self._output, "ab") as output:
            self._begin = output.tell()
            how = {"memory": self._memory, "options": say, "java": self._java, "jars": JARS[self.version]}
            of = command("kafka.Kafka", self._settings, **how)
            self.process = subprocess.Popen([*self._enter, *of], stdout=output, stderr=output, start_new_session=True)

    def await_start(self):
        """Returns when it serves, after `launch`."""
        end = time.monotonic() + PATIENCE
        while _STARTED not in self.output(self._begin):
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"Kafka has not started: {self.output(self._begin)[-4000:]}")
            time.sleep(0.05)

    def stop(self):
        """Ends it in order: its logs are closed, and it notes that they were."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self):
        """Ends it at once, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self):
        """Stops it where it is: it does and answers nothing until `resume`."""
        self.process.send_signal(signal.SIGSTOP)
        self._paused = True

    def resume(self):
        """Lets it continue after `pause`."""
        self.process.send_signal(signal.SIGCONT)
        self._paused = False

    def is_running(self):
        """Whether there is a process, which is not paused."""
        return self.process is not None and self.process.poll() is None and not self._paused

    def output(self, begin=0):
        """What it has said so far, from that byte on."""
        with open(self._output, "rb") as output:
            output.seek(begin)
            return output.read().decode(errors="replace")


def format_all(nodes, cluster_id, *options):
    """Formats the nodes of a cluster: for each version Kafka's tool runs once, as that takes a second."""
    first = {}
    for node in nodes:
        like = first.setdefault(node.version, node)
        if like is node:
            node.format(cluster_id, *options)
        else:
            node._format_like(like)


class Broker(Node):
    """A Kafka of one node, which is broker and controller.

    Attributes:
        host, port, bootstrap: where clients find it.
        controller: where it is found as a controller: a host and a port.
        cluster_id: of its cluster.
    """

    def __init__(self, folder, *, as_shipped=False, settings=None, protocol="PLAINTEXT"):
        """Formats its folder; starts nothing yet. `protocol`: what its clients speak.

        `as_shipped`: with Kafka's own settings and 2 GB, to be measured; else it starts quickly and does soon what
        tests wait for. `settings`: others, which win; None: Kafka's default.
        """
        self.host, (self.port, controller_port) = HOST, free_ports(2)
        self.bootstrap, self.controller = f"{HOST}:{self.port}", (HOST, controller_port)
        self.cluster_id = new_cluster_id()
        given = node_settings(1, {1: controller_port}, {protocol: self.port})
        given |= ({} if as_shipped else QUICK) | (settings or {})
        how = {"memory": "2g", "java": ()} if as_shipped else {}
        super().__init__(folder, given, **how)
        self.format(self.cluster_id)

    def run(self, main, *arguments, text=""):
        """Runs one of Kafka's classes as a client of this broker on `text` as its input; what it prints."""
        return run(main, "--bootstrap-server", self.bootstrap, *arguments, text=text)

    def prepare(self, *, transactions=True):
        """Returns when it has what it makes when it is asked for the first time: coordinators, and producer ids."""
        find = m.FindCoordinatorRequest(coordinator_keys=["k"])
        finds = [find, find._replace(key_type=1)] if transactions else [find]
        asked = [(one, lambda answer: answer.coordinators[0].error_code) for one in finds]
        stranger = m.HeartbeatRequest("k", 1, "stranger")
        asked.append((stranger, lambda answer: answer.error_code != ErrorCode.UNKNOWN_MEMBER_ID))
        asked.append((m.InitProducerIdRequest(None, 1000), lambda answer: answer.error_code))
        end = time.monotonic() + PATIENCE
        with Peer(self) as peer:
            for request, is_missing in asked:
                while is_missing(peer.ask(request, 4)):
                    assert time.monotonic() < end, f"the broker does not get there: {request}"
                    time.sleep(0.02)

    def topic_ids(self):
        """The ids of all topics, as Kafka's command for topics prints them."""
        told = self.run("org.apache.kafka.tools.TopicCommand", "--describe")
        return dict(re.findall(r"^Topic: (\S+)\s+TopicId: (\S+)", told, flags=re.M))


def sasl_settings(users):
    """Settings of a broker that clients log in to over SASL_PLAINTEXT by PLAIN: users with their passwords."""
    listed = " ".join(f'user_{user}="{password}"' for user, password in {**users, "broker": "broker"}.items())
    return {
        "inter.broker.listener.name": "SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config":
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="broker" password="broker" {listed};',
    }  # fmt: skip


@contextlib.contextmanager
def running_broker(folder, **how):
    """A broker that runs, and is stopped at the end of the block."""
    broker = Broker(folder, **how)
    try:
        broker.start()
        yield broker
        broker.stop()
    finally:
        broker.kill()
