"""Fails if the engine has become slower, relative to what the machine does with the same bytes: `make bench-check`.

    python benchmarks/check.py [--folder FOLDER]

A short version of append.py, reads.py, kernels.py and compaction.py. The floors are about half of what was measured
when they were written down. What is below its floor is measured again, twice, as the machine may have been busy.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable

import append
import compaction
import kernels
import reads
import tables

from pyspark_log import Store
from pyspark_log.storage.record.builder import RecordColumns

#: The least ratio, by name.
FLOORS = {
    "append, 100 bytes, 1 partition": 0.35,
    "append, 1,000 bytes, 1 partition": 0.35,
    "append, 100 bytes, 1 partition, lz4": 0.5,
    "append, 100 bytes, 1 partition, zstd": 0.6,
    "read, 100 bytes": 1.2,
    "read, 10,000 bytes": 1.5,
    "read, 1,000 bytes, lz4": 0.3,
    "read, 1,000 bytes, zstd": 0.35,
    "reused: encode, with CRC-32C": 0.25,
    "reused: decode, with CRC-32C": 0.2,
    "compaction, nothing goes": 0.5,
}
_TRIES = 3


def appends(folder: str) -> dict[str, float]:
    """Of appends: relative to a plain write, or the codec and one."""
    return {f"append, {name}": line[-1] for name, line in append.large(folder, 3, 24).items()}


def reading(folder: str) -> dict[str, float]:
    """Of reads: relative to a copy into fresh memory, or the codec."""
    found = {}
    for size, codec in ((100, "none"), (10_000, "none"), (1000, "lz4"), (1000, "zstd")):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            data = reads.rows(size, 24_000_000 // size)
            _, ratio = reads.measure(Store.create(f"{place}/store"), data, size, 512 * 1024, codec, 3)
        found[f"read, {size:,} bytes" + ("" if codec == "none" else f", {codec}")] = ratio
    return found


def encoding(_: str) -> dict[str, float]:
    """Of the kernels: relative to a copy."""
    keys, values, times = kernels.make_columns(200_000)
    found = kernels.compare_with_copy(RecordColumns(keys, values, times, None, 0), kernels.BATCH_SIZE, 5)
    return {name: ratio for name, (_, ratio) in found.items()}


def cleaning(folder: str) -> dict[str, float]:
    """Of compaction: relative to a copy of the files."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        log = compaction.Log(f"{place}/unique-0", 300_000, 300_000, "none")
        return {"compaction, nothing goes": tables.ratio(*compaction.beside_copy(log, 5))}


def main() -> None:
    given = tables.parser(__doc__).parse_args()
    best = dict.fromkeys(FLOORS, 0.0)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        parts: list[Callable[[str], dict[str, float]]] = [appends, reading, encoding, cleaning]
        for part in parts:
            for _ in range(_TRIES):
                found = {name: ratio for name, ratio in part(folder).items() if name in FLOORS}
                best |= {name: max(ratio, best[name]) for name, ratio in found.items()}
                if all(best[name] >= FLOORS[name] for name in found):
                    break
    tables.show(
        "check",
        ["ratio", "now", "floor"],
        [[name, f"{best[name]:.2f}", floor] for name, floor in FLOORS.items()],
        document=False,
    )
    slow = [name for name, floor in FLOORS.items() if best[name] < floor]
    if slow:
        sys.exit(f"slower than it was: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
