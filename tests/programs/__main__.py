"""python -m tests.programs [--operations N] [--seed S]: makes random programs until N calls are made."""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter

from tests.programs.run import Program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=100_000, help="calls in all")
    parser.add_argument("--each", type=int, default=2_000, help="calls of a program")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the first program")
    parser.add_argument("--folder", help="where the stores are made; a folder in memory is faster")
    given = parser.parse_args()
    made: Counter[str] = Counter()
    begun, seed = time.monotonic(), given.seed
    while made.total() < given.operations:
        folder = tempfile.mkdtemp(dir=given.folder)
        program = Program(f"{folder}/store", seed)
        try:
            program.run(given.each)
        except Exception as error:
            where = f"seed {seed}, call {program.made.total()}, after {made.total()} of others; store: {folder}/store"
            raise AssertionError(where) from error
        finally:
            program.close()
        shutil.rmtree(folder)
        made += program.made
        seed += 1
        print(f"{made.total()} calls in {time.monotonic() - begun:.0f} s, seeds {given.seed} to {seed - 1}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(made.items())))


if __name__ == "__main__":
    main()
