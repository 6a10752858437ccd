"""`pyspark_log/jobs/export_files.py`: what the files of each format have; the rest is as in test_bulk_load.py."""

import base64
import gzip
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from job_tools import T0, committed, files_in

from pyspark_log.cli.main import main as pylog
from pyspark_log.jobs import export_files

VALUES = ["plain", "", 'with "quotes" \\ and\nlines\x01\t', "ü 漢 \U0001f600", None, '{"json": [1]}']
KEYS = ["a", None, "", "b,c", "d", "e"]
HEADERS = [[], [{"key": "h", "value": b"1"}, {"key": '"', "value": None}], [], [], [], [{"key": "x", "value": b""}]]


@pytest.fixture
def topic(store):
    """A topic with all kinds of text."""
    store.create_topic("t", 1, {"retention.ms": "-1"})
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    store.append("t", pa.record_batch({
        "key": pa.array(KEYS), "value": pa.array(VALUES), "headers": pa.array(HEADERS, kind),
        "timestamp": pa.array(range(T0, T0 + 6), pa.int64()),
    }))  # fmt: skip
    return store


@pytest.fixture
def export(spark, store, tmp_path):
    """Runs the job; returns the one file that it wrote."""

    def run(*arguments):
        target = tmp_path / "files"
        assert export_files.main([store.path, str(target), "--topics", "t", "--partition-by", "none", *arguments]) == 0
        (name,) = files_in(target, "")
        assert name.startswith("t-0-0-6.")
        assert committed(store, "export-files") == {"t-0": 6}
        return target / name

    return run


def test_json_is_what_the_command_line_prints(topic, export):
    file = export("--headers")
    shown = CliRunner().invoke(pylog, ["--store", topic.path, "consume", "t", "--format", "json"]).stdout
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert lines == [json.loads(line) for line in shown.splitlines()]
    assert [line["value"] for line in lines] == VALUES
    assert [list(line)[:2] for line in lines] == [["key", "value"]] * 6


@pytest.mark.slow
def test_base64_in_json(topic, export):
    lines = [json.loads(line) for line in export("--encoding", "base64", "--headers").read_bytes().splitlines()]

    def decoded(text):
        return None if text is None else base64.b64decode(text, validate=True).decode()

    assert [decoded(line["value_base64"]) for line in lines] == VALUES
    assert [decoded(line["key_base64"]) for line in lines] == KEYS
    assert decoded(lines[5]["headers"][0]["value_base64"]) == ""


def test_base64_of_all_lengths(store, export):
    values = [bytes(range(256 - size, 256)) for size in (0, 1, 2, 3, 4, 255)]
    store.create_topic("t", 1)
    store.append("t", pa.record_batch({"value": values}))
    lines = export("--encoding", "base64", "--format", "text").read_bytes().splitlines()
    assert lines == [base64.b64encode(value) for value in values]


def test_csv(topic, export):
    table = pa.csv.read_csv(
        export("--format", "csv", "--columns", "key,value,offset"),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
    )
    assert table.to_pydict() == {"key": KEYS, "value": VALUES, "offset": list(range(6))}


@pytest.mark.slow
def test_csv_of_values_with_a_schema(store, export):
    store.create_topic("t", 1)
    store.append("t", pa.record_batch({"value": [b'{"a": %d, "b": "x"}' % number for number in range(6)]}))
    lines = export("--format", "csv", "--columns", "offset", "--schema", "a INT, b STRING").read_text().splitlines()
    assert lines == ['"offset","a","b"', *(f'{number},{number},"x"' for number in range(6))]


@pytest.mark.slow
def test_text_and_compression(store, export):
    store.create_topic("t", 1)
    store.append("t", pa.record_batch({"value": [f"line {number}" for number in range(6)]}))
    file = export("--format", "text", "--codec", "gzip")
    assert file.name == "t-0-0-6.txt.gz"
    assert gzip.decompress(file.read_bytes()).decode().splitlines() == [f"line {number}" for number in range(6)]


def test_parquet(topic, export):
    assert pq.ParquetFile(export("--format", "parquet")).read()["key"].to_pylist() == [
        None if key is None else key.encode() for key in KEYS
    ]


@pytest.mark.parametrize(
    ("value", "arguments", "why"),
    [
        (b"\xff", ["--format", "json"], "is not text in UTF-8"),
        (b"\xff", ["--format", "csv"], "is not text in UTF-8"),
        (b"a\nb", ["--format", "text"], "has several lines"),
    ],
)
def test_what_a_format_cannot_hold(spark, store, tmp_path, capsys, value, arguments, why):
    store.create_topic("t", 1)
    store.append("t", pa.record_batch({"value": [value]}))
    assert export_files.main([store.path, str(tmp_path / "files"), "--topics", "t", *arguments]) == 1
    assert f"[PYLOG_BAD_VALUE] a value {why}" in capsys.readouterr().err
    assert files_in(tmp_path / "files", "") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "text", "--headers"],
        ["--format", "csv", "--headers"],
        ["--format", "json", "--schema", "a INT"],
        ["--format", "csv", "--schema", "a ARRAY<INT>"],
        ["--format", "json", "--codec", "snappy"],
    ],
)
def test_a_wrong_call_has_code_2(spark, store, tmp_path, arguments):
    assert export_files.main([store.path, str(tmp_path / "files"), "--topics", "t", *arguments]) == 2
