"""Worlds of groups, each drawn from a seed and explored event by event: what both explorers share."""

import sys
from collections import Counter


def explore(make, seed, events):
    """Explores one world, which `make` makes of the seed. AssertionError: a rule is broken."""
    world = make(seed)
    try:
        world.explore(events)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world


def main(make, events_of_a_world):
    """Explores worlds from a seed on until there were as many events, as the command line says."""
    seed, events = int(sys.argv[1]), int(sys.argv[2])
    done, counts = 0, Counter()
    while done < events:
        world = explore(make, seed, events_of_a_world)
        done += world.events
        counts += world.rules.counts
        seed += 1
    print(f"{done} events, {dict(counts)}; the next seed is {seed}")
