from collections.abc import Mapping, Sequence

import pyarrow as pa

from pyspark_log.schemas.slots import Slot

class ProtobufProgram:
    def __init__(
        self,
        messages: Sequence[tuple[int, Sequence[tuple[int, int, int, int, int, bool, bool, int]]]],
        enums: Sequence[Mapping[int, str]],
    ) -> None: ...
    def left_out(self) -> tuple[int, tuple[int, ...]]: ...

def decode(
    values: pa.Array, prefix: int, which: pa.Array | None, program: ProtobufProgram, place: Sequence[int], slot: Slot
) -> tuple[pa.Array, list[tuple[int, str]]]: ...
