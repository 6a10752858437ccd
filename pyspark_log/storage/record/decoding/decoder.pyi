from collections.abc import Callable
from typing import Any

import pyarrow as pa

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

# `buffer`: any contiguous bytes-like object (bytes, memoryview, mmap, pa.Buffer).
def decode(
    buffer: Any,
    start: int,
    end: int,
    *,
    from_offset: int,
    until_offset: int,
    max_bytes: int,
    check_crcs: bool = True,
    keys: bool = True,
    values: bool = True,
    headers: bool = False,
    dense: bool = False,
    follows: int = -1,
    max_batch_bytes: int = ...,
    aborted: Callable[[int, int], bool] | None = None,
) -> Chunk: ...
