from collections.abc import Callable
from typing import Any

class OffsetMap:
    latest_offset: int
    @property
    def slots(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def count(self) -> int: ...
    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None: ...
    def clear(self) -> None: ...
    # `key`, `buffer`: any contiguous bytes-like object.
    def put(self, key: Any, offset: int) -> bool: ...
    def get(self, key: Any) -> int: ...
    def take(
        self,
        buffer: Any,
        start: int,
        end: int,
        *,
        from_offset: int,
        until_offset: int,
        follows: int,
        max_batch_bytes: int,
        aborted: Callable[[int, int], bool],
    ) -> tuple[int, int, bool]: ...

def siphash128(key: bytes, data: Any) -> bytes: ...
