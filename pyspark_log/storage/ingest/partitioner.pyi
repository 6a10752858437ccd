from array import array
from typing import Any

import pyarrow as pa

from pyspark_log.storage.record.codecs.compression import BytesLike

def murmur2(data: BytesLike) -> int: ...

class Partitioner:
    def __init__(self, partitions: int, batch_size: int, seed: int) -> None: ...
    def assign(
        self, key: pa.Array | None, value: pa.Array | None, explicit: pa.Array | None, num_rows: int
    ) -> array[int]: ...

def group(assignment: Any, partitions: int) -> tuple[array[int], array[int]]: ...
