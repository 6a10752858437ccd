"""The disk begins to write appended records early, so that little is left for the sync with which a segment ends."""

import pyarrow as pa
import pytest

from pyspark_log import Store
from pyspark_log.storage.fs import files

MIB = 1 << 20


@pytest.fixture
def begun(monkeypatch):
    """What the disk is asked to write: ranges of bytes."""
    ranges = []
    monkeypatch.setattr(files.File, "begin_sync", lambda _, position, size: ranges.append((position, position + size)))
    return ranges


def _append(store, size):
    store.append("t", pa.record_batch({"value": [b"x" * size]}))


def test_what_is_appended_is_written_bit_by_bit(tmp_path, begun):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1, {"max.message.bytes": str(3 * MIB)})
        for _ in range(20):
            _append(store, MIB)
    assert [start for start, _ in begun] == [0, *[end for _, end in begun[:-1]]]
    assert all(8 * MIB <= end - start < 10 * MIB for start, end in begun)
    assert begun[-1][1] > 12 * MIB


def test_what_others_have_appended_is_left_to_them(tmp_path, begun):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1, {"max.message.bytes": str(3 * MIB)})
        for _ in range(7):
            _append(store, MIB)
    with Store.open(tmp_path / "store") as store:
        for _ in range(7):
            _append(store, MIB)
    assert begun == []
