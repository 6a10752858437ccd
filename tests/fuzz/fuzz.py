"""Feeds damaged bytes to everything that reads a store's files, or values of a schema.

    python tests/fuzz/fuzz.py [FAMILY]... [--inputs 20000] [--first 0] [--seed 1] [--jobs N]

Any bytes must give a result or one of the engine's own errors, in bounded time and memory; an error of any other kind
ends the run with code 1 and says how to get that input again. Without FAMILY all of them get `--inputs` each.
What a family is, and how its inputs are made, is in its class. The same number and seed make the same input.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from family import Family

# After how long (s) an input counts as hanging.
HANG_SECONDS = 10
# Address space (bytes) that feeding may take on top of what was there; beyond it there is a MemoryError.
MEMORY = 2 << 30
# Files that are rewritten for each input are best not on a disk.
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# Inputs of one piece of work of one process.
_PIECE = 5_000
#: The families by name: module and class.
FAMILIES = {
    "decoder": ("fuzz_decoder", "Decoder"),
    "cleaner": ("fuzz_cleaner", "Cleaner"),
    "indexes": ("fuzz_indexes", "Indexes"),
    "side-files": ("fuzz_side_files", "SideFiles"),
    "descriptions": ("fuzz_descriptions", "Descriptions"),
    "states": ("fuzz_states", "States"),
    "messages": ("fuzz_messages", "Messages"),
    "avro": ("fuzz_values", "AvroValues"),
    "protobuf": ("fuzz_values", "ProtobufValues"),
    "json": ("fuzz_values", "JsonValues"),
}


class Failed(NamedTuple):
    """An input that was not dealt with: which one, and what came of it."""

    number: int
    what: str


class Piece(NamedTuple):
    """What came of some inputs: counts, the slowest (s), the peak of the process (MiB), and the first failure."""

    counts: Counter[str]
    slowest: float
    peak: int
    failed: Failed | None


def feed_some(family: Family, seed: int, first: int, count: int) -> Piece:
    """Feeds the inputs [first, first + count), up to the first failure."""
    pick, counts, slowest = random.Random(), Counter[str](), 0.0
    failed = None
    for number in range(first, first + count):
        pick.seed(seed << 40 | number)
        data, before = family.input(pick), time.process_time()
        try:
            family.feed(data, counts)
        except Exception as error:  # noqa: BLE001  (any error at all is a finding)
            failed = Failed(number, f"{_chain(error)}\ninput: {_shown(data)}")
            break
        took = time.process_time() - before  # not what others beside it take
        slowest = max(slowest, took)
        if took > HANG_SECONDS:
            failed = Failed(number, f"took {took:.1f} s\ninput: {_shown(data)}")
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return Piece(counts, slowest, peak, failed)


def _chain(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _shown(data: Any) -> str:
    text = data.hex() if isinstance(data, bytes) else repr(data)
    return text if len(text) < 20_000 else f"{text[:20_000]}..."


def family_of(name: str, folder: Path) -> Family:
    """One family, which gets `folder` for itself."""
    module, kind = FAMILIES[name]
    family: Family = getattr(importlib.import_module(module), kind)(folder)
    return family


@cache
def _family(name: str, parent: str) -> Family:
    return family_of(name, Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent)))


def _work(name: str, parent: str, seed: int, first: int, count: int) -> Piece:
    family = _family(name, parent)
    faulthandler.dump_traceback_later(60 * HANG_SECONDS, exit=True)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))
    try:
        return feed_some(family, seed, first, count)
    finally:
        faulthandler.cancel_dump_traceback_later()


def run(name: str, inputs: int, seed: int, first: int, jobs: int) -> bool:
    """Feeds one family, and prints what came of it; whether all was well."""
    start, counts, slowest, peak = time.perf_counter(), Counter[str](), 0.0, 0
    with tempfile.TemporaryDirectory(prefix="pylog-fuzz-", dir=_FOLDER) as parent, ProcessPoolExecutor(jobs) as pool:
        pieces = [
            pool.submit(_work, name, parent, seed, at, min(_PIECE, first + inputs - at))
            for at in range(first, first + inputs, _PIECE)
        ]
        for done in as_completed(pieces):
            piece = done.result()
            counts += piece.counts
            slowest, peak = max(slowest, piece.slowest), max(peak, piece.peak)
            if piece.failed is not None:
                pool.shutdown(cancel_futures=True)
                number, what = piece.failed
                print(f"{what}\nagain: python tests/fuzz/fuzz.py {name} --seed {seed} --first {number} --inputs 1")
                return False
    print(
        f"{name}: {inputs} inputs in {time.perf_counter() - start:.0f} s, the slowest in {slowest * 1000:.0f} ms; "
        f"peak memory of a process {peak} MiB",
        flush=True,
    )
    for word, count in sorted(counts.items()):
        print(f"  {word}: {count}", flush=True)
    return True


def main() -> None:
    names = list(FAMILIES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="*", metavar="FAMILY", help=f"{', '.join(names)}; none: all")
    parser.add_argument("--inputs", type=int, default=20_000, help="how many inputs each family gets")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes")
    chosen = parser.parse_args()
    for name in chosen.family:
        if name not in names:
            parser.error(f"no family {name!r}: {', '.join(names)}")
    well = [run(name, chosen.inputs, chosen.seed, chosen.first, chosen.jobs) for name in chosen.family or names]
    sys.exit(not all(well))


if __name__ == "__main__":
    main()
