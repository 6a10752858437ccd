from array import array
from collections.abc import Callable
from typing import Any

class CheckedBatch:
    @property
    def oldest(self) -> int: ...
    @property
    def newest(self) -> int: ...
    @property
    def keyless(self) -> int: ...

# `buffer`: any contiguous bytes-like object (bytes, memoryview, mmap, pa.Buffer).
def check_records(buffer: Any, max_batch_bytes: int) -> CheckedBatch: ...
def record_times(buffer: Any, max_batch_bytes: int) -> tuple[array[int], array[int]]: ...

class Pairs:
    @property
    def pairs(self) -> list[tuple[bytes | None, bytes | None, int]]: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def follows(self) -> int: ...

def read_pairs(
    buffer: Any,
    start: int,
    end: int,
    *,
    from_offset: int,
    until_offset: int,
    dense: bool = False,
    follows: int = -1,
    max_batch_bytes: int = ...,
    aborted: Callable[[int, int], bool] | None = None,
) -> Pairs: ...
