"""CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), the checksum of a record batch.

The library uses the processor's own instruction if there is one, at more than
10 GB/s. There is no slow version of our own as a silent fallback.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c
else:
    # Only the package's compiled module. The package itself looks its own version up in its metadata, for which it
    # loads the standard library's email, csv and zipfile: 1.3 MB, and 20 ms of the start of each process.
    _found = PathFinder.find_spec("_crc32c", importlib.util.find_spec("crc32c").submodule_search_locations)
    _module = importlib.util.module_from_spec(_found)
    _found.loader.exec_module(_module)
    crc32c = _module.crc32c

#: `crc32c(data, value=0) -> int`: the unsigned checksum of `data` (any bytes-like object);
#: `value` is the checksum of the data before it, if it is computed piece by piece.
__all__ = ["crc32c"]
