"""Streams a topic into a table of Delta or Iceberg, and Delta's change feed into a topic, and kills the driver.

    python -m tests.campaigns tables --kind delta --kills 30 --seed 1

Numbered records are appended all the time. The driver is killed with all its processes, somewhere in its start or in a
micro-batch, and started again. At last the queries run to their ends, undisturbed. Then the table has each record once,
and so has the topic of the changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter

import pyarrow as pa

from pyspark_log import Store
from tests.campaigns import harness

_PARTITIONS = 3
_ROWS = 40


class Campaign(harness.Campaign):
    """See above."""

    kills, tend_every = 30, 5

    @classmethod
    def arguments(cls, options):
        options.add_argument("--kind", choices=("delta", "iceberg"), default="delta")

    def prepare(self):
        self.store = Store.create(self.folder / "store")
        self.store.create_topic("in", _PARTITIONS)
        self.appended = 0

    def begin(self):
        self._start()

    def _words(self, mode):
        return [self.options.kind, self.folder, mode]

    def _start(self):
        self.launch_module("driver", "table_driver", *self._words("forever"))

    def look(self):
        values = [str(self.appended + number).encode() for number in range(_ROWS)]
        self.store.append("in", pa.record_batch({"key": values, "value": values}))
        self.appended += _ROWS

    def pause(self):
        """Every third time it is killed somewhere in its start; else while it works."""
        starts, deadline = self.log("driver").count("started"), time.monotonic() + harness.PATIENCE
        working = self.random.random() > 1 / 3
        while working and self.log("driver").count("started") == starts:
            if self.running["driver"].poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the driver has not started: {self.log('driver')[-2000:]}")
            self.look()
            time.sleep(0.3)
        for _ in range(self.random.randrange(1, 25)):
            self.look()
            time.sleep(self.random.uniform(0, 0.4))

    def strike(self):
        if (code := self.running["driver"].poll()) is not None:
            raise AssertionError(f"the driver has ended with {code}: {self.log('driver')[-2000:]}")
        self.kill("driver")
        self._start()
        return "kills"

    def finish(self):
        self.kill("driver")
        # What the first run puts into the table, it may have read before it was done: the second has the rest.
        for _ in range(2):
            self._run("once")

    def _run(self, mode):
        words = [sys.executable, "-m", "tests.campaigns.table_driver", *map(str, self._words(mode))]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=harness.PATIENCE)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def check(self):
        sides = {"table": json.loads(self._run("read").splitlines()[-1])}
        if self.options.kind == "delta":
            sides["changes"] = [
                value.as_py().decode()
                for partition in self.store.topic("changes").partitions
                for batch in self.store.read("changes", partition)
                for value in batch["value"]
            ]
        expected = {str(number) for number in range(self.appended)}
        for side, values in sides.items():
            times = Counter(values)
            if times.keys() != expected or len(values) != len(expected):
                doubled = [value for value, count in times.items() if count > 1]
                lost = sorted(expected - times.keys(), key=int)
                yield f"{side}: {len(lost)} lost, as {lost[:5]}; {len(doubled)} doubled, as {doubled[:5]}"

    def figures(self):
        return [f"{self.appended:,} records"]
