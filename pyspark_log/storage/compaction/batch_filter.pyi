from collections.abc import Callable
from typing import Any, Protocol

from pyspark_log.storage.compaction.cleaned_output import CleanedOutput
from pyspark_log.storage.compaction.key_offsets import OffsetMap
from pyspark_log.storage.record import BatchHeader

class _Transactions(Protocol):
    def take_batch(self, producer_id: int, base_offset: int) -> bool: ...
    def take_control(self, header: BatchHeader, data: memoryview) -> bool: ...

class BatchFilter:
    keeps_legacy_tombstones: bool
    @property
    def next_offset(self) -> int: ...
    @property
    def records_read(self) -> int: ...
    @property
    def records_kept(self) -> int: ...
    def __init__(
        self,
        keys: OffsetMap,
        output: CleanedOutput,
        *,
        now: int,
        delete_retention_ms: int,
        transactions: _Transactions,
        is_last: Callable[[BatchHeader], bool],
        codec: str,
        level: int | None,
        max_batch_bytes: int,
    ) -> None: ...
    # `buffer`: any contiguous bytes-like object.
    def take(self, buffer: Any, start: int, end: int) -> int: ...
