"""Values in Avro become columns; those that are not of the schema are found, and move no others."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import click
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastavro.utils import generate_many
from hypothesis import example, given
from hypothesis import strategies as st
from job_tools import committed, files_in

from pyspark_log.jobs import bulk_load
from pyspark_log.jobs.export.avro_values import avro_values
from pyspark_log.jobs.support import JobError

SCHEMA = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "flags", "type": {"type": "map", "values": "boolean"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "kinds", "type": {"type": "array", "items": ["Kind", "null"]}},
        {"name": "raw", "type": "bytes"}, {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [
            {"name": "x", "type": "double"}, {"name": "y", "type": ["float", "null"]},
        ]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "fine", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "nothing", "type": "null"},
    ],
}  # fmt: skip
ORDER = {
    "id": -5, "name": "anna", "flags": {"paid": True}, "kind": "OLD", "kinds": ["NEW", None], "raw": b"\0\xff",
    "digest": b"abcd", "place": {"x": 0.5, "y": None}, "at": datetime(2026, 1, 2, 3, 4, 5, 6000, UTC),
    "fine": datetime(1969, 1, 2, 3, 4, 5, 6, UTC), "local": datetime(2026, 1, 2), "day": date(2026, 2, 3),
    "clock": 86_341_000, "price": Decimal("-12.25"), "uid": "8f14e45f-ceea-467f-a0e6-9f3e1f7f5c1a",
    "nothing": None,
}  # fmt: skip
SMALL = {
    "type": "record",
    "name": "Small",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
}


def encoded(schema, record):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, record)
    return data.getvalue()


def values_of(schema, registry_id=None, *, bad_as_null=False):
    return avro_values(json.dumps(schema), registry_id, bad_as_null=bad_as_null)


def columns(found, values):
    rows = pa.record_batch({"value": pa.array(values, pa.binary()), "offset": pa.array(range(len(values)), pa.int64())})
    return found.added(rows.select(["offset"]), rows).drop_columns("offset").to_pylist()


def test_each_type_has_its_column():
    found = values_of(SCHEMA)
    [row, empty] = columns(found, [encoded(SCHEMA, ORDER), None])
    assert row | {"flags": dict(row["flags"])} == ORDER
    assert set(empty.values()) == {None}
    assert [str(found.schema.field(name).type) for name in ("id", "at", "fine", "day", "price", "digest")] == [
        "int64",
        "timestamp[ms, tz=UTC]",
        "timestamp[us, tz=UTC]",
        "date32[day]",
        "decimal128(9, 2)",
        "fixed_size_binary[4]",
    ]


def test_many_are_as_fastavro_reads_them():
    plain = json.loads(json.dumps(SCHEMA))
    plain["fields"] = [one for one in plain["fields"] if not isinstance(one["type"], dict) or "items" in one["type"]]
    plain["fields"] = [one for one in plain["fields"] if one["name"] in ("id", "name", "raw")]
    records = list(generate_many(plain, 3000))
    assert columns(values_of(plain), [encoded(plain, one) for one in records]) == records


VALUE = encoded(SMALL, {"id": 300, "name": "anna"})


@given(st.lists(st.one_of(
    st.just(VALUE), st.none(), st.binary(max_size=12), st.integers(0, len(VALUE) - 1).map(lambda size: VALUE[:size]),
    st.binary(min_size=1, max_size=9).map(lambda more: VALUE + more),
), max_size=20))  # fmt: skip
@example([b"\x00\x03"])
def test_a_wrong_value_moves_no_other(values):
    found = columns(values_of(SMALL, bad_as_null=True), values)
    for value, row in zip(values, found, strict=True):
        expected = {"id": None, "name": None}
        if value is not None:
            data = io.BytesIO(value)
            try:
                record = fastavro.schemaless_reader(data, SMALL, None)
            except Exception:  # noqa: BLE001  (what is no value raises what it likes)
                record = expected
            # Of a union's branch below 0, which there is not, fastavro makes one from the end.
            if data.read() == b"" and (row == record or encoded(SMALL, record) == value):
                expected = record
        assert row == expected


def test_a_wrong_value_is_an_error_with_its_offset():
    with pytest.raises(JobError, match="the value at offset 2 does not fit the schema"):
        columns(values_of(SMALL), [VALUE, VALUE, VALUE[:-1], VALUE])


def test_values_of_a_registry():
    prefix = b"\0\0\0\1\4"
    found = values_of(SMALL, 260)
    assert columns(found, [prefix + VALUE, None]) == [{"id": 300, "name": "anna"}, {"id": None, "name": None}]
    for other in (VALUE, b"\0\0\0\1\5" + VALUE, b"\1\0\0\1\4" + VALUE, b""):
        with pytest.raises(JobError, match="not with the schema id 260"):
            columns(found, [prefix + VALUE, other])


def test_values_of_another_schema_can_be_null():
    values = [b"\0\0\0\1\4" + VALUE, b"\0\0\0\1\5" + VALUE, None, VALUE] * 3000
    found = columns(values_of(SMALL, 260, bad_as_null=True), values)
    assert [row["id"] for row in found] == [300, None, None, None] * 3000


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("Order", "refers to itself"),
        ("number", "not an Avro schema"),
        ({"type": "array", "items": ["null", "Order"]}, "refers to itself"),
        ({"type": "record", "name": "Empty", "fields": []}, "is empty"),
        ({"type": "array", "items": {"type": "fixed", "name": "Empty", "size": 0}}, "is empty"),
    ],
)
def test_a_schema_without_columns_is_refused(field, problem):
    with pytest.raises(click.UsageError, match=problem):
        values_of({"type": "record", "name": "Order", "fields": [{"name": "it", "type": field}]})


# ---- the job


@pytest.fixture
def load(spark, store, tmp_path):
    """Loads values with arguments; returns the exit code."""

    def run(values, *arguments):
        store.create_topic("t", 1)
        store.append("t", pa.record_batch({"value": pa.array(values, pa.binary())}))
        target = str(tmp_path / "lake")
        return bulk_load.main([store.path, target, "--topics", "t", "--partition-by", "none", *arguments])

    return run


def test_a_load(load, spark, store, tmp_path):
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    assert load([encoded(SCHEMA, ORDER)] * 3, "--columns", "offset", "--schema", f"@{tmp_path}/order.avsc") == 0
    rows = pq.read_table(tmp_path / "lake").to_pylist()
    assert [(row["offset"], row["price"]) for row in rows] == [(offset, Decimal("-12.25")) for offset in range(3)]
    [row] = spark.read.parquet(str(tmp_path / "lake")).where("offset = 1").collect()
    assert (row["flags"], row["place"]["x"], row["day"]) == ({"paid": True}, 0.5, date(2026, 2, 3))


def test_a_load_of_values_of_another_schema(load, store, tmp_path, capsys):
    schema = json.dumps(SMALL)
    assert load([b"\0\0\0\0\7" + VALUE, VALUE], "--schema", schema, "--schema-id", "7") == 1
    assert "[PYLOG_BAD_VALUE] the value at offset 1" in capsys.readouterr().err
    assert files_in(tmp_path / "lake") == []
    assert committed(store) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--schema-id", "7"],
        ["--schema-id", "7", "--schema", "id INT"],
        ["--schema", '{"type": "record"}'],
        ["--schema", json.dumps(SMALL | {"fields": [{"name": "offset", "type": "int"}]})],
        ["--schema", json.dumps(SMALL | {"fields": [{"name": "Offset", "type": "int"}]})],
        ["--schema", json.dumps(SMALL | {"fields": [{"name": "id", "type": "int"}, {"name": "ID", "type": "int"}]})],
    ],
)
def test_a_wrong_call(load, capsys, arguments):
    assert load([VALUE], *arguments) == 2
    assert "--schema" in capsys.readouterr().err
