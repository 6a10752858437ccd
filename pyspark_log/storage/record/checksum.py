"""CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), the checksum of a record batch.

The library computes it with the processor's own instruction where there is one, at more than
10 GB/s. There is no slow version of our own to fall back on unnoticed.
"""

from __future__ import annotations

from crc32c import crc32c

#: `crc32c(data, value=0) -> int`: the unsigned checksum of `data` (any bytes-like object);
#: `value` is the checksum of what goes before it, if it is computed piece by piece.
__all__ = ["crc32c"]
