"""What becomes of the rows of files: keys, values, times, and JSON of any columns. Without Spark."""

import datetime
import decimal
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.jobs.imports import rows
from pyspark_log.jobs.imports.json_rows import json_of_rows
from pyspark_log.jobs.imports.rows import RecordFields
from pyspark_log.jobs.imports.sources import new_files, place_of
from pyspark_log.jobs.imports.tables import database_of
from pyspark_log.jobs.support import JobError
from pyspark_log.storage.catalog import check_name
from pyspark_log.storage.groups import OffsetAndMetadata

WHOLE = RecordFields(None, None, None)
UTC = datetime.UTC

leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
row_values = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=20),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "part": st.none() | st.floats(),
        "truth": st.none() | st.booleans(),
        "list": st.none() | st.lists(st.none() | st.text(max_size=5), max_size=4),
        "nested": st.none()
        | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), 'b"': st.none() | st.text(max_size=5)}),
    }
)
SCHEMA = pa.schema([
    ("text", pa.string()), ("number", pa.int64()), ("part", pa.float64()), ("truth", pa.bool_()),
    ("list", pa.list_(pa.string())), ("nested", pa.struct([("a", pa.int64()), ('b"', pa.string())])),
])  # fmt: skip


@given(st.lists(row_values, min_size=1, max_size=20))
def test_rows_are_the_json_that_python_reads(values):
    found = [json.loads(text) for text in json_of_rows(pa.Table.from_pylist(values, SCHEMA)).to_pylist()]
    for value in values:
        if value["part"] is not None and not math.isfinite(value["part"]):
            value["part"] = None  # JSON has none of them
    assert found == values


def test_the_other_types_in_json():
    table = pa.table(
        {
            "at": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None], pa.timestamp("us", "UTC")),
            "local": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5), None], pa.timestamp("ms")),
            "day": pa.array([datetime.date(2026, 1, 2), None]),
            "price": pa.array([decimal.Decimal("1.50"), None]),
            "map": pa.array([[("k", 1), ("l", None)], None], pa.map_(pa.string(), pa.int64())),
            "word": pa.array(["a", None]).dictionary_encode(),
        }
    )
    first, second = (json.loads(text) for text in json_of_rows(table).to_pylist())
    assert first == {
        "at": "2026-01-02T03:04:05.000006Z",
        "local": "2026-01-02T03:04:05.000",
        "day": "2026-01-02",
        "price": "1.50",
        "map": {"k": 1, "l": None},
        "word": "a",
    }
    assert set(second.values()) == {None}
    with pytest.raises(JobError, match="cannot be written as JSON"):
        json_of_rows(pa.table({"bytes": [b"\xff"]}))


def test_lines_of_text():
    batch = rows.rows_of_text(b"one\r\n\ntwo\nthree", WHOLE)
    assert batch.to_pydict() == {"value": [b"one", b"two", b"three"]}
    with pytest.raises(JobError, match="no columns"):
        rows.rows_of_text(b"one", RecordFields("id", None, None))


def test_lines_of_json_stay_as_they_are():
    lines = [
        b'{"id": 7,  "at": "2026-01-02T00:00:00Z", "more": {"a": [1]}}',
        b'{"id": 8, "at": "2026-01-02T01:00:00Z"}',
    ]
    batch = rows.rows_of_json(b"\n".join(lines), RecordFields("id", None, "at"))
    assert batch["value"].to_pylist() == lines
    assert batch["key"].cast(pa.string()).to_pylist() == ["7", "8"]
    assert [time.hour for time in batch["timestamp"].cast(pa.timestamp("us", "UTC")).to_pylist()] == [0, 1]
    (more, none) = rows.rows_of_json(b"\n".join(lines), RecordFields(None, "more", None))["value"].to_pylist()
    assert json.loads(more) == {"a": [1]}
    assert none is None


@pytest.mark.parametrize(
    ("data", "fields", "reason"),
    [
        (b"{}\nno json", WHOLE, "a line is not a JSON object"),
        (b'[\n{"id": 1},\n]', WHOLE, "a line is not a JSON object"),
        (b'{"id": 1', WHOLE, "a line is not a JSON object"),
        (b'{"id": }', WHOLE, "a line is not a JSON object"),
        (b"\x1f\x8b\xff", WHOLE, "may be compressed"),
        (b'{"id": 1} {"id": 2}\n   \n', WHOLE, "1 lines have 2 JSON objects"),
        (b'{"id": "soon"}', RecordFields(None, None, "id"), "cannot be converted to timestamps"),
        (b'{"id": 1}\n{"id": "a"}', RecordFields("id", None, None), "several types"),
        (b'{"id": 12345678901234567890}', RecordFields("id", None, None), "more than 64 bits"),
        (b'{"id": 1.5}', RecordFields("id", None, None), "with a fraction"),
    ],
)
def test_lines_of_json_that_are_refused(data, fields, reason):
    with pytest.raises(JobError, match=reason):
        rows.rows_of_json(data, fields)


def test_keys_of_json_are_as_they_are_written():
    data = b'{"d": "2026-01-02T10:00:00Z", "x": 1}\n{"d": "n/a", "x": "a"}\n{"x": [2]}'
    assert rows.rows_of_json(data, RecordFields("d", None, None))["key"].to_pylist() == [
        "2026-01-02T10:00:00Z",
        "n/a",
        None,
    ]
    missing = rows.rows_of_json(data, RecordFields("other", None, None))
    assert missing["key"].null_count == 3
    assert missing["value"].to_pylist() == data.split(b"\n")


def test_cells_of_csv_are_as_they_are_written():
    data = b'zip,id,part,empty,text\n01234,12345678901234567890,1.10,,""\n+49,NA,2026-01-02,x,y\n'
    batch = rows.rows_of_csv(data, RecordFields("id", None, None), ",")
    assert batch["key"].to_pylist() == ["12345678901234567890", "NA"]
    assert [json.loads(value) for value in batch["value"].to_pylist()] == [
        {"zip": "01234", "id": "12345678901234567890", "part": "1.10", "empty": None, "text": ""},
        {"zip": "+49", "id": "NA", "part": "2026-01-02", "empty": "x", "text": "y"},
    ]


def test_csv_and_its_times():
    data = b'id;name;at\n1;"a;b\nc";2026-01-02 03:04:05\n2;;2026-01-02 03:04:06\n'
    batch = rows.rows_of_csv(data, RecordFields("id", None, "at"), ";")
    assert batch["key"].to_pylist() == ["1", "2"]
    assert json.loads(batch["value"][0].as_py()) == {"id": "1", "name": "a;b\nc", "at": "2026-01-02 03:04:05"}
    assert batch["timestamp"][1].as_py() == datetime.datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    ms = rows.rows_of_json(b'{"at": 1767323045000}', RecordFields(None, None, "at"))
    assert ms["timestamp"].to_pylist() == [1767323045000]
    with pytest.raises(JobError, match="not CSV"):
        rows.rows_of_csv(b"a,b\n1\n", WHOLE, ",")


def test_parquet_row_groups(tmp_path):
    path = str(tmp_path / "p")
    pq.write_table(pa.table({"id": range(10), "v": [b"%d" % n for n in range(10)]}), path, row_group_size=4)
    (batch,) = rows.rows_of_parquet(path, [1], RecordFields("id", "v", None))
    assert batch.to_pydict() == {"value": [b"4", b"5", b"6", b"7"], "key": ["4", "5", "6", "7"]}
    (tmp_path / "p").write_bytes(b"nothing of the kind")
    with pytest.raises(JobError, match="not Parquet"):
        list(rows.rows_of_parquet(path, [0], WHOLE))


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([b"\xff", None], pa.large_binary()), [b"\xff", None]),
        (pa.array([b"\xff\x00", None], pa.binary(2)), [b"\xff\x00", None]),
        (pa.array(["a", None], pa.large_string()), ["a", None]),
        (pa.array(["a", None]).dictionary_encode(), ["a", None]),
        (pa.array([1.5, None]), ["1.5", None]),
        (pa.array([[1], None]), ["[1]", None]),
    ],
)
def test_values_of_other_types(column, found):
    batch = rows.records_of(pa.table({"v": column}), RecordFields(None, "v", None))
    assert batch["value"].to_pylist() == found


@given(st.text(max_size=300))
def test_any_path_has_a_name_for_its_offset(path):
    check_name(place_of("file", path, "t").topic)
    assert place_of("file", path, "t") != place_of("file", path, "u")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("jdbc:postgresql://host:5432/shop?user=a&password=b", "jdbc:postgresql://host:5432/shop"),
        ("jdbc:mysql://a:b@host/shop", "jdbc:mysql://host/shop"),
        ("jdbc:mysql://a@host/shop", "jdbc:mysql://host/shop"),
        ("jdbc:oracle:thin:a/b@host:1521/shop", "jdbc:oracle:thin:@host:1521/shop"),
        ("jdbc:oracle:thin:@host:1521/shop", "jdbc:oracle:thin:@host:1521/shop"),
        ("jdbc:sqlserver://host:1433;databaseName=shop;password=b", "jdbc:sqlserver://host:1433;databaseName=shop"),
        ("jdbc:derby:/data/shop;create=true", "jdbc:derby:/data/shop"),
    ],
)
def test_no_secret_of_a_database_is_in_the_name_of_its_offset(url, found):
    assert database_of(url) == found


def test_what_is_new_in_a_folder(tmp_path):
    for name in ("b.json", "a.json", "sub/c.json", "_SUCCESS", ".hidden", "_temporary/d.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    files = list(new_files([str(tmp_path)], "t", {}))
    assert [one.path for one in files] == [str(tmp_path / name) for name in ("a.json", "b.json", "sub/c.json")]
    assert list(new_files([str(tmp_path / "*.json")], "t", {})) == files[:2]
    assert list(new_files([str(tmp_path / "**")], "t", {})) == files
    assert list(new_files([str(tmp_path / "*")], "t", {})) == files
    done = {files[0].at: OffsetAndMetadata(1, -1, "", 0)}
    assert list(new_files([str(tmp_path)], "t", done)) == files[1:]
    (tmp_path / "a.json").write_bytes(b"more")
    with pytest.raises(JobError, match="had 1 bytes when it was imported, and has 4 now"):
        list(new_files([str(tmp_path)], "t", done))
    with pytest.raises(JobError, match="no such file"):
        list(new_files([str(tmp_path / "*.csv")], "t", {}))
