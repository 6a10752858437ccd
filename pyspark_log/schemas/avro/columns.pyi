from collections.abc import Sequence

import pyarrow as pa

from pyspark_log.schemas.slots import Slot

class AvroProgram:
    def __init__(self, nodes: Sequence[tuple[int, int, int, tuple[int, ...]]], blobs: Sequence[bytes]) -> None: ...

def decode(
    values: pa.Array, prefix: int, programs: Sequence[AvroProgram], which: pa.Array | None, slot: Slot
) -> tuple[pa.Array, list[tuple[int, str]]]: ...
