from collections.abc import Sequence
from typing import Any

import pyarrow as pa

class RecordColumns:
    @property
    def num_rows(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def oldest(self) -> int: ...
    @property
    def newest(self) -> int: ...
    def largest(self) -> int: ...
    def __init__(
        self,
        key: pa.Array | None,
        value: pa.Array | None,
        timestamp: pa.Array | None,
        headers: pa.Array | None,
        now: int,
    ) -> None: ...
    @staticmethod
    def of_pairs(keys: Sequence[bytes | None], values: Sequence[bytes | None], now: int) -> RecordColumns: ...

class BatchBuilder:
    @property
    def batch_size(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def __init__(
        self,
        batch_size: int,
        max_message_bytes: int,
        codec: str = "none",
        level: int | None = None,
        max_batch_bytes: int = ...,
    ) -> None: ...
    def write_to(self, buffer: bytearray | memoryview, start: int) -> None: ...
    # `rows`: any buffer of int32, as `partitioner.group` returns.
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
        log_append_time: int | None = None,
    ) -> bytes: ...  # a memoryview after `write_to`
