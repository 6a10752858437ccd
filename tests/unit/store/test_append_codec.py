"""The codec of the record batches of an append and of a publish: the topic's, else the store's, else the writer's."""

import pyarrow as pa
import pytest

from pyspark_log.errors import InvalidConfigError
from pyspark_log.storage.fs import files
from pyspark_log.storage.publish.staging import StagingPlan
from pyspark_log.storage.record import headers_in
from tests.store_tools import new_store

ROWS = pa.record_batch({"value": [b"v" * 1000]})
CASES = [
    ({}, {}, None, "none"),
    ({}, {}, "zstd", "zstd"),
    ({}, {}, "none", "none"),
    ({}, {"compression.type": "producer"}, "lz4", "lz4"),
    ({}, {"compression.type": "gzip"}, "zstd", "gzip"),
    ({}, {"compression.type": "uncompressed"}, "zstd", "none"),
    ({"compression.type": "gzip"}, {}, "zstd", "gzip"),
    ({"compression.type": "gzip"}, {}, None, "gzip"),
    ({"compression.type": "gzip"}, {"compression.type": "producer"}, "zstd", "zstd"),
]


@pytest.mark.parametrize(("of_store", "of_topic", "of_writer", "codec"), CASES)
def test_the_codec(tmp_path, of_store, of_topic, of_writer, codec):
    store = new_store(tmp_path, of_topic, settings=of_store)
    store.append("t", ROWS, compression_type=of_writer)
    (segment,) = store.segment_files("t", 0)
    with files.open_read(segment) as file:
        (batch,) = headers_in(file.pread(file.size(), 0), 0, file.size())
    assert batch.codec == codec
    assert StagingPlan.make(store.logs, ["t"], of_writer).topics["t"].config.codec == codec


def test_another_codec_is_refused(tmp_path):
    store = new_store(tmp_path)
    for write in (
        lambda: store.append("t", ROWS, compression_type="brotli"),
        lambda: StagingPlan.make(store.logs, [], "brotli"),
    ):
        with pytest.raises(InvalidConfigError, match=r"compression\.type = 'brotli': must be none, gzip"):
            write()
    assert store.latest_offset("t", 0) == 0
