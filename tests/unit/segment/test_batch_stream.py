"""The stream of batches through one buffer, and the chain of intact batches at the end of a log."""

import pytest
from record_tools import Record, build

from pyspark_log.errors import BatchTooLargeError, CorruptRecordError, LogDamagedError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import assign_offsets, scan
from pyspark_log.storage.segment import BatchStream
from pyspark_log.storage.segment.batch_stream import intact_batches

SIZES = [10, 10, 5000, 10, 10, 10]


@pytest.fixture
def log(tmp_path):
    data = bytearray(b"".join(build([Record(None, b"v" * size)]) for size in SIZES))
    assign_offsets(data, 0, len(data), 0, 0)
    (tmp_path / "log").write_bytes(data)
    with files.open_write(str(tmp_path / "log")) as file:
        yield file


def take(buffer, at, filled):
    headers = scan(buffer, at, filled, check_crcs=True)
    return (headers[-1].end, [header.base_offset for header in headers]) if headers else (at, [])


def pieces(stream, file, start=0, end=None):
    return [taken for taken in stream.read(file, start, file.size() if end is None else end, take) if taken]


class Stale:
    """A file whose first reads of the byte at a position return zeros from there on.

    `found`: how many bytes each read has returned.
    """

    def __init__(self, file, position=0, reads=0):
        self.file, self.path, self.position, self.reads = file, file.path, position, reads
        self.found = []

    def size(self):
        return self.file.size()

    def pread_into(self, buffer, position):
        found = self.file.pread_into(buffer, position)
        self.found.append(found)
        at = self.position - position
        if self.reads and 0 <= at < found:
            self.reads -= 1
            buffer[at:] = bytes(len(buffer) - at)
        return found


def test_a_batch_that_is_larger_than_the_window_comes_in_a_larger_buffer(log):
    stream = BatchStream(10_000, window=300)
    small = log.size() - 5000
    assert small < 5000
    assert pieces(stream, log) == [[0, 1], [2], [3, 4, 5]]
    assert stream.position == log.size()
    start = scan(log.pread(log.size(), 0), 0, log.size())[3].position
    assert pieces(stream, log, start) == [[3, 4, 5]]


def test_the_first_read_of_a_region_is_smaller_than_the_later_ones(tmp_path):
    one = build([Record(None, b"v" * 100)])
    data = bytearray(one * 10)
    assign_offsets(data, 0, len(data), 0, 0)
    (tmp_path / "log").write_bytes(data)
    stream = BatchStream(10_000, window=len(one), later=4 * len(one))
    with files.open_read(str(tmp_path / "log")) as log:
        assert pieces(stream, log) == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9]]
        # The larger buffer stays.
        assert pieces(stream, log) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_no_buffer_grows_beyond_the_limit(log):
    with pytest.raises(BatchTooLargeError, match=r"t-1: .*/log at byte \d+ \(base offset 2\).* more than 4000 bytes"):
        pieces(BatchStream(4000, "t", 1, window=300), log)


@pytest.mark.parametrize("left", [1, 20, 70])
def test_a_region_that_ends_within_a_batch_is_damage(log, left):
    last = scan(log.pread(log.size(), 0), 0, log.size())[-1].position
    with pytest.raises(CorruptRecordError, match=f"{left} are left") as raised:
        pieces(BatchStream(10_000, "t", 1), log, end=last + left)
    error = raised.value
    assert (error.topic, error.partition, error.file, error.position) == ("t", 1, log.path, last)


def test_a_file_that_is_shorter_than_the_region_is_damage(log):
    with pytest.raises(LogDamagedError, match=rf"t-1: {log.path} has {log.size()} bytes but had {log.size() + 5}"):
        pieces(BatchStream(10_000, "t", 1), log, end=log.size() + 5)


def test_a_bad_batch_is_read_again_as_often_as_was_asked(log):
    """The first read takes the batches before it."""
    fourth = scan(log.pread(log.size(), 0), 0, log.size())[3].position
    assert pieces(BatchStream(10_000, tries=3), Stale(log, fourth, 2)) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(CorruptRecordError) as raised:
        pieces(BatchStream(10_000, tries=3), Stale(log, fourth, 3))
    assert raised.value.position == fourth


@pytest.mark.parametrize("sizes", [[250], [400], [1000], [10, 10, 1050]])
def test_no_byte_is_read_twice(tmp_path, sizes):
    """Though most buffers end within a batch, of which there can be more in it than of those before it."""
    values = [bytes([number]) * size for number, size in enumerate(sizes * (40 // len(sizes)))]
    data = bytearray(b"".join(build([Record(None, value)]) for value in values))
    assign_offsets(data, 0, len(data), 0, 0)
    (tmp_path / "log").write_bytes(data)
    found = []
    with files.open_read(str(tmp_path / "log")) as file:
        log = Stale(file)
        for taken in BatchStream(10_000, window=1200).read(log, 0, len(data), take):
            found += taken
    assert found == list(range(len(values)))
    assert sum(log.found) == len(data)


def test_intact_batches_end_before_the_first_that_is_incomplete_bad_or_does_not_follow(log):
    headers = scan(log.pread(log.size(), 0), 0, log.size())
    assert list(intact_batches(log, 0, log.size(), 0)) == headers
    assert list(intact_batches(log, headers[2].position, log.size(), 2)) == headers[2:]
    assert list(intact_batches(log, headers[2].position, log.size(), 3)) == []
    assert list(intact_batches(log, 0, headers[5].end - 1, 0)) == headers[:5]
    log.pwrite(b"\xff", headers[3].end - 1)
    assert list(intact_batches(log, 0, log.size(), 0)) == headers[:3]
