"""Appends to a topic with source positions are stopped before each change to files, or the power fails there.

Then the source sends all of it again: what the log has is left out, and what it has lost is not.
"""

import pyarrow as pa
from attacks import Attacked
from sampling import SAMPLED

from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.store import Store
from tests.store_tools import damages, values

pytestmark = SAMPLED

RECORDS = 12
#: What is sent, batch by batch: the second and later ones repeat a part of the one before them.
SENT = [range(max(0, first - 1), first + 2) for first in range(0, RECORDS, 2)]
CONFIG = {"source.position.header": "from", "segment.bytes": "260", "retention.ms": "-1"}


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = 1_700_000_000_000


def send(path, numbers):
    """Each call as another process."""
    texts = [b"%d" % number for number in numbers]
    columns = RecordColumns(
        pa.nulls(len(texts), pa.binary()), pa.array(texts, pa.binary()), pa.array([NOW] * len(texts), pa.int64()),
        pa.array([[{"key": "from", "value": b"s/%s/0" % text}] for text in texts], HEADERS), NOW,
    )  # fmt: skip
    builder = BatchBuilder(1 << 20, 1 << 20, "none")
    assert builder.append(columns, None, 0, len(texts)) == len(texts)
    Store.open(path).append_batch("t", 0, builder.seal())


class TestPositions(Attacked):
    parts = 3
    most_stops, most_losses = 400, 150

    def make(self, path):
        Store.create(path).create_topic("t", 1, CONFIG)

    def run(self, path):
        for numbers in SENT:
            send(path, numbers)

    def check_whole(self, path):
        assert numbers_in(path) == list(range(RECORDS))

    def check(self, path):
        found = numbers_in(path)
        assert found == list(range(len(found)))
        assert damages(path) == []
        for numbers in SENT:
            send(path, numbers)
        assert numbers_in(path) == list(range(RECORDS))
        assert damages(path) == []


def numbers_in(path):
    return [int(value) for value in values(Store.open(path))]


def test_segments_begin_meanwhile(tmp_path):
    """Otherwise no file of positions would be attacked."""
    TestPositions().make(tmp_path / "store")
    TestPositions().run(tmp_path / "store")
    assert len(list((tmp_path / "store/data/t-0").glob("*.positions"))) == 2
