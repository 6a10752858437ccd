"""`pylog produce`: headers, tombstones, times, codecs, files and JSON lines."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
from cli_tools import T0, output, pylog

from pyspark_log.cli.producing.base64_column import decoded
from pyspark_log.storage.log_manager import append
from tests.store_tools import store_with

store = store_with()


@pytest.fixture
def produce(store, tmp_path):
    """Produces the text of a file to t; what is said on standard error."""

    def run(text, *options, topic="t"):
        file = tmp_path / "lines"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        result = pylog(store, "produce", topic, "--file", str(file), *options)
        assert result.exit_code == 0, result.stderr
        return result.stderr

    return run


def read(store, topic="t"):
    """Key, value and headers of every record."""
    columns = ["key", "value", "headers"]
    table = store.topic(topic).read(headers=True).to_table().select(columns)
    return [
        (row["key"], row["value"], [(header["key"], header["value"]) for header in row["headers"] or ()])
        for row in table.to_pylist()
    ]


def refused(store, tmp_path, text, *options):
    """What is said of lines that are refused."""
    (tmp_path / "lines").write_text(text)
    result = pylog(store, "produce", "t", "--file", str(tmp_path / "lines"), *options)
    assert result.exit_code == 1
    return result.stderr


def test_what_was_produced_is_said(store, produce):
    store.create_topic("two", 2)
    assert produce("a\nb\n") == "2 records to t, offsets by partition: 0: 0..1\n"
    assert produce("c\n") == "1 record to t, offsets by partition: 0: 2..2\n"
    # murmur2 places a in partition 1, and the empty key in partition 0, of 2.
    said = produce("a:1\n:2\na:3\n", "--key-separator", ":", topic="two")
    ends = store.topic("two").latest_offsets()
    assert said == f"3 records to two, offsets by partition: 0: 0..{ends[0] - 1}, 1: 0..{ends[1] - 1}\n"
    assert sum(ends.values()) == 3
    assert produce("") == ""


def test_many_partitions_are_not_all_named(store, produce):
    store.create_topic("wide", 10)
    lines = "".join(json.dumps({"value": "v", "partition": number}) + "\n" for number in range(10))
    said = produce(lines, "--format", "json", "--keep-partition", topic="wide")
    assert said.endswith("6: 0..0, 7: 0..0 and 2 more partitions\n")


def test_what_was_appended_before_an_error_is_said(store, tmp_path, monkeypatch):
    """The second partition's disk is full."""
    store.create_topic("two", 2)
    append_all, done = append._append_all, []

    def full_at_the_second(*arguments):
        if done:
            raise OSError(28, "No space left on device")
        done.append(append_all(*arguments))
        return done[0]

    monkeypatch.setattr(append, "_append_all", full_at_the_second)
    (tmp_path / "lines").write_text("".join(f"{number}:v\n" for number in range(20)))
    result = pylog(store, "produce", "two", "--key-separator", ":", "--file", str(tmp_path / "lines"))
    assert (result.exit_code, "No space left" in result.stderr) == (1, True)
    end = done[0].next_offset
    assert result.stderr.startswith(f"{end} records to two, offsets by partition: 0: 0..{end - 1}\n")


def test_each_record_gets_the_headers(store, produce):
    produce("a\nb\n", "--header", "trace=1=2", "--header", "trace=")
    assert [headers for _, _, headers in read(store)] == [[("trace", b"1=2"), ("trace", b"")]] * 2
    assert pylog(store, "produce", "t", "--header", "=1").exit_code == 2


def test_lines_may_begin_with_headers(store, produce, tmp_path):
    options = ("--parse-headers", "--key-separator", "|", "--null-marker", "NULL", "--header", "all=9")
    produce("h1:x,h2:y:z,h1:NULL\tk1|v1\n\tk2|v2\t\nh:\tNULL|NULL\n", *options)
    assert read(store) == [
        (b"k1", b"v1", [("h1", b"x"), ("h2", b"y:z"), ("h1", None), ("all", b"9")]),
        (b"k2", b"v2\t", [("all", b"9")]),
        (None, None, [("h", b""), ("all", b"9")]),
    ]
    said = refused(store, tmp_path, "a:1\tv\nno tab\n", "--parse-headers")
    assert said.startswith("Error: line 2 has no headers delimiter '\\t'; the first 0 lines were appended")
    said = refused(store, tmp_path, "a:1\tv\n\tv\nb:2,c\tv\n", "--parse-headers")
    assert said.startswith("Error: line 3 has a header without ':'")


def test_the_separators_of_headers_can_be_others(store, produce):
    separators = ("--headers-delimiter", ">>", "--headers-separator", ";", "--headers-key-separator", "=")
    produce("a=1;b=2>>v\n", "--parse-headers", *separators)
    assert read(store) == [(None, b"v", [("a", b"1"), ("b", b"2")])]


def test_a_tombstone_is_a_null_marker(store, produce):
    produce("a:NULL\nNULL:b\na: NULL\n", "--key-separator", ":", "--null-marker", "NULL")
    assert [(key, value) for key, value, _ in read(store)] == [(b"a", None), (None, b"b"), (b"a", b" NULL")]


def test_the_time_can_be_given(store, produce):
    produce("a\nb\n", "--timestamp", "2023-11-14T22:13:20Z")
    times = store.topic("t").read().to_table()["timestamp"].cast(pa.int64()).to_pylist()
    assert times == [T0 * 1000] * 2


def test_a_topic_that_is_created_keeps_old_records(store, produce):
    produce("a\n", "--timestamp", "2023-11-14T22:13:20Z", topic="new")
    assert store.describe_topic("new").configs == {"retention.ms": "-1"}


def test_the_codec_is_the_writers(store, produce):
    produce("a\n", "--compression", "zstd", "--sync")
    assert "compresscodec: zstd " in output(store, "dump", "--topic", "t", "--partition", "0")


@pytest.mark.parametrize("options", [
    ("--format", "json", "--key-separator", ":"), ("--format", "json", "--null-marker", "x"),
    ("--format", "json", "--parse-headers"), ("--keep-partition",), ("--key-separator", ""),
    ("--parse-headers", "--headers-separator", ""), ("--format", "json", "--keep-partition", "--partition", "0"),
])  # fmt: skip
def test_called_wrongly(store, options):
    assert pylog(store, "produce", "t", *options).exit_code == 2
    assert store.latest_offset("t", 0) == 0


# --- JSON


def test_a_copy_by_json_is_whole(store, produce):
    """All kinds of keys, values and headers."""
    odd = [b"", b"text", "ключ".encode(), b"\xff\x00", b"\xff", b"\xfe\xff", None, b"a\0b", b'"\\\n']
    headers = [[{"key": "h", "value": data}, {"key": "", "value": b"\xff"}] for data in odd]
    headers[2] = []
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    store.create_topic("odd", 2)
    batch = pa.record_batch(
        {
            "key": pa.array(odd, pa.binary()),
            "value": pa.array(reversed(odd), pa.binary()),
            "headers": pa.array(headers, kind),
            "timestamp": pa.array([T0 + n for n in range(len(odd))], pa.int64()),
            "partition": pa.array([n % 2 for n in range(len(odd))], pa.int32()),
        }
    )
    store.append("odd", batch)
    store.create_topic("copy", 2)
    produce(output(store, "consume", "odd", "--format", "json"), "--format", "json", "--keep-partition", topic="copy")
    names = ["key", "value", "headers", "timestamp", "partition", "offset"]
    original = store.topic("odd").read(headers=True).to_table().select(names)
    assert store.topic("copy").read(headers=True).to_table().select(names) == original
    assert original.num_rows == len(odd)


def test_json_with_options_for_all_records(store, produce):
    produce('{"value": "a", "headers": [{"key": "own", "value": "1"}]}\n{"key": "k", "value": null}\n',
            "--format", "json", "--header", "all=2", "--timestamp", str(T0))  # fmt: skip
    assert read(store) == [(None, b"a", [("own", b"1"), ("all", b"2")]), (b"k", None, [("all", b"2")])]
    assert store.offset_for_timestamp("t", 0, T0).offset == 0
    assert store.offset_for_timestamp("t", 0, T0 + 1) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"value": "a"}\n\nnot json\n', "line 3 is not JSON: Expecting value at character 1"),
        ('{"value": "a"}\n[1]\n', 'line 2 is a list, expected an object such as {"key": "k", "value": "v"}'),
        ("null\n", "line 1 is null, expected an object"),
        ('{"value": 1}\n', "line 1 has a number as its value, expected a text"),
        ('{"value": "a"}\n{"value": {"a": 1}}\n', "line 2 has an object as its value, expected a text"),
        ('{"key": true}\n', "line 1 has true or false as its key, expected a text"),
        ('{"timestamp": "2026-01-01"}\n', "line 1 has a text as its timestamp, expected a whole number"),
        ('{"timestamp": 1.5}\n', "line 1 has a fraction as its timestamp, expected a whole number"),
        ('{"partition": 3000000000}\n', "line 1 has the partition 3000000000, which is too large"),
        ('{"headers": {"a": "b"}}\n', 'line 1 has an object as its headers, expected a list such as [{"key": "k"'),
        ('{"headers": ["a"]}\n', "line 1 has a text as a header, expected an object"),
        ('{"headers": [{"key": "k", "value": 1}]}\n', "line 1 has a number as the value of a header, expected a text"),
        ('{"value": "a"}\n{"vlaue": "a"}\n', "line 2 has a field 'vlaue'; did you mean 'value'?"),
        ('{"value": "a", "value": "b"}\n', "is no record: JSON parse error: Column(/value) was specified twice"),
        ('{"value_base64": "a"}\n', "a value that cannot be read: 'a' is no base64"),
        ('{"value_base64": "AA=A"}\n', "no base64"),
        ('{"value": "a", "value_base64": "AA=="}\n', "has the value twice"),
        ('{"value": "a"}\n{"value": "a", "headers": [{"value": "x"}]}\n', "line 2 has a header without a key"),
    ],
)
def test_what_is_no_record_is_refused_with_its_line(store, tmp_path, lines, said):
    assert said in refused(store, tmp_path, lines, "--format", "json")
    assert store.latest_offset("t", 0) == 0


def test_base64_is_decoded_as_the_library_does_it():
    data = [bytes(range(256))[:size] for size in range(40)] + [None, b"", None]
    texts = pa.array([None if one is None else base64.b64encode(one).decode() for one in data], pa.string())
    assert decoded(texts).to_pylist() == data
    assert decoded(texts.slice(5, 36)).to_pylist() == data[5:41]
    assert decoded(texts[:0]).to_pylist() == []


# ---- schemas


def test_json_is_encoded_as_consume_prints_it(store, produce, tmp_path):
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    (tmp_path / "t-value.avsc").write_text(json.dumps(schema))
    options = ["--value-format", "avro", "--schema-registry", str(tmp_path)]
    keys = ["--key-format", "avro", "--schema-option", 'keySchema="long"']
    produce('7\t{"n": 5}\nnull\t{"n": -1}\n', "--key-separator", "\t", *options, *keys)
    expected = [(b"\x0e", b"\x0a", []), (None, b"\x01", [])]
    assert read(store) == expected
    lines = output(store, "consume", "t", "--format", "json", *options, *keys)
    store.create_topic("u", 1, {"value.format": "avro", "schema.registry": str(tmp_path)})
    (tmp_path / "u-value.avsc").write_text(json.dumps(schema))
    produce(lines, "--format", "json", *keys, topic="u")
    assert read(store, "u") == expected
    produce("raw", "--value-format", "bytes", topic="u")
    assert read(store, "u")[2:] == [(None, b"raw", [])]


@pytest.mark.parametrize(
    ("text", "options", "problem"),
    [
        ("5\nx\n", [], "line 2 has a value that is no JSON"),
        ("5\n2.5\n", [], "line 2 has a value that cannot be encoded: a value does not fit its schema"),
        ('{"value": "5"}\n\n{"value": "x"}\n', ["--format", "json"], "line 3 has a value that is no JSON"),
    ],
)
def test_lines_that_cannot_be_encoded(store, tmp_path, text, options, problem):
    (tmp_path / "lines").write_text(text)
    typed = ["--value-format", "avro", "--schema-option", 'valueSchema="int"']
    result = pylog(store, "produce", "t", "--file", str(tmp_path / "lines"), *typed, *options)
    assert problem in result.stderr
    assert read(store) == []
