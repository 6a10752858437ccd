"""The memory of Spark's Python processes that wait for a streaming query, by Python and by `pylog-python`.

    python benchmarks/warm_memory.py [--processes 20]

They are alive at once, and have called Spark back. It is the sum of the proportional set sizes (PSS), of which a page
that several share is counted once; with the launchers and the warm process.
"""

from __future__ import annotations

import argparse
import contextlib
from collections import defaultdict
from pathlib import Path

import busy_starts


def below(processes: list[int]) -> list[int]:
    """These processes and all that they have started."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended.
            children[int(stat.read_text().rpartition(") ")[2].split()[1])].append(int(stat.parent.name))
    found = list(processes)
    for process in found:
        found += children[process]
    return found


def pss(process: int) -> int:
    """In KiB; 0: it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=20)
    given = parser.parse_args()
    with busy_starts.warm(lambda runtime: busy_starts.start("pylog-python", runtime)) as runtime:
        for python in ("pylog-python", "python"):
            with contextlib.ExitStack() as alive:
                waiting = [
                    alive.enter_context(busy_starts.called_back(python, runtime)) for _ in range(given.processes)
                ]
                found = below(waiting + (busy_starts.servers(runtime) if python == "pylog-python" else []))
                print(f"{python}: {len(found)} processes, {sum(map(pss, found)) / 1024:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
