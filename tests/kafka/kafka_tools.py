"""Kafka itself: its command-line classes, and a broker, from the jars that `make kafka-jars` fetches."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from tests.ports import HOST, free_ports
from tests.spark.java import java_version

FOLDER = Path(__file__).parents[2] / ".kafka"
#: Spark's connector to Kafka, with what it needs beside Spark.
SPARK_JARS = FOLDER / "spark-jars"
#: How long a broker may take to start or to stop, in seconds, on a machine that has other things to do.
PATIENCE = 120

_STARTED = "Kafka Server started"
# A quick start counts for more than speed later on.
_QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def missing():
    """Why Kafka cannot be run here; "" if it can."""
    if java_version() < 17:
        return "Kafka needs Java 17 or later: set JAVA_HOME, or put java on the PATH"
    if not (FOLDER / ".stamp").exists():
        return "Kafka's jars are not here: make kafka-jars"
    return ""


def command(main, *arguments, memory="128m", options=_QUICK_START, jars="jars"):
    """The command that runs one of Kafka's classes; `options` are Java's, `jars` the folder that has it."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [java, f"-Xmx{memory}", level, *options, "-cp", f"{FOLDER}/{jars}/*", main, *map(str, arguments)]


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


class Broker:
    """A Kafka of one node, which is broker and controller (KRaft). It can be stopped and started again.

    Attributes:
        bootstrap: where clients find it.
        log_dir: its only log.dir.
        process: itself; None: it was not started yet.
    """

    def __init__(self, folder, *, as_shipped=False, settings=None):
        """Formats its folder; starts nothing yet.

        `as_shipped`: with Kafka's own settings and 2 GB, to be measured; else it starts quickly and does soon what
        tests wait for. `settings`: others, which win; None: Kafka's default.
        """
        self._as_shipped = as_shipped
        self._folder, others = Path(folder), settings or {}
        self._output = self._folder / "output"
        self._settings = self._folder / "server.properties"
        self.process = None
        self.log_dir = self._folder / "logs"
        port, controller_port = free_ports(2)
        self.bootstrap = f"{HOST}:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.log_dir,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        settings |= (
            {}
            if as_shipped
            else {
                "group.initial.rebalance.delay.ms": 0,
                "group.consumer.assignment.interval.ms": 0,
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
        )
        settings = {name: value for name, value in {**settings, **others}.items() if value is not None}
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = run("kafka.tools.StorageTool", "random-uuid").strip()
        run("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", self._settings)

    def start(self):
        """Returns when it serves."""
        java = ["-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"]
        java += [] if self._as_shipped else _QUICK_START
        with open(self._output, "ab") as output:
            begin = output.tell()
            self.process = subprocess.Popen(
                command("kafka.Kafka", self._settings, memory="2g" if self._as_shipped else "512m", options=java),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        end = time.monotonic() + PATIENCE
        while _STARTED not in self.output(begin):
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"Kafka has not started: {self.output(begin)[-4000:]}")
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

    def output(self, begin=0):
        """What it has said so far, from that byte on."""
        with open(self._output, "rb") as output:
            output.seek(begin)
            return output.read().decode(errors="replace")

    def run(self, main, *arguments, text=""):
        """Runs one of Kafka's classes as a client of this broker on `text` as its input; what it prints."""
        return run(main, "--bootstrap-server", self.bootstrap, *arguments, text=text)

    def topic_ids(self):
        """The ids of all topics, as Kafka's command for topics prints them."""
        told = self.run("org.apache.kafka.tools.TopicCommand", "--describe")
        return dict(re.findall(r"^Topic: (\S+)\s+TopicId: (\S+)", told, flags=re.M))
