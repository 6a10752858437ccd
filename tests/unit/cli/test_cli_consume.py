"""`pylog consume` of groups and of the last records, its layouts, and `pylog tail`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest
from cli_tools import T0, output, pylog, records
from producer_tools import ready

from pyspark_log.cli.records import json_format
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.store_tools import new_store

T = [TopicPartition("t", number) for number in range(2)]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def store(tmp_path):
    """A topic with the records 0 to 4 in partition 0, and a and b in partition 1."""
    store = new_store(tmp_path, partitions=2)
    store.append("t", records(list("01234"), [b"0", b"1", b"2", b"3", b"4"]), partition=0)
    store.append("t", records(["a", "b"], [b"a", b"b"]), partition=1)
    return store


def consumed(store, *arguments, topic="t"):
    return output(store, "consume", topic, *arguments).split()


def committed(store, group="g"):
    return {at: kept.offset for at, kept in OffsetsLog(store).fetch(group).items()}


def spawn(store, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "pyspark_log.cli.start", *arguments],
        env={**os.environ, "PYLOG_STORE": store.path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


# --- the last records


@pytest.mark.parametrize(("count", "found"), [(0, ""), (1, "4 b"), (2, "3 4 a b"), (3, "2 3 4 a b"), (99, "01234ab")])
def test_the_last_records_of_each_partition(store, count, found):
    assert "".join(consumed(store, "--last", str(count))) == found.replace(" ", "")


def test_the_last_records_are_counted_not_their_offsets(tmp_path):
    """Compaction has removed most of them."""
    store = Store.create(tmp_path / "compacted")
    store.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "200", "min.cleanable.dirty.ratio": "0"})
    store.append("t", records(["a", "b", "c"], [b"1", b"2", b"3"]))
    for number in range(40):
        store.append("t", records(["x"], [b"x%d" % number]))
    output(store, "compact", "t")
    kept = consumed(store)
    assert len(kept) < 20
    assert kept[:3] == ["1", "2", "3"]
    for count in range(1, len(kept) + 1):
        assert consumed(store, "--last", str(count)) == kept[-count:]


def test_records_that_were_deleted_are_not_among_the_last(store):
    store.delete_records("t", 0, 4)
    assert consumed(store, "--last", "3", "--partition", "0") == ["4"]


@pytest.mark.slow
def test_tail_prints_the_last_and_follows(store):
    run = spawn(store, "tail", "t", "-n", "1", "--partition", "0", "--print-key", "--max-messages", "2")
    assert run.stdout.readline() == b"4\t4\n"
    store.append("t", records(["5"], [b"new"]), partition=0)
    out, err = run.communicate()
    assert (run.returncode, out, err) == (0, b"5\tnew\n", b"")


@pytest.mark.slow
def test_tail_begins_with_ten(store):
    store.append("t", records([None] * 20, [b"%d" % number for number in range(20)]), partition=0)
    run = spawn(store, "tail", "t", "--partition", "0", "--max-messages", "10")
    assert run.communicate()[0].split() == [b"%d" % number for number in range(10, 20)]


# --- groups


def test_a_group_resumes_where_it_was(store):
    said = pylog(store, "consume", "t", "--group", "g", "--commit", "--max-messages", "3")
    assert (said.stdout.split(), said.stderr) == (["0", "1", "2"], "group g: committed offsets of 1 partition of t\n")
    assert committed(store) == {T[0]: 3}
    # Without --commit it stays there.
    for _ in range(2):
        assert consumed(store, "--group", "g") == ["3", "4", "a", "b"]
    assert consumed(store, "--group", "g", "--commit") == ["3", "4", "a", "b"]
    assert committed(store) == {T[0]: 5, T[1]: 2}
    store.append("t", records(["c"], [b"c"]), partition=1)
    nothing = pylog(store, "consume", "t", "--group", "g", "--commit", "--partition", "0")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "")
    assert committed(store) == {T[0]: 5, T[1]: 2}
    assert consumed(store, "--group", "g", "--format", "json")[-1] == "[]}"


def test_what_a_group_has_not_read_and_is_deleted_is_warned_of(store):
    OffsetsLog(store).commit("g", {T[0]: 1})
    store.delete_records("t", 0, 3)
    result = pylog(store, "consume", "t", "--group", "g", "--partition", "0")
    assert result.stdout.split() == ["3", "4"]
    assert result.stderr == "Warning: t-0: offsets 1 to 2 were deleted before the group has read them\n"


def test_an_offset_beyond_the_end_is_an_error(store):
    """As after the topic was deleted and created again."""
    OffsetsLog(store).commit("g", {T[0]: 6})
    result = pylog(store, "consume", "t", "--group", "g")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "[PYLOG_OFFSET_OUT_OF_RANGE] t-0: offset 6" in result.stderr


def test_a_group_that_was_moved_meanwhile_is_not_committed(store, monkeypatch):
    fetch = OffsetsLog.fetch

    def and_move(self, group):
        found = fetch(self, group)
        monkeypatch.undo()
        OffsetsLog(store).commit("g", {T[0]: 2})
        return found

    monkeypatch.setattr(OffsetsLog, "fetch", and_move)
    result = pylog(store, "consume", "t", "--group", "g", "--commit")
    assert (result.exit_code, "PYLOG_OFFSET_CONFLICT" in result.stderr) == (1, True)
    assert result.stdout.split() == list("01234ab")
    assert committed(store) == {T[0]: 2}


@pytest.mark.slow
def test_ctrl_c_commits_what_was_printed(store):
    run = spawn(store, "consume", "t", "--group", "g", "--commit", "--follow")
    for expected in b"01234ab":
        assert run.stdout.readline() == bytes([expected]) + b"\n"
    store.append("t", records(["c"], [b"c"]), partition=1)
    assert run.stdout.readline() == b"c\n"
    run.send_signal(signal.SIGINT)
    run.communicate()
    assert run.returncode == 130
    found = committed(store)
    assert found[T[0]] == 5
    assert found[T[1]] in (2, 3)  # Ctrl-C may come between the printing and the note of it.


def test_a_reader_that_goes_away_commits_nothing(store):
    """It has not seen all that was printed."""
    store.append("t", records([None] * 50_000, [b"x" * 100] * 50_000), partition=0)
    run = spawn(store, "consume", "t", "--group", "g", "--commit")
    run.stdout.read(10)
    run.stdout.close()
    assert run.stderr.read() == b""
    run.stderr.close()
    assert run.wait() == 141
    assert committed(store) == {}


def test_records_of_open_transactions_are_neither_printed_nor_committed(store):
    store.append_batch("t", 0, ready(0, b"open", transactional=True))
    store.append("t", records(["5"], [b"after"]), partition=0)
    arguments = ("--group", "g", "--commit", "--isolation-level", "read_committed")
    assert consumed(store, *arguments, "--partition", "0") == list("01234")
    assert committed(store) == {T[0]: 5}
    # A reader of all records may be further.
    assert consumed(store, "--group", "g", "--commit", "--partition", "0") == ["open", "after"]
    assert committed(store) == {T[0]: 7}
    assert consumed(store, *arguments, "--partition", "0") == []
    assert committed(store) == {T[0]: 7}


@pytest.mark.parametrize("arguments", [
    ("--commit",), ("--group", "g", "--last", "1"), ("--group", "g", "--timestamp", "0"),
    ("--group", "g", "--partition", "0", "--offset", "0"), ("--last", "1", "--end"), ("--last", "-1"),
    ("--offsets-group", "g"), ("--offsets-group", "g", "--format", "json"),
])  # fmt: skip
def test_called_wrongly(store, arguments):
    assert pylog(store, "consume", "t", *arguments).exit_code == 2


def test_a_group_without_an_offset_begins_at_the_end_if_it_is_said(store):
    OffsetsLog(store).commit("g", {T[0]: 4})
    assert consumed(store, "--group", "g", "--end", "--max-messages", "1") == ["4"]


# --- layouts


def test_headers_are_printed_as_kafka_does(store):
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], None, [{"key": "", "value": b"\xff"}]]
    batch = records([None, "k", "k", "k"], [b"v", None, b"", b"\xff"])
    store.create_topic("h", 1)
    store.append("h", batch.append_column("headers", pa.array(headers, HEADERS)))
    arguments = ("--print-headers", "--print-key", "--print-offset", "--key-separator", "|", "--null-literal", "NULL")
    assert pylog(store, "consume", "h", *arguments).stdout_bytes == (
        b"Offset:0|a:1,b:NULL|NULL|v\nOffset:1|NO_HEADERS|k|NULL\nOffset:2|NO_HEADERS|k|\nOffset:3|:\xff|k|\xff\n"
    )


def test_the_text_of_a_large_batch_is_that_of_its_records(store):
    """Also where a batch is a slice of another."""
    values = [b"%d" % number * (number % 7) for number in range(5000)]
    store.create_topic("many", 1)
    store.append("many", records([None] * len(values), values))
    expected = [b"CreateTime:%d\t%s" % (T0 + 1000 * number, value) for number, value in enumerate(values)]
    for start, most in ((0, 5000), (0, 4321), (77, 1000)):
        arguments = ("--print-timestamp", "--partition", "0", "--offset", str(start), "--max-messages", str(most))
        printed = pylog(store, "consume", "many", *arguments).stdout_bytes
        assert printed == b"\n".join(expected[start : start + most]) + b"\n"


def test_offsets_of_one_group(store):
    OffsetsLog(store).commit("g", {T[0]: 4})
    OffsetsLog(store).commit("h", {T[0]: 5})
    lines = output(store, "consume", "__consumer_offsets", "--format", "offsets", "--offsets-group", "h").splitlines()
    assert [(json.loads(line)["group"], json.loads(line)["committed"]) for line in lines] == [("h", 5)]


def test_json_is_the_same_by_columns_and_by_records():
    """As Python's json writes it, also where a batch has a rare character that is not written by columns."""
    texts = [b"plain", b'"quoted" \\ back', b"a\tb\nc\rd", "ключ \U0001f600 \x7f".encode(), b"", None, b"{}"]
    for odd in (b"end", b"\x00", b"\xff", b"\x0b"):
        values = [*texts, odd]
        headers = [[{"key": (text or b"").decode(), "value": text}, {"key": "", "value": odd}] for text in texts]
        headers += [[]]
        batch = pa.record_batch(
            {
                "key": pa.array(values[::-1], pa.binary()),
                "value": pa.array(values, pa.binary()),
                "topic": ["t"] * len(values),
                "partition": pa.array([3] * len(values), pa.int32()),
                "offset": pa.array(range(7, 7 + len(values)), pa.int64()),
                "timestamp": pa.array([T0 * 1000] * len(values), pa.timestamp("us", tz="UTC")),
                "timestampType": pa.array([-1, 0, 1, 0, 0, 0, 0, 1], pa.int32()),
                "headers": pa.array(headers, HEADERS),
            }
        )
        for part in (batch, batch.slice(2, 4), batch.slice(0, 0)):
            expected = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in json_format._objects(part))
            assert json_format.json_lines(part).decode() == expected
            assert (json_format._plain_lines(part) is None) == (part.num_rows > 0 and odd != b"end")


# --- templates and filters


def test_a_template_says_how_a_record_is_printed(store):
    data = pa.table(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array(["é".encode(), None], pa.binary()),
            "headers": pa.array([[("a", b"1"), ("b", None)], None], HEADERS),
            "timestamp": pa.array([5, 6], pa.int64()),
        }
    )
    store.create_topic("u", 1, {"retention.ms": "-1"})
    store.append("u", data)
    shown = output(store, "consume", "u", "-f", r"%t [%p] %o %T %k=%s (%K,%S) {%h} 100%%\t\x41\\\n")
    assert shown == "u [0] 0 5 k=é (1,2) {a=1,b=} 100%\tA\\\nu [0] 1 6 = (-1,-1) {} 100%\tA\\\n"
    assert output(store, "consume", "u", "--format-string", "%k,", "--null-literal", "NULL") == "k,NULL,"
    assert output(store, "consume", "u", "-f", "x") == "xx"
    assert output(store, "tail", "u", "-f", "%s;", "--max-messages", "2") == "é;;"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("%q", "%q is unknown; there are %t, %p, %o, %T, %k, %s, %K, %S, %h and %%"),
        ("%", "% is unknown"),
        (r"\q", r"\q is unknown"),
        (r"\x", r"\x is unknown"),
    ],
)
def test_an_unknown_part_of_a_template_is_refused(store, template, problem):
    refused = pylog(store, "consume", "t", "-f", template)
    assert (refused.exit_code, problem in refused.stderr) == (2, True)


@pytest.mark.parametrize("more", [["--print-key"], ["--format", "json"]])
def test_a_template_goes_with_no_other_layout(store, more):
    assert pylog(store, "consume", "t", "-f", "%s", *more).exit_code == 2


def test_records_are_filtered(store):
    store.append("t", records(["x", None], [None, b"Xerxes"]), partition=1)
    assert consumed(store, "--grep", "^[13ab]$") == ["1", "3", "a", "b"]
    assert consumed(store, "--grep", "x") == ["null", "Xerxes"]
    assert consumed(store, "--grep", "(?i)^X") == ["null", "Xerxes"]
    assert consumed(store, "--grep", "[1-9]", "--max-messages", "2") == ["1", "2"]
    assert consumed(store, "--grep", "none such") == []
    refused = pylog(store, "consume", "t", "--grep", "(")
    assert (refused.exit_code, "'(' is not a regular expression" in refused.stderr) == (2, True)


def test_a_group_has_read_what_a_filter_has_left_out(store):
    consumed(store, "--group", "g", "--commit", "--grep", "^[1a]$")
    assert committed(store) == {T[0]: 5, T[1]: 2}
    consumed(store, "--group", "h", "--commit", "--grep", "^[13]$", "--max-messages", "2")
    assert committed(store, "h") == {T[0]: 4}


# ---- schemas


def test_values_and_keys_are_shown_by_their_schemas(store, tmp_path):
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}, {"name": "b", "type": "bytes"}]}
    (tmp_path / "typed-value.avsc").write_text(json.dumps(schema))
    store.create_topic("typed", 1)
    store.append("typed", records([b"\x0a", None], [b"\0\0\0\0\1\x0a\2a", b"\0\0\0\0\1\x0c\2\xff"]))
    options = ["--value-format", "confluent", "--schema-registry", str(tmp_path)]
    keys = ["--key-format", "avro", "--schema-option", 'keySchema="int"']
    lines = output(store, "consume", "typed", *options, *keys, "--print-key").splitlines()
    assert lines == ['5\t{"n": 5, "b": "a"}', 'null\t{"n": 6, "b": "/w=="}']
    assert output(store, "consume", "typed", *options, "--grep", '"n": 6').count("n") == 1
    store.append("typed", records(["k"], [b"x"]))
    bad = pylog(store, "consume", "typed", *options)
    # What comes before it is printed, also where it is of the same batch.
    assert bad.stdout.count("\n") == 2
    assert "typed-0: the value at offset 2 does not fit its schema: it begins with 78" in bad.stderr
    assert output(store, "consume", "typed", *options, "--max-messages", "2") == bad.stdout


def test_a_topic_can_name_the_format_of_its_values(store, tmp_path):
    (tmp_path / "typed-value.avsc").write_text('"int"')
    configs = ["--config", "value.format=avro", "--config", f"schema.registry={tmp_path}"]
    assert "must be one of bytes, avro" in pylog(store, "topics", "create", "no", "--config", "value.format=xml").output
    assert "URL of a schema reg" in pylog(store, "topics", "create", "no", "--config", "schema.registry=here").output
    output(store, "topics", "create", "typed", *configs)
    assert f"schema.registry={tmp_path}" in output(store, "topics", "describe", "typed")
    store.append("typed", records(["k"], [b"\x0a"]))
    assert output(store, "consume", "typed") == "5\n"
    assert output(store, "consume", "typed", "--value-format", "bytes") == "\n\n"
    output(store, "topics", "alter", "typed", "--delete-config", "value.format")
    assert output(store, "consume", "typed") == "\n\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--schema-registry", "/tmp"], "need --value-format or --key-format"),
        (["--value-format", "xml"], "valueFormat must be one of bytes, avro"),
        (["--value-format", "avro", "--schema-option", "x"], "is not NAME=VALUE"),
    ],
)
def test_options_of_schemas_that_are_refused(store, options, problem):
    assert problem in pylog(store, "consume", "t", *options).output
