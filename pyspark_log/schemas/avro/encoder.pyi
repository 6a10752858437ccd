from collections.abc import Sequence

import pyarrow as pa

class AvroEncoder:
    def __init__(self, steps: Sequence[tuple[int, int, int, tuple[int, ...]]], blobs: Sequence[bytes]) -> None: ...
    def encode(
        self, arrays: Sequence[tuple[pa.Array, int] | None], count: int, prefix: bytes, null_rows: bool
    ) -> pa.Array | tuple[int, int, str]: ...
