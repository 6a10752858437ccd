"""Lets simulated houses live: `python -m tests.simulation --seed N --hours H`."""

import argparse
import os
import sys
import time
from collections import Counter

from tests.simulation.house import simulate


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1, help="of the first house; the next one has the next seed")
    options.add_argument("--hours", type=float, default=1, help="how long they live together, in hours")
    options.add_argument("--each", type=float, default=6, help="how long one of them lives")
    arguments = options.parse_args()
    began, seed, lived, asleep, counts = time.monotonic(), arguments.seed, 0.0, 0.0, Counter()
    while lived < arguments.hours:
        house = simulate(seed, min(arguments.each, arguments.hours - lived))
        lived += house.world.now / 3600
        counts.update(house.history.counts)
        counts.update(house.events)
        asleep += house.asleep / 3600
        print(
            f"seed {seed}: {house.world.now / 3600:.1f} h, {house.asleep / 3600:.1f} of them nights, "
            f"trace {house.world.trace:08x}, {house.world.switches} switches, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        seed += 1
    minutes = (time.monotonic() - began) / 60
    print(f"{lived:.1f} hours, {asleep:.1f} of them nights, in {minutes:.1f} minutes: {dict(counts)}")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts have one order then.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    main()
