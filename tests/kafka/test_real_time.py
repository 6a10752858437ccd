"""Spark's real-time mode at `pylog serve`: the sample of docs/guides/real-time.md, stopped amid its batches."""

import pyarrow as pa
import pytest

from pyspark_log import Store
from tests.samples import samples
from tests.server_tools import served
from tests.store_tools import all_values
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("kafka")]


@pytest.fixture
def store(tmp_path):
    (tmp_path / "data").mkdir()
    with Store.create(tmp_path / "data/store") as store:
        store.create_topic("orders", 2)
        store.create_topic("shouted", 2, {"source.position.header": "source"})
        yield store


def rows(store, topic, partition):
    return [row for part in store.read(topic, partition, headers=True) for row in part.to_pylist()]


def test_the_sample_writes_each_record_once(spark, store, tmp_path):
    [sample] = [one for one in samples() if one.name == "real-time.md: A sample #2"]
    # No batch ends before it is stopped, however slow the machine is: at its end the threads of this session would look
    # for classes of the connector, which was added when they ran already.
    code, short = sample.code_in(tmp_path), 'realTime="10 seconds"'
    assert short in code
    code = code.replace(short, 'realTime="1 hour"')
    expected = []

    def append(first):
        values = [f"order {number}" for number in range(first, first + 50)]
        store.append("orders", pa.record_batch({"key": values[:25] + [None] * 25, "value": values}))
        expected.extend(value.upper().encode() for value in values)

    with served(store.path, tmp_path) as server:
        for run in range(3):
            append(50 * run)
            names = {"spark": spark}
            exec(code.replace("127.0.0.1:9092", server.bootstrap), names)
            try:
                wait_until(lambda: len(all_values(store, "shouted")) >= len(expected), "the records have come out")
            finally:
                names["query"].stop()
            # It was stopped long before the end of its batch, so all of this comes again.
            assert sorted(all_values(store, "shouted")) == sorted(expected)
    sources = {
        row["value"].upper(): (number, row["offset"]) for number in range(2) for row in rows(store, "orders", number)
    }
    for row in rows(store, "shouted", 0) + rows(store, "shouted", 1):
        partition, offset = sources[row["value"]]
        assert row["headers"] == [{"key": "source", "value": b"shout/orders/%d/%d/0" % (partition, offset)}]
    left_out = store.latest_offset("shouted", 0) + store.latest_offset("shouted", 1) - len(expected)
    assert left_out > 0
