"""Four processes append to one partition while two others read it: nothing lost, torn, or out of order."""

import time

import pyarrow as pa

from pyspark_log.storage.store import Store
from tests.processes import PROCESSES

APPENDS = 250
# After how many of its appends a writer waits until both readers have seen the last one.
EVERY = 50
# How long processes may take to start, and a reader to see an append, in seconds.
PATIENCE = 240


def _append(path, writer, barrier, seen):
    store = Store.open(path)
    barrier.wait(PATIENCE)
    for number in range(APPENDS):
        rows = number % 5 + 1
        # Records of one append must stay together, and be distinguished from others.
        appended = store.append("t", pa.record_batch({
            "key": [b"%d" % writer] * rows,
            "value": [b"%d/%d/%d/%d" % (writer, number, row, rows) + b"." * (number % 300) for row in range(rows)],
        }))  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while number % EVERY == 0 and min(seen) <= appended[0].base_offset:
            assert time.monotonic() < deadline, f"the readers have come to {list(seen)}, not behind {appended}"
            time.sleep(0.001)


def _read_until(path, reader, stop, results, barrier, ends):
    """Follows the log until it is asked to stop; returns all that it saw, and how often the end moved."""
    store, position, seen, moves = Store.open(path), 0, [], 0
    barrier.wait(PATIENCE)
    while True:
        last_look = stop.is_set()
        end = store.latest_offset("t", 0)
        assert end >= position, "the log end went back"
        moves += end > position
        for batch in store.read("t", 0, position, end):
            offsets = batch["offset"].to_pylist()
            assert offsets == list(range(position, position + len(offsets)))
            position = offsets[-1] + 1
            seen += batch["value"].to_pylist()
        assert position == end
        ends[reader] = end
        if last_look:
            results.put((seen, moves))
            return
        time.sleep(0.001)


def test_four_writers_and_two_readers(tmp_path):
    path = str(tmp_path / "store")
    store = Store.create(path)
    store.create_topic("t", 1, {"segment.bytes": "20000", "index.interval.bytes": "500"})
    barrier, stop, results = PROCESSES.Barrier(6), PROCESSES.Event(), PROCESSES.Queue()
    ends = PROCESSES.Array("q", 2)
    readers = [
        PROCESSES.Process(target=_read_until, args=(path, number, stop, results, barrier, ends), daemon=True)
        for number in range(2)
    ]
    writers = [
        PROCESSES.Process(target=_append, args=(path, number, barrier, ends), daemon=True) for number in range(4)
    ]
    for process in readers + writers:
        process.start()
    for process in writers:
        process.join()
        assert process.exitcode == 0
    stop.set()
    views = [results.get(timeout=PATIENCE) for _ in readers]
    for process in readers:
        process.join()
        assert process.exitcode == 0

    log = [value for batch in store.read("t", 0) for value in batch["value"].to_pylist()]
    for seen, moves in views:
        assert seen == log
        assert moves >= APPENDS // EVERY, "the readers are to read while the writers write"
    wanted = [
        [
            b"%d/%d/%d/%d" % (writer, number, row, number % 5 + 1)
            for number in range(APPENDS)
            for row in range(number % 5 + 1)
        ]
        for writer in range(4)
    ]
    found = [value.rstrip(b".") for value in log]
    for writer in range(4):
        assert [value for value in found if value.startswith(b"%d/" % writer)] == wanted[writer]
    assert len(found) == sum(map(len, wanted))
    for at, value in enumerate(found):
        writer, number, row, rows = value.split(b"/")
        if row == b"0":
            together = [b"/".join((writer, number, b"%d" % other, rows)) for other in range(int(rows))]
            assert found[at : at + int(rows)] == together, "an append was mixed with another"
    assert len(store.segment_files("t", 0)) > 5
