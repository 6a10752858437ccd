"""The history of a store: rates and lags of the last minutes, in as much memory as it has at first."""

from pyspark_log.monitoring import Snapshot, TopicSnapshot
from pyspark_log.storage.log_manager import PartitionDescription
from pyspark_log.types import TopicPartition
from pyspark_log.ui import bounds
from pyspark_log.ui.history import History, Trend, latest


def snapshot(second, ends, committed=None, size=0):
    """A store with these topics, of a partition each."""
    topics = {
        name: TopicSnapshot(1, [PartitionDescription(0, log_start=0, high_watermark=end, size=size)])
        for name, end in ends.items()
    }
    return Snapshot(1000 * second, 0.0, topics=topics, committed={
        group: {TopicPartition(topic, 0): offset} for group, (topic, offset) in (committed or {}).items()
    })  # fmt: skip


def test_rates_and_lags():
    history = History(None)
    for number in range(10):
        history.note(snapshot(5 * number, {"a": 100 * number, "b": 7}, {"g": ("a", 80 * number)}, size=1000 * number))
    assert history.written("a") == [(5.0 * number, 20.0) for number in range(1, 10)]
    assert latest(history.written("a")) == 20
    assert latest(history.written("b")) == 0
    assert latest(history.bytes_written("a")) == 200
    assert latest(history.all_written(["a", "b"])) == 20
    assert history.lag(["g"]) == [(5.0 * number, 20.0 * number) for number in range(10)]
    assert history.trend("g") == Trend(20, 16)
    assert history.written("none") == []
    assert history.trend("none") == Trend(None, None)


def test_what_is_known_already_or_could_not_be_read_is_no_sample():
    history = History(None)
    history.note(snapshot(1, {"a": 1}))
    history.note(snapshot(1, {"a": 5}))
    history.note(Snapshot(8000, 0.0, problem="gone"))
    history.note(snapshot(9, {"a": 5}))
    assert history.written("a") == [(9.0, 0.5)]


def test_pages_that_ask_often_do_not_make_it_shorter():
    history = History(None)
    for second in range(0, 1200, 2):
        history.note(snapshot(second, {"a": second}))
    times = [time for time, _ in history.written("a")]
    assert times[-1] - times[0] >= 600 - 2 * 5


def test_a_clock_that_is_set_back():
    history = History(None)
    for second, end in ((9000, 0), (1000, 0), (1005, 5)):
        history.note(snapshot(second, {"a": end}))
    assert history.written("a") == [(1005.0, 1.0)]


def test_a_topic_that_is_deleted_and_recreated():
    history = History(None)
    for second, end in ((5, 50), (10, 60), (15, None), (20, 0), (25, 10)):
        history.note(snapshot(second, {} if end is None else {"a": end}))
    assert history.written("a") == [(25.0, 2.0)]


def test_it_keeps_so_many_samples_and_topics():
    history = History(None)
    names = [f"t{number}" for number in range(bounds.MOST_HISTORIES + 10)]
    for number in range(3 * bounds.SAMPLES):
        history.note(snapshot(5 * number, {"t0": 10 * number}))
    assert history.written("t0") == [
        (5.0 * number, 2.0) for number in range(2 * bounds.SAMPLES + 1, 3 * bounds.SAMPLES)
    ]
    history.note(snapshot(10_000, dict.fromkeys(names, 1)))
    history.note(snapshot(10_005, dict.fromkeys(names, 2)))
    assert sum(bool(history.written(name)) for name in names) == bounds.MOST_HISTORIES
