"""Jobs made for Kafka, which `pylog move-job` moves to a store: they make the same rows."""

import importlib.util
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest
import strangers_jobs
from click.testing import CliRunner
from pyspark import cloudpickle
from strangers_jobs import JOBS, TOPICS, At, going_on, rows_of

from pyspark_log.cli.main import main
from tests.waiting import wait_until

#: Of each kind of job there is one that is not long.
_OF_EACH_KIND = {
    "batches_of_a_pattern_of_two_topics_and_between_offsets",
    "batch_write_without_a_mode",
    "streams_to_a_topic_by_option_and_by_column",
    "json_with_lists_into_files",
    "avro_into_a_topic",
    "tumbling_windows",
    "a_join_of_streams",
    "each_batch_as_an_rdd",
    "json_from_the_latest_offset_on",
    "alerts_saved_from_each_batch",
    "word_counts_to_a_topic_in_update_mode",
    "frames_between_offsets_in_pandas",
}
EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python/sql/streaming"


@pytest.fixture(scope="module")
def filled(sides):
    """Both sides, with the topics that the jobs read."""
    for side in sides:
        for topic, partitions in TOPICS.items():
            side.create(topic, len(partitions))
            for number, values in enumerate(partitions):
                side.send(topic, rows_of(values), number)
    return sides


@pytest.fixture
def places(broker, filled, tmp_path, request):
    """Where a job runs: at a broker, and then, moved, at a store."""
    name = request.node.name.partition("[")[2].rstrip("]") or "example"
    return [At(broker.bootstrap, side, tmp_path / side.name, name) for side in filled]


def move(path, into, store):
    """Moves a job for Kafka into another file; nothing is left to do by hand."""
    shutil.copyfile(path, into)
    result = CliRunner().invoke(main, ["move-job", "--write", "--store", store.path, str(into)])
    assert result.exit_code == 0, result.stderr
    return into


@pytest.fixture(scope="module")
def moved_jobs(sides, tmp_path_factory):
    """The jobs after their move."""
    _, ours = sides
    path = move(strangers_jobs.__file__, tmp_path_factory.mktemp("jobs") / "moved_jobs.py", ours.store)
    assert "kafka.bootstrap" not in path.read_text()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # Spark's Python processes do not find the file.
    yield module.JOBS
    del sys.modules[path.stem]


def test_there_are_all_shapes():
    """With the one of PySpark's own examples."""
    assert len(JOBS) + 1 == 28


@pytest.mark.parametrize(
    "name", [name if name in _OF_EACH_KIND else pytest.param(name, marks=pytest.mark.long) for name in JOBS]
)
def test_both_make_the_same_rows(spark, moved_jobs, places, name):
    jobs = JOBS[name], moved_jobs[name]
    expected, found = (sorted(map(repr, job.function(spark, at))) for job, at in zip(jobs, places, strict=True))
    assert found == expected
    assert len(found) == JOBS[name].rows


def test_sparks_own_example(spark, places, tmp_path, monkeypatch):
    """structured_kafka_wordcount.py as PySpark brings it; its counts are in its checkpoint too."""
    monkeypatch.setattr(sys, "argv", [])
    example = EXAMPLES / "structured_kafka_wordcount.py"
    scripts = example, move(example, tmp_path / "moved.py", places[1].side.store)
    counts = []
    for script, at in zip(scripts, places, strict=True):
        topic, folder = at.topic("lines"), tmp_path / f"{at.side.name}-checkpoints"
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(folder))
        sys.argv = [example.name, at.servers, "subscribe", topic]
        with ThreadPoolExecutor(1) as beside:
            # The script runs here, as the jars that were added are those of this thread; it waits for its query.
            ended = beside.submit(feed_and_stop, spark, at, topic)
            try:
                exec(compile(script.read_text(), "example", "exec"), {"__name__": "__main__"})
            finally:
                spark.conf.unset("spark.sql.streaming.checkpointLocation")
            ended.result()
        (checkpoint,) = folder.iterdir()
        state = spark.read.format("statestore").load(str(checkpoint))
        counts.append(sorted(map(tuple, state.selectExpr("key.word", "value.count").collect())))
    assert counts[0] == counts[1] == [("a", 2), ("b", 1), ("c", 1)]


def feed_and_stop(spark, at, topic):
    """Sends records to the one query that another thread starts, and ends it."""
    wait_until(lambda: spark.streams.active, "a query starts")
    (query,) = spark.streams.active
    try:
        going_on(query, at, topic, ["a b a", "c"])
    finally:
        query.stop()
