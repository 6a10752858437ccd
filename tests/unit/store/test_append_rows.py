"""What can be appended, and what takes a read as it is: Polars, DuckDB, pandas, pyarrow, dicts."""

import datetime

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from pyspark_log import Store, Transactions
from pyspark_log.errors import InvalidConfigError, InvalidRecordError

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
HEADERS = [[{"key": "source", "value": b"shop"}], None]


@pytest.fixture
def store(place):
    store = Store.create(place)
    store.create_topic("orders", 1)
    return store


def rows(store):
    return store.topic("orders").read(columns=["key", "value", "headers"], headers=True).to_table().to_pylist()


EXPECTED = [{"key": b"a", "value": b"tea", "headers": HEADERS[0]}, {"key": None, "value": b"jam", "headers": None}]
TABLE = pa.table({"key": ["a", None], "value": ["tea", "jam"], "headers": pa.array(HEADERS)})
VIEWS = pa.table(
    {
        "key": pa.array(["a", None], pa.string_view()),
        "value": pa.array([b"tea", b"jam"], pa.binary_view()),
        "headers": pa.array(HEADERS),
    }
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        TABLE.to_reader,
        lambda: VIEWS,
        lambda: pl.DataFrame(TABLE),
        lambda: duckdb.from_arrow(TABLE),
        TABLE.to_pandas,
        TABLE.to_pylist,
        lambda: [{"value": "tea", "headers": [("source", b"shop")], "key": "a"}, {"value": "jam"}],
        lambda: [{"key": "a", "value": b"tea", "headers": (["source", "shop"],)}, {"value": "jam", "headers": None}],
    ],
    ids=["table", "reader", "views", "polars", "duckdb", "pandas", "dicts", "pairs", "texts"],
)
def test_rows_of_any_kind_are_appended(store, make):
    store.append("orders", make())
    assert rows(store) == EXPECTED
    with Transactions(store, "shop").begin() as transaction:
        transaction.append("orders", make())
    assert rows(store) == EXPECTED * 2


def before(us):
    return EPOCH - datetime.timedelta(microseconds=us)


def test_a_column_that_the_first_dict_has_not_is_kept(store):
    store.topic("orders").append([{"value": "tea"}, {"key": "k", "value": "jam"}])
    assert [row["key"] for row in rows(store)] == [None, b"k"]


def test_a_name_in_a_dict_that_is_no_column_is_refused(store):
    """It would be a record without a key, in another partition."""
    with pytest.raises(InvalidRecordError, match="row 1 has 'ky', which is no column; did you mean 'key'"):
        store.topic("orders").append([{"key": "k", "value": "tea"}, {"ky": "k", "value": "jam"}])
    assert rows(store) == []


def test_no_time_is_appended_as_it_is_read(store):
    for times in ([-1], pa.array([-1000], pa.timestamp("us", "UTC"))):
        store.append("orders", pa.record_batch({"value": ["v"], "timestamp": times}))
    store.append("orders", store.topic("orders").read().to_table())
    assert [row["timestamp"] for row in store.topic("orders").read().to_table().to_pylist()] == [before(us=1000)] * 4


@pytest.mark.parametrize("us", [500, 1500])
def test_a_time_before_1970_is_refused(store, us):
    with pytest.raises(InvalidRecordError, match=f"orders: row 1 has the time -{us} us, before 1970"):
        store.append("orders", [{"value": "tea"}, {"value": "jam", "timestamp": before(us)}])
    assert rows(store) == []


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"value": "tea"}, InvalidConfigError, r"expected a list of dicts, got one dict; write \[\{\.\.\.\}\]"),
        ("tea", InvalidConfigError, "a pandas DataFrame or a list of dicts, got str"),
        ([{"value": "tea", "headers": {"source": b"shop"}}], InvalidRecordError, "got a mapping: pass its items()"),
        ([{"value": "tea", "headers": ["ab"]}], InvalidRecordError, "expected a pair of a name and a value, got 'ab'"),
        ([{"value": "tea", "headers": [("a", b"", 1)]}], InvalidRecordError, "expected a pair of a name and a value"),
        ([{"value": "tea", "headers": [("a", 1)]}], InvalidRecordError, "Expected bytes, got a 'int' object"),
        ([{"value": "tea"}, {"value": 5}], InvalidRecordError, "the rows cannot be converted to Arrow data"),
        ([{"value": "tea"}, "plain"], InvalidConfigError, "or a list of dicts, got a list with a str, 'plain'$"),
        (pl.Series([1, 2]), InvalidRecordError, "the rows cannot be converted to Arrow data"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_no_rows_is_refused(store, given, error, message):
    with pytest.raises(error, match=message):
        store.append("orders", given)
    transaction = Transactions(store, "shop").begin()
    with pytest.raises(error, match=message):
        transaction.append("orders", given)
    transaction.commit()  # It was not spoilt.
    assert rows(store) == []


def test_a_scan_is_read_by_polars_duckdb_and_pyarrow(store):
    topic = store.topic("orders")
    topic.append(TABLE)
    scan = topic.read(headers=True)
    assert pa.table(scan) == scan.to_table()
    assert pl.DataFrame(scan).select("key", "value", "headers").to_dicts() == EXPECTED
    assert duckdb.sql("SELECT key, value FROM scan WHERE value = 'jam'::BLOB").fetchall() == [(None, b"jam")]
    assert duckdb.sql("SELECT count(*) FROM scan").fetchall() == [(2,)]  # once more
    topic.append(topic.read())
    assert [row["value"] for row in rows(store)] == [b"tea", b"jam"] * 2
