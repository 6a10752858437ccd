from typing import Any, Final

import pyarrow as pa

from pyspark_log.storage.batch import BatchHeader

MAX_BATCH_BYTES: Final[int]

class RecordColumns:
    @property
    def num_rows(self) -> int: ...
    def __init__(
        self,
        key: pa.Array | None,
        value: pa.Array | None,
        timestamp: pa.Array | None,
        headers: pa.Array | None,
        now: int,
    ) -> None: ...

class BatchBuilder:
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __init__(
        self, batch_size: int, max_message_bytes: int, codec: str = "none", level: int | None = None
    ) -> None: ...
    # `rows`: any buffer of int32, as `partitioner.group` gives.
    def append(self, columns: RecordColumns, rows: Any | None, lo: int, hi: int) -> int: ...
    def seal(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> bytes: ...

class Chunk:
    @property
    def columns(self) -> dict[str, pa.Array]: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def follows(self) -> int: ...

# `buffer`: any contiguous bytes-like object (bytes, memoryview, mmap, pa.Buffer); of `stamp` a writable one.
def decode(
    buffer: Any,
    start: int,
    end: int,
    *,
    from_offset: int,
    until_offset: int,
    max_bytes: int,
    check_crcs: bool = True,
    headers: bool = False,
    dense: bool = False,
    follows: int = -1,
) -> Chunk: ...
def scan(buffer: Any, start: int, end: int, *, check_crcs: bool = False) -> list[BatchHeader]: ...
def stamp(buffer: Any, start: int, end: int, base_offset: int, leader_epoch: int) -> int: ...
