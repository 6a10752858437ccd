"""Topic configs that concern records are obeyed by each way in which a store of either kind takes rows.

How a folder obeys all of them, also those of a log: tests/unit/log/test_configs_of_every_append.py. What an object
store does with batches of clients: tests/unit/server/test_object_appends.py.
"""

import pyarrow as pa
import pytest

from pyspark_log import Store
from pyspark_log.errors import InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.fs.clock import now_ms
from tests.store_tools import all_values, stage, values

HOUR = 3_600_000


@pytest.fixture(params=["append", "publish"])
def write(request, place):
    """Writes one record to a new topic with some configs; returns the store."""
    store = Store.create(place)

    def write(configs, value=b"v", key=b"k", age=0):
        store.create_topic("t", 1, {"retention.ms": "-1", **configs})
        time = pa.array([now_ms() - age], pa.int64())
        data = pa.record_batch({"key": pa.array([key], pa.binary()), "value": [value], "timestamp": time})
        if request.param == "append":
            store.append("t", data)
        else:
            store.publishes.publish("p", 0, stage(store, data))
        return store

    write.store = store
    return write


@pytest.mark.parametrize(
    ("configs", "record", "error"),
    [
        ({"max.message.bytes": "1000"}, {"value": b"v" * 1001}, RecordTooLargeError),
        ({"message.timestamp.before.max.ms": "1000"}, {"age": HOUR}, InvalidRecordError),
        ({"message.timestamp.after.max.ms": "1000"}, {"age": -HOUR}, InvalidRecordError),
        ({"cleanup.policy": "compact"}, {"key": None}, InvalidRecordError),
    ],
    ids=["size", "before", "after", "compacted"],
)
def test_what_is_refused(write, configs, record, error):
    reason = "compacted" if "cleanup.policy" in configs else next(iter(configs)).replace(".", r"\.")
    with pytest.raises(error, match=reason):
        write(configs, **record)
    assert all_values(write.store) == []


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression(write, codec):
    store = write({"compression.type": codec}, b"v" * 50_000)
    assert values(store) == [b"v" * 50_000]
    assert (store.partitions.size("t", 0) > 50_000) == (codec == "uncompressed")
