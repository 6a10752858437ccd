"""CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), the checksum of a record batch.

The library uses the processor's own instruction if there is one, at more than
10 GB/s. There is no slow version of our own as a silent fallback.
"""

from __future__ import annotations

from crc32c import crc32c

#: `crc32c(data, value=0) -> int`: the unsigned checksum of `data` (any bytes-like object);
#: `value` is the checksum of the data before it, if it is computed piece by piece.
__all__ = ["crc32c"]
