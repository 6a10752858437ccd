from typing import Any

class PositionsRead:
    @property
    def batch(self) -> bytearray | None: ...
    @property
    def left_out(self) -> int: ...
    @property
    def highest(self) -> dict[bytes, tuple[int, int, int]]: ...

# `batch`: any contiguous bytes-like object.
def read_positions(
    batch: Any, name: bytes, known: dict[bytes, tuple[int, int, int]], max_batch_bytes: int, *, stored: bool = False
) -> PositionsRead: ...
