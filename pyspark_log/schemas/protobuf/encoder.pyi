from collections.abc import Sequence

import pyarrow as pa

from pyspark_log.schemas.protobuf.columns import ProtobufProgram

def encode(
    program: ProtobufProgram, arrays: Sequence[tuple[pa.Array, int] | None], count: int, prefix: bytes
) -> pa.Array | tuple[int, int, str]: ...
