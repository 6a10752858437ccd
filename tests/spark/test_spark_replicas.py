"""Spark reads copies of partitions of a Kafka cluster: those of a node up to the high watermark; it writes to none."""

import pytest
from spark_tools import end_offset, fails, fill, read, read_stream, run_to_the_end, values_of, write

from pyspark_log import Store
from pyspark_log.storage.log.appending.replica import append_copied, raise_high_watermark
from pyspark_log.storage.log.state import EMPTY
from pyspark_log.storage.log.state.partition_state import MIRROR, of_node
from pyspark_log.storage.record import scan


@pytest.fixture
def copy(store, tmp_path):
    """Copies the partition of topic `t` with ten records, one by one, for an owner; returns the store of the copy."""
    made = []

    def make(owner):
        fill(store, "t", [b"%d" % number for number in range(10)])
        copied = Store.create(tmp_path / "copied")
        made.append(copied)
        copied.create_topic("t", 1)
        copied.logs.make_state(copied.logs.topic("t"), 0, begins=EMPTY._replace(owner_node=owner))
        with open(store.segment_files("t", 0)[0], "rb") as file:
            data = file.read()
        with copied.logs.writer("t", 0).hold() as writer:
            for header in scan(data, 0, len(data)):
                append_copied(writer.log, memoryview(data), [header])
        return copied

    yield make
    for one in made:
        one.close()


@pytest.mark.slow
def test_a_query_never_sees_beyond_the_high_watermark_of_a_node(spark, copy, tmp_path):
    copied = copy(of_node(7))
    assert values_of(read(spark, copied, "t")) == []
    for seen in (4, 7):
        with copied.logs.writer("t", 0).hold() as writer:
            raise_high_watermark(writer.log, seen)
        assert len(values_of(read(spark, copied, "t"))) == seen
        rows = read_stream(spark, copied, "t").writeStream.format("noop")
        query = run_to_the_end(rows, tmp_path / "checkpoint")
        assert end_offset(query) == {"t": {"0": seen}}


def test_a_write_into_a_mirrored_topic_is_refused(spark, copy):
    copied = copy(MIRROR)
    rows = spark.createDataFrame([("x",)], "value string")
    with fails("PYLOG_PARTITION_OWNED", "pylog mirror --promote"):
        write(rows, copied, topic="t")
    assert len(values_of(read(spark, copied, "t"))) == 10
    assert copied.publishes.pending() == []
