"""The `pylog` command, on real stores."""

from __future__ import annotations

import fcntl
import json
import select
import signal
import subprocess
import sys
import termios
import time

import pyarrow as pa
import pytest
from cli_tools import T0, output, pylog, records
from click.testing import CliRunner

import pyspark_log
from pyspark_log.cli.main import main
from pyspark_log.errors import PublishPendingError
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.publish import applier
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.forked import PipedPylog
from tests.paths import KAFKA_JAVA
from tests.store_tools import overwrite, publish, stage

# How long a command may take for what nothing hinders, in seconds, on a machine that has much else to do.
PATIENCE = 120
# It holds lines back for ever, so that no append is under way when it is ended.
PATIENT_PRODUCER = (
    "import pyspark_log.cli.producing.produce as m; m._LINGER_S = 1e6; import pyspark_log.cli.start as c; c.main()"
)


@pytest.fixture
def events(store):
    """A topic of two partitions, with three records in partition 0 and one in partition 1."""
    store.create_topic("events", 2)
    store.append("events", records(["a", "b", None], [b"one", b"two", None]), partition=0)
    store.append("events", records(["c"], [b"\xff\x00raw"], first=T0 + 60_000), partition=1)
    return store


def spawn(path, *arguments):
    """`pylog`, with pipes for all."""
    return PipedPylog(*arguments, PYLOG_STORE=str(path))


def waiting_in(pipe):
    """How many bytes were written to a pipe and not read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def values(store, topic):
    """Key and value of every record, partition by partition."""
    found = []
    for number in range(store.describe_topic(topic).partitions):
        for batch in store.read(topic, number):
            found += zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    return found


# --- topics


def test_topics_create_makes_the_store_and_says_so(path):
    result = pylog(path, "topics", "create", "events", "--partitions", "3", "--config", "retention.ms=-1")
    said = "Created topic events with 3 partitions.\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, said, f"Created a new store in {path}\n")
    topic = Store.open(path).describe_topic("events")
    assert (topic.partitions, topic.configs) == (3, {"retention.ms": "-1"})


def test_topics_create_again_is_an_error_without_if_not_exists(events, path):
    result = pylog(path, "topics", "create", "events")
    assert result.exit_code == 1
    assert result.stderr == "Error: [PYLOG_TOPIC_EXISTS] topic 'events' exists already\n"
    said = "Topic events exists already; nothing was changed.\n"
    assert output(path, "topics", "create", "events", "--if-not-exists") == said


@pytest.mark.parametrize(("given", "kept"), [
    ("retention.ms=7d", "604800000"), ("retention.ms=90s", "90000"), ("segment.bytes=1MiB", "1048576"),
    ("max.message.bytes=4 KiB", "4096"), ("retention.ms=86400000", "86400000"), ("cleanup.policy=compact", "compact"),
])  # fmt: skip
def test_times_and_sizes_may_have_units(tmp_path, given, kept):
    name = given.partition("=")[0]
    output(tmp_path, "topics", "create", "t", "--config", given)
    assert Store.open(tmp_path).describe_topic("t").configs == {name: kept}
    output(tmp_path, "topics", "alter", "t", "--delete-config", name)
    output(tmp_path, "topics", "alter", "t", "--config", given)
    assert Store.open(tmp_path).describe_topic("t").configs == {name: kept}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("retention.ms=soon", "must be a whole number, or one with a unit (ms, s, m, h, d, w)"),
        ("retention.ms=7y", "'y' is not a valid unit; the units are: ms, s, m, h, d, w"),
        ("segment.bytes=1GB", "'GB' is not a valid unit; the units are: B, KiB, MiB, GiB, TiB"),
        ("retention.ms=7 d d", "must be a whole number"),
        ("compression.zstd.level=3d", "must be a whole number"),
    ],
)
def test_another_unit_is_refused(tmp_path, given, said):
    result = pylog(tmp_path / "s", "topics", "create", "t", "--config", given)
    assert (result.exit_code, said in result.stderr) == (1, True), result.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("setting", ["retention.ms", "=1"])
def test_topics_create_refuses_a_setting_without_name_or_value(store, path, setting):
    assert pylog(path, "topics", "create", "events", "--config", setting).exit_code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "create", "events", "--config", "retention.mss=1"),
        ("topics", "create", "events", "--config", "retention.ms=soon"),
        ("topics", "create", "no/name"),
        ("produce", "no/name"),
    ],
)
def test_what_is_refused_makes_no_store(path, command):
    result = pylog(path, *command)
    assert result.exit_code == 1
    assert result.stderr.startswith(("Error: [PYLOG_INVALID_CONFIG] ", "Error: [PYLOG_INVALID_TOPIC] "))
    assert not path.exists()


def test_topics_list_leaves_the_stores_own_topics_out(events, path):
    OffsetsLog(events).commit("g", {TopicPartition("events", 0): 1})
    assert output(path, "topics", "list") == "events\n"
    assert output(path, "topics", "list", "--internal") == "__consumer_offsets\nevents\n"
    assert json.loads(output(path, "topics", "list", "--json")) == ["events"]


def test_topics_describe_prints_a_table_and_json(events, path):
    events.create_topic("audit", 1, {"cleanup.policy": "compact", "segment.bytes": "1000"})
    ids = {name: events.describe_topic(name).topic_id for name in ("audit", "events")}
    assert output(path, "topics", "describe").splitlines() == [
        "TOPIC   PARTITIONS  ID                      SETTINGS",
        f"audit            1  {ids['audit']}  cleanup.policy=compact,segment.bytes=1000",
        f"events           2  {ids['events']}  -",
    ]
    assert json.loads(output(path, "topics", "describe", "events", "--json")) == [
        {"topic": "events", "topic_id": ids["events"], "partitions": 2, "configs": {}}
    ]


def test_topics_alter(events, path):
    changes = ["--partitions", "4", "--config", "segment.ms=1000", "--config", "flush.ms=1"]
    assert output(path, "topics", "alter", "events", *changes).splitlines() == [
        "Altered topic events: segment.ms=1000, flush.ms=1.",
        "Altered topic events: it now has 4 partitions.",
    ]
    said = "Altered topic events: flush.ms reset to the store's value.\n"
    assert output(path, "topics", "alter", "events", "--delete-config", "flush.ms") == said
    topic = events.describe_topic("events")
    assert (topic.partitions, topic.configs) == (4, {"segment.ms": "1000"})
    result = pylog(path, "topics", "alter", "events", "--partitions", "3")
    assert result.stderr == "Error: [PYLOG_INVALID_CONFIG] topic 'events' has 4 partitions; it can get more, not 3\n"
    assert pylog(path, "topics", "alter", "events").exit_code == 2


def test_topics_delete_and_delete_records(events, path):
    delete = ("topics", "delete-records", "events", "--partition", "0", "--yes", "--before")
    assert output(path, *delete, "2") == "events-0 begins at offset 2.\n"
    assert events.earliest_offset("events", 0) == 2
    assert output(path, *delete, "-1") == "events-0 begins at offset 3.\n"
    result = pylog(path, *delete, "4")
    assert result.stderr.startswith("Error: [PYLOG_OFFSET_OUT_OF_RANGE] events-0: offset 4 is out of range")
    assert output(path, "topics", "delete", "events", "--yes") == "Deleted topic events.\n"
    assert events.topics() == []
    assert pylog(path, "topics", "delete", "events", "--yes").exit_code == 1


def test_a_deletion_that_takes_seconds_says_what_it_does(path, events):
    events.create_topic("wide", 1000)
    result = pylog(path, "topics", "delete", "wide", "events", "--yes")
    assert result.stderr == "Deleting the files of 1000 partitions of wide.\n"
    assert result.stdout == "Deleted topic wide.\nDeleted topic events.\n"


def test_clean(events, path):
    events.create_topic("other", 1)
    events.append("other", records([None], [b"x"]))
    assert output(path, "clean", "other") == "1 segment removed\n"
    assert output(path, "clean") == "2 segments removed\n"
    assert output(path, "clean") == "0 segments removed\n"


# --- produce


def test_produce_takes_lines_as_they_are(store, path):
    store.create_topic("lines")
    run = spawn(path, "produce", "lines")
    out, err = run.communicate(b"one\n\n tw\xff\x00o\r\nlast")
    assert (run.returncode, out, err) == (0, b"", b"4 records to lines, offsets by partition: 0: 0..3\n")
    assert values(store, "lines") == [(None, b"one"), (None, b""), (None, b" tw\xff\x00o\r"), (None, b"last")]


def test_produce_splits_keys_and_places_them_as_kafka_does(store, path):
    store.create_topic("lines", 3)
    run = spawn(path, "produce", "lines", "--key-separator", "::")
    run.communicate("a::1\nkafka::2::3\nключ::\n::4\n".encode())
    assert run.returncode == 0
    found = [
        (number, key, value)
        for number in range(3)
        for batch in store.read("lines", number)
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ]
    # murmur2, as Kafka's own partitioner: see group_partitions and murmur2 in coordinator-records.json
    assert found == [(0, b"", b"4"), (1, b"a", b"1"), (1, b"kafka", b"2::3"), (2, "ключ".encode(), b"")]


def test_produce_names_the_line_without_a_key(store, path):
    store.create_topic("lines")
    run = spawn(path, "produce", "lines", "--key-separator", ":")
    _, err = run.communicate(b"a:1\nno key\n")
    assert run.returncode == 1
    assert err == b"Error: line 2 has no key separator ':'; the first 0 lines were appended\n"
    assert values(store, "lines") == []


@pytest.mark.slow
def test_produce_does_not_hold_lines_back_for_long(store, path):
    store.create_topic("lines")
    run = spawn(path, "produce", "lines", "--partition", "0")
    run.stdin.write(b"now\nhalf a line")
    run.stdin.flush()
    wait_until(lambda: store.latest_offset("lines", 0) == 1)
    run.communicate(b" and the rest\n")
    assert values(store, "lines") == [(None, b"now"), (None, b"half a line and the rest")]


def test_produce_of_many_lines_keeps_their_order(store, path):
    store.create_topic("lines")
    lines = [b"%d %s" % (number, b"x" * 90) for number in range(50_000)]
    run = spawn(path, "produce", "lines")
    run.communicate(b"\n".join(lines))
    assert [value for _, value in values(store, "lines")] == lines


def test_produce_keeps_what_was_entered_before_ctrl_c(store, path):
    store.create_topic("lines")
    command = [sys.executable, "-c", PATIENT_PRODUCER, "--store", path, "produce", "lines"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    run = subprocess.Popen(command, **pipes)
    for part in (b"first\n", b"second\ncut of"):
        run.stdin.write(part)
        run.stdin.flush()
        wait_until_read(run)
    assert values(store, "lines") == []
    run.send_signal(signal.SIGINT)
    _, err = run.communicate()
    assert (run.returncode, err) == (130, b"2 records to lines, offsets by partition: 0: 0..1\n")
    assert values(store, "lines") == [(None, b"first"), (None, b"second")]


def test_produce_makes_a_missing_topic_and_says_so(store, path):
    run = spawn(path, "produce", "lines")
    _, err = run.communicate(b"one\n")
    assert (run.returncode, err.splitlines()[0]) == (0, b"Created topic lines with 1 partition.")
    assert values(store, "lines") == [(None, b"one")]


def test_produce_makes_no_topic_where_the_store_forbids_it(path):
    store = Store.create(path, {"auto.create.topics.enable": "false"})
    result = pylog(path, "produce", "lines")
    assert (result.exit_code, result.stderr.startswith("Error: [PYLOG_UNKNOWN_TOPIC")) == (1, True)
    assert store.topics() == []


def test_produce_refuses_the_stores_own_topics(store, path):
    assert pylog(path, "produce", "__consumer_offsets").exit_code == 2


# --- consume


def test_consume_writes_values_byte_for_byte(events, path):
    assert pylog(path, "consume", "events").stdout_bytes == b"one\ntwo\nnull\n\xff\x00raw\n"


def test_consume_prints_what_comes_before_the_value_as_kafka_does(events, path):
    options = ["--print-timestamp", "--print-partition", "--print-offset", "--print-key", "--key-separator", "|"]
    assert output(path, "consume", "events", "--partition", "0", *options).splitlines() == [
        f"CreateTime:{T0}|Partition:0|Offset:0|a|one",
        f"CreateTime:{T0 + 1000}|Partition:0|Offset:1|b|two",
        f"CreateTime:{T0 + 2000}|Partition:0|Offset:2|null|null",
    ]


def test_consume_as_json_loses_nothing(events, path):
    headers = pa.array(
        [[{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = records(["ключ"], [b"v"]).append_column("headers", headers)
    events.append("events", batch, partition=1)
    lines = output(path, "consume", "events", "--partition", "1", "--format", "json").splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "topic": "events", "partition": 1, "offset": 0, "timestamp": T0 + 60_000,
            "timestampType": "CreateTime", "key": "c", "value_base64": "/wByYXc=", "headers": [],
        },
        {
            "topic": "events", "partition": 1, "offset": 1, "timestamp": T0,
            "timestampType": "CreateTime", "key": "ключ", "value": "v",
            "headers": [{"key": "trace", "value": "1"}, {"key": "trace", "value": None}],
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from-beginning"], "one two null"),
        (["--offset", "1"], "two null"),
        (["--offset", "3"], ""),
        (["--timestamp", str(T0 + 1)], "two null"),
        (["--timestamp", "2023-11-14T22:13:22Z"], "null"),
        (["--timestamp", "2023-11-14 23:13:22+01:00"], "null"),
        (["--timestamp", "2024-01-01"], ""),
        (["--max-messages", "2"], "one two"),
        (["--max-messages", "0"], ""),
    ],
)
def test_consume_starts_and_stops_where_the_options_say(events, path, arguments, expected):
    assert output(path, "consume", "events", "--partition", "0", *arguments).split() == expected.split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from-beginning", "--end"],
        ["--offset", "0"],  # which partition?
        ["--offset", "-1", "--partition", "0"],
        ["--timestamp", "yesterday"],
    ],
)
def test_consume_called_wrongly_is_a_usage_error(events, path, arguments):
    assert pylog(path, "consume", "events", *arguments).exit_code == 2


@pytest.mark.slow
def test_consume_from_the_end_prints_what_comes_and_ctrl_c_is_quiet(events, path):
    run = spawn(path, "consume", "events", "--end", "--print-key")
    batch = records(["new"], [b"record"])
    # Nothing shows when it has found the end, so records are appended until one comes out.
    deadline = time.monotonic() + PATIENCE
    while not has_output(run, 0.2):
        assert time.monotonic() < deadline, "it prints nothing"
        events.append("events", batch, partition=1)
    assert run.stdout.readline() == b"new\trecord\n"
    run.send_signal(signal.SIGINT)
    _, err = run.communicate()
    assert (run.returncode, err) == (130, b"")


# --- offsets


def test_offsets_of_all_topics_as_a_table(events, path):
    sizes = [events.size("events", number) for number in range(2)]
    assert output(path, "offsets").splitlines() == [
        "TOPIC   PARTITION  EARLIEST  LATEST  RECORDS  SIZE",
        f"events          0         0       3        3  {sizes[0]} B",
        f"events          1         0       1        1  {sizes[1]} B",
    ]


def test_offsets_as_json(events, path):
    assert json.loads(output(path, "offsets", "events", "--json"))[1] == {
        "topic": "events",
        "partition": 1,
        "earliest": 0,
        "latest": 1,
        "size_bytes": events.size("events", 1),
    }


def test_offsets_by_time(events, path):
    assert output(path, "offsets", "events", "--time", str(T0 + 1)).splitlines() == [
        "TOPIC   PARTITION  OFFSET      TIMESTAMP",
        f"events          0       1  {T0 + 1000}",
        f"events          1       0  {T0 + 60_000}",
    ]
    late = json.loads(output(path, "offsets", "events", "--time", "2023-11-14T22:13:30Z", "--json"))
    assert [row["offset"] for row in late] == [None, 0]


@pytest.mark.parametrize(
    ("point", "number", "offsets"),
    [("latest", "-1", [3, 2]), ("earliest", "-2", [1, 0]), ("max-timestamp", "-3", [2, 0])],
)
def test_offsets_by_the_points_of_kafka_get_offsets(events, path, point, number, offsets):
    events.append("events", records(["c"], [b"older"], first=T0), partition=1)
    events.delete_records("events", 0, 1)
    table = output(path, "offsets", "events", "--time", point)
    assert [int(line.split()[2]) for line in table.splitlines()[1:]] == offsets
    assert output(path, "offsets", "events", "--time", number) == table
    times = [row["timestamp"] for row in json.loads(output(path, "offsets", "events", "--time", point, "--json"))]
    assert times == ([T0 + 2000, T0 + 60_000] if point == "max-timestamp" else [None, None])


def test_offsets_of_some_partitions(events, path):
    for arguments in ([], ["--time", "latest"]):
        found = json.loads(output(path, "offsets", "--partition", "1", "--json", *arguments))
        assert [(row["topic"], row["partition"]) for row in found] == [("events", 1)]
    refused = pylog(path, "offsets", "events", "--partition", "2")
    assert (refused.exit_code, "no partition 2; it has 2" in refused.stderr) == (1, True)


def test_offsets_knows_no_other_points(events, path):
    assert pylog(path, "offsets", "events", "--time", "latest-tiered").exit_code == 2
    events.create_topic("empty", 1)
    assert json.loads(output(path, "offsets", "empty", "--time", "-3", "--json"))[0]["offset"] is None


# --- dump


def test_dump_shows_the_batches_of_a_partition(events, path):
    events.append("events", records(["d"], [b"more"]), partition=0)
    name, first, second = output(path, "dump", "--topic", "events", "--partition", "0").splitlines()
    assert name.startswith("Dumping ")
    assert first.startswith("baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 producerId: -1 ")
    assert first.endswith("isvalid: true")
    assert f" CreateTime: {T0 + 2000} " in first
    assert second.startswith("baseOffset: 3 lastOffset: 3 count: 1 ")


def test_dump_of_a_file_shows_its_records_and_needs_no_store(events, path):
    (segment,) = events.segment_files("events", 1)
    result = CliRunner().invoke(main, ["dump", segment, "--records"])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2] == (
        f"| offset: 0 CreateTime: {T0 + 60_000} keySize: 1 valueSize: 5 headers: [] "
        r"key: c value: \xff\x00raw"
    )


def test_dump_marks_a_damaged_batch_shows_the_others_and_fails(events, path):
    events.append("events", records(["d"], [b"more"]), partition=0)
    (segment,) = events.segment_files("events", 0)
    overwrite(segment, 70, b"\x00")
    result = CliRunner().invoke(main, ["dump", segment])
    assert result.exit_code == 1
    _, first, second = result.stdout.splitlines()
    assert first.endswith("isvalid: false")
    assert second.endswith("isvalid: true")
    assert result.stderr == "Error: 1 damaged batch\n"


def test_dump_shows_what_comes_before_a_batch_whose_length_is_lost(events, path):
    size = events.size("events", 0)
    events.append("events", records(["d"], [b"more"]), partition=0)
    (segment,) = events.segment_files("events", 0)
    overwrite(segment, size + 8, b"\xff\xff\xff\xff")
    result = CliRunner().invoke(main, ["dump", segment])
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert f"[PYLOG_CORRUPT_RECORD] {segment} at byte {size}" in result.stderr


def test_dump_reports_a_torn_tail(events, path):
    (segment,) = events.segment_files("events", 1)
    size = events.size("events", 1)
    overwrite(segment, size, b"\x00" * 20)
    assert output(path, "dump", segment).splitlines()[-1] == (
        f"the 20 bytes from byte {size} on are not a complete batch"
    )


def test_dump_wants_files_or_a_partition(events, path):
    (segment,) = events.segment_files("events", 1)
    assert pylog(path, "dump").exit_code == 2
    assert pylog(path, "dump", "--topic", "events").exit_code == 2
    assert pylog(path, "dump", segment, "--topic", "events", "--partition", "0").exit_code == 2


# --- what all commands have in common


def test_no_store_named_is_a_usage_error():
    result = CliRunner().invoke(main, ["topics", "list"], env={"PYLOG_STORE": ""})
    assert result.exit_code == 2
    assert "--store" in result.stderr


def test_a_read_never_makes_a_store(path):
    result = pylog(path, "topics", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: [PYLOG_STORE_NOT_FOUND] ")
    assert result.stderr.count("\n") == 1
    assert not path.exists()


def test_a_command_that_reads_finishes_what_a_publisher_left(store, path, monkeypatch):
    store.create_topic("out")
    parts = stage(store, records(["k"], [b"decided"]), "out")
    with monkeypatch.context() as patched:
        patched.setattr(applier, "apply", full_disk)
        with pytest.raises(PublishPendingError, match="No space"):
            publish(store.decisions, "q", 0, parts)
        assert pylog(path, "consume", "out").stderr.startswith("Warning: published output could not be made")
    assert output(path, "consume", "out") == "decided\n"


def test_an_unknown_topic_is_one_line(store, path):
    result = pylog(path, "consume", "nothing")
    assert result.exit_code == 1
    assert result.stderr == "Error: [PYLOG_UNKNOWN_TOPIC_OR_PARTITION] there is no topic 'nothing'\n"


def test_an_error_of_the_system_is_one_line(path):
    (path / "store.json").mkdir(parents=True)
    result = pylog(path, "topics", "list")
    assert result.exit_code == 1
    assert result.stderr == f"Error: [PYLOG_IO_ERROR] [Errno 21] Is a directory: '{path}/store.json'\n"


@pytest.mark.parametrize(("command", "made"), [("repair", "repair.repair_store"), ("backup", "backup.back_up_store")])
def test_ctrl_c_says_that_a_copy_is_not_complete(store, tmp_path, monkeypatch, command, made):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    folder = "maintenance" if command == "repair" else "transfer"
    monkeypatch.setattr(f"pyspark_log.cli.{folder}.{made}", interrupt)
    result = pylog(store.path, command, "--into", tmp_path / "copy")
    assert (result.exit_code, result.stdout) == (130, "")
    assert f"interrupted: what is in {tmp_path}/copy is incomplete" in result.stderr


def test_version_and_help():
    assert CliRunner().invoke(main, ["--version"]).stdout == f"pylog, version {pyspark_log.__version__}\n"
    assert "consume" in CliRunner().invoke(main, ["-h"]).stdout


# --- helpers


def full_disk(*_args, **_kwargs):
    raise OSError(28, "No space left on device")


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s"
        time.sleep(0.02)


def wait_until_read(run):
    """Waits until a process has read what it was sent, and waits for more."""
    state = ["ps", "-o", "state=", "-p", str(run.pid)]
    wait_until(lambda: not waiting_in(run.stdin))
    # It sleeps: it has come back from there to where it waits.
    wait_until(lambda: subprocess.run(state, capture_output=True, text=True, check=True).stdout.startswith("S"))


def has_output(run, seconds):
    return bool(select.select([run.stdout], [], [], seconds)[0])


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", ["01_none_basic", "02_gzip_basic", "03_snappy_basic"])
def test_dump_shows_a_segment_of_an_old_format(tmp_path, magic, name):
    golden = json.loads((KAFKA_JAVA / f"magic{magic}" / f"{name}.json").read_text())
    segment = tmp_path / f"{0:020d}.log"
    segment.write_bytes(bytes.fromhex(golden["hex"]))
    shown = CliRunner().invoke(main, ["dump", str(segment), "--records"])
    assert shown.exit_code == 0, shown.output
    assert f"magic: {magic}" in shown.output
    assert "isvalid: false" not in shown.output
    assert shown.output.count("| offset:") == len(golden["inputs"]["records"])
