"""The memory of Spark's Python processes while 20 streaming queries run, by Python and by `pylog-python`.

    python benchmarks/warm_memory.py [--queries 20]

Each query reads a topic of its own into `noop`. It is the sum of the processes' proportional set sizes (PSS), of which
a page that several share is counted once; with the launchers, the daemons and the warm process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import busy_starts
import pyarrow as pa
import streams

from pyspark_log import Store


def below(processes: list[int]) -> list[int]:
    """These processes and all that they have started, but those of Java."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended.
            name, _, rest = stat.read_text().rpartition(") ")
            children[int(rest.split()[1])].append((int(stat.parent.name), name.partition("(")[2]))
    found, open_ones = [], [(process, "") for process in processes]
    while open_ones:
        process, name = open_ones.pop()
        open_ones += children[process]
        if name != "java":
            found.append(process)
    return found


def pss(process: int) -> int:
    """In KiB."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def session(queries: int) -> None:
    """Prints the number of processes, and their memory."""
    spark = streams.session()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(f"{folder}/store")
        running = []
        for number in range(queries):
            topic = f"t{number}"
            store.create_topic(topic, 1)
            store.append(topic, pa.record_batch({"value": [b"v"] * 1000}))
            rows = spark.readStream.format("pylog").options(subscribe=topic, startingOffsets="earliest")
            running.append(rows.load(store.path).writeStream.format("noop").trigger(processingTime="1 hour").start())
        for query in running:
            query.processAllAvailable()
        found = below([os.getpid()])[1:]
        if os.environ["PYSPARK_PYTHON"].endswith("pylog-python"):
            found += below(busy_starts.servers(os.environ["XDG_RUNTIME_DIR"]))
        print(f"{len(found)} processes, {sum(map(pss, found)) / 1024:.0f} MiB")
        for query in running:
            query.stop()


def run(python: str, queries: int, runtime: str) -> None:
    """A session of its own, with that Python."""
    path = str(Path(sys.executable).with_name(python))
    variables = {"PYSPARK_PYTHON": path, "PYSPARK_DRIVER_PYTHON": path, "XDG_RUNTIME_DIR": runtime}
    command = [sys.executable, __file__, "--session", str(queries)]
    print(f"{python}, queries {queries}: ", end="", flush=True)
    subprocess.run(command, env={**os.environ, **variables}, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--session", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.session is not None:
        session(given.session)
        return
    with busy_starts.warm(lambda runtime: run("pylog-python", 1, runtime)) as runtime:
        for python in ("python", "pylog-python"):
            run(python, given.queries, runtime)


if __name__ == "__main__":
    main()
