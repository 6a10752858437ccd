"""Sessions of Kafka's own tools, which use its client of Java."""

import contextlib
import json
import subprocess
import time

from tests.kafka.kafka_tools import PATIENCE, command, run
from tests.waiting import wait_until

VERSION = "Apache Kafka 4.3.1"
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def _tool(place, main, *arguments, text=""):
    return run(main, "--bootstrap-server", place.bootstrap, *arguments, text=text)


def console(place, protocol):
    """Lines are written with each codec, and read by a group in two parts."""
    place.make("t", 2)
    lines = "".join(f"key{number}:value {number}\n" for number in range(40))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        reader = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
        _tool(place, _PRODUCER, "--topic", "t", "--compression-codec", codec, *reader, text=lines)
    for _ in range(2):
        how = ("--group", "g", "--from-beginning", "--max-messages", 100)
        how += ("--command-property", f"group.protocol={protocol}")
        assert len(_tool(place, _CONSUMER, "--topic", "t", *how).splitlines()) == 100


def topics(place):
    """Topics are made, listed, described, grown and deleted."""
    _tool(place, _TOPICS, "--create", "--topic", "made", "--partitions", 2, "--config", "retention.ms=1000000")
    place.wait_for("made", 2)
    _tool(place, _TOPICS, "--create", "--topic", "made", "--if-not-exists")
    _tool(place, _TOPICS, "--list")
    _tool(place, _TOPICS, "--describe")
    _tool(place, _TOPICS, "--describe", "--topic", "made")
    _tool(place, _TOPICS, "--alter", "--topic", "made", "--partitions", 4)
    place.wait_for("made", 4)
    _tool(place, _TOPICS, "--delete", "--topic", "made")
    place.wait_without("made")
    _tool(place, _TOPICS, "--list")


def configs(place):
    """Configs of a topic and of the broker."""
    place.make("t")
    where = ("--entity-type", "topics", "--entity-name", "t")
    _tool(place, _CONFIGS, "--alter", *where, "--add-config", "retention.ms=5000000,cleanup.policy=[compact,delete]")
    place.wait_for_config("t", "retention.ms", "5000000")
    _tool(place, _CONFIGS, "--describe", *where)
    _tool(place, _CONFIGS, "--alter", *where, "--delete-config", "retention.ms")
    place.wait_for_config("t", "retention.ms", "-1")
    _tool(place, _CONFIGS, "--describe", "--all", *where)
    _tool(place, _CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1")


def groups(place):
    """A group is listed, described, reset and deleted."""
    place.make("t", 2, 10)
    how = ("--group", "g", "--from-beginning", "--max-messages", 20)
    _tool(place, _CONSUMER, "--topic", "t", *how)
    _tool(place, _GROUPS, "--list")
    _tool(place, _GROUPS, "--list", "--state", "--type")
    _tool(place, _GROUPS, "--describe", "--group", "g")
    _tool(place, _GROUPS, "--describe", "--all-groups", "--members", "--verbose")
    _tool(place, _GROUPS, "--describe", "--group", "g", "--state")
    _tool(place, _GROUPS, "--reset-offsets", "--group", "g", "--topic", "t", "--to-offset", 4, "--execute")
    _tool(place, _GROUPS, "--reset-offsets", "--group", "g", "--topic", "t:1", "--shift-by", 2, "--execute")
    _tool(place, _GROUPS, "--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--dry-run")
    _tool(place, _GROUPS, "--delete-offsets", "--group", "g", "--topic", "t:0")
    _tool(place, _GROUPS, "--delete", "--group", "g")
    _tool(place, _GROUPS, "--list")


def offsets(place):
    """Offsets of topics; records are deleted."""
    place.make("t", 2, 10)
    _tool(place, _OFFSETS)
    for asked in (-1, -2, -3, 1):
        _tool(place, _OFFSETS, "--topic", "t", "--time", asked)
    wanted = place.folder / "records.json"
    wanted.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [
                    {"topic": "t", "partition": 0, "offset": 4},
                    {"topic": "t", "partition": 1, "offset": 99},
                ],
            }
        )
    )
    _tool(place, "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", wanted)
    _tool(place, _OFFSETS, "--topic", "t", "--time", -2)


def inspect(place):
    """What is seldom asked: offsets of other kinds, resets of groups by time, topics by their state."""
    place.make("t", 2, 10)
    for asked in ("earliest-local", "latest-tiered", "max-timestamp"):
        _tool(place, _OFFSETS, "--topic-partitions", "t:0-2", "--time", asked)
    _tool(place, _OFFSETS, "--exclude-internal-topics")
    how = ("--group", "g", "--from-beginning", "--max-messages", 20)
    _tool(place, _CONSUMER, "--topic", "t", *how)
    for way in (("--by-duration", "PT1H"), ("--to-datetime", "2020-01-01T00:00:00.000"), ("--to-earliest",)):
        _tool(place, _GROUPS, "--reset-offsets", "--group", "g", "--all-topics", *way, "--execute")
    _tool(place, _GROUPS, "--describe", "--group", "g", "--offsets", "--verbose")
    _tool(place, _GROUPS, "--list", "--state", "Empty", "--type", "classic")
    for state in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        _tool(place, _TOPICS, "--describe", f"--{state}-partitions")
    _tool(place, _TOPICS, "--create", "--topic", "placed", "--replica-assignment", "1,1")
    place.wait_for("placed", 2)
    _tool(place, _TOPICS, "--describe", "--topics-with-overrides")
    _tool(place, _CONFIGS, "--describe", "--entity-type", "brokers", "--entity-default")
    _tool(place, _CONFIGS, "--describe", "--entity-type", "topics")


def reassign(place):
    """A partition is moved to where it is."""
    place.make("t", 1, 10)
    plan = place.folder / "reassignment.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    _tool(place, tool, "--reassignment-json-file", plan, "--execute")
    _tool(place, tool, "--reassignment-json-file", plan, "--verify")
    _tool(place, tool, "--list")


def perform(place):
    """The performance tools: an idempotent producer, one that is none, a consumer."""
    place.make("t", 2)
    for acks in ("1", "all"):
        run(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", 300, "--record-size", 50,
            "--throughput", -1, "--command-property", f"bootstrap.servers={place.bootstrap}", f"acks={acks}",
        )  # fmt: skip
    _tool(place, "org.apache.kafka.tools.ConsumerPerformance", "--topic", "t", "--num-records", 600)


def verify(place):
    """The verifiable producer and consumer."""
    place.make("t")
    how = ("--topic", "t", "--max-messages", 50)
    _tool(place, "org.apache.kafka.tools.VerifiableProducer", *how)
    _tool(place, "org.apache.kafka.tools.VerifiableConsumer", *how, "--group-id", "g")


def cluster(place):
    """Tools that look at the cluster."""
    place.make("t", 1, 10)
    run("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", place.bootstrap)
    _tool(place, "org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", "t")
    _tool(place, "org.apache.kafka.tools.BrokerApiVersionsCommand")


def streams(place):
    """Kafka Streams counts words."""
    place.make("streams-plaintext-input", 2, 5)
    place.make("streams-wordcount-output")
    settings = {"bootstrap.servers": place.bootstrap, "state.dir": place.folder / "state"}
    path = place.folder / "streams.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
    with _running(place, main, path, memory="256m", jars="streams-jars") as (program, _):
        place.wait_for_records("streams-wordcount-output", 20)
        program.terminate()
        program.wait(PATIENCE)


def rebalance(place, protocol):
    """A second member comes and leaves."""
    place.make("t", 4, 10)

    def member():
        how = ("--topic", "t", "--group-id", "g", "--group-protocol", protocol, "--reset-policy", "earliest")
        main = "org.apache.kafka.tools.VerifiableConsumer"
        return _running(place, main, "--bootstrap-server", place.bootstrap, *how)

    with member() as (first, said_by_first):
        wait_until(lambda: _owned(said_by_first) == 4, "the partitions are shared")
        with member() as (second, said_by_second):
            wait_until(lambda: (_owned(said_by_first), _owned(said_by_second)) == (2, 2), "the partitions are shared")
            second.terminate()
            second.wait(PATIENCE)
        wait_until(lambda: _owned(said_by_first) == 4, "the partitions are shared")
        first.terminate()
        first.wait(PATIENCE)


def _owned(said):
    """How many partitions a VerifiableConsumer has, by what it has said."""
    events = [json.loads(line) for line in said.read_text().splitlines(keepends=True) if line.endswith("}\n")]
    counts = {"partitions_assigned": 1, "partitions_revoked": -1}
    return sum(counts[one["name"]] * len(one["partitions"]) for one in events if one["name"] in counts)


@contextlib.contextmanager
def _running(place, main, *arguments, **how):
    """One of Kafka's classes while it runs, and the file of what it says."""
    said = place.folder / f"{main}-{time.monotonic_ns()}"
    with said.open("wb") as output:
        program = subprocess.Popen(command(main, *arguments, **how), stdout=output, stderr=subprocess.DEVNULL)
    try:
        yield program, said
    finally:
        program.kill()
        program.wait()
