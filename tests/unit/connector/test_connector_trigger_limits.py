"""Both limits of a micro-batch together, and what a reader reports of the log ends, without Spark."""

from test_connector_stream_reader import append, batch, reader_of, store

__all__ = ["store"]  # a fixture


def sizes(ranges):
    return [stop - start for _, start, stop in ranges]


def test_the_least_and_the_most_together(store, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("pyspark_log.spark_connector.reading.stream_reader.time.monotonic", lambda: now[0])
    reader = reader_of(store, minOffsetsPerTrigger="15", maxOffsetsPerTrigger="20", maxTriggerDelay="5s")
    limit = reader.getDefaultReadLimit()
    append(store, 0, 10)
    end, ranges = batch(reader, reader.initialOffset(), limit)
    assert sizes(ranges) == [10]
    append(store, 0, 6)
    assert reader.latestOffset(end, limit) == end
    append(store, 0, 30)
    for expected in (20, 16):
        end, ranges = batch(reader, end, limit)
        assert sizes(ranges) == [expected]
    append(store, 1, 3)
    assert reader.latestOffset(end, limit) == end
    now[0] += 5
    end, ranges = batch(reader, end, limit)
    assert sizes(ranges) == [3]


def behind(reader, end):
    """How many records each partition has beyond the end of a batch."""
    seen = reader.reportLatestOffset()["t"]
    return {int(partition): seen[partition] - end["t"][partition] for partition in seen}


def test_what_is_left_after_a_batch(store):
    append(store, 0, 1)
    append(store, 1, 2)
    reader = reader_of(store)
    end, _ = batch(reader, reader.initialOffset())
    assert behind(reader, end) == {0: 0, 1: 0}
    append(store, 0, 2)
    append(store, 1, 4)
    later = reader_of(store, startingOffsets='{"t":{"0":1,"1":2}}')
    later.latestOffset(later.initialOffset(), later.getDefaultReadLimit())
    assert behind(later, end) == {0: 2, 1: 4}


def test_no_log_ends_are_reported_before_the_first_look(store):
    assert reader_of(store).reportLatestOffset() is None
