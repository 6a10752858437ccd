"""A topic `t` whose records are numbers in order."""

import pyarrow as pa

from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.store import Store

RECORDS = 30


def rows(first, count=3, padding=30):
    """Records with the numbers from one on."""
    return pa.record_batch({"value": [b"%d" % (first + row) + b"." * padding for row in range(count)]})


def numbers(path):
    """The numbers that readers see, in order."""
    return [int(v.rstrip(b".")) for b in Store.open(path).read("t", 0) for v in b["value"].to_pylist()]


def make_segments(path):
    """Ten batches of three records, two batches a segment."""
    with Store.create(path) as store:
        store.create_topic("t", 1, {"segment.bytes": "400", "index.interval.bytes": "1", "retention.ms": "-1"})
        for first in range(0, RECORDS, 3):
            store.append("t", rows(first))
        assert list_segments(f"{path}/data/t-0") == [0, 6, 12, 18, 24]
        return store
