"""Which of many crash points a test tries: a fixed sample, or all of them.

`CRASH_POINTS=all` in the environment has all of them tried (`make crash`), which takes hours; a number, so many times
as many as else; `make test` has it try half as many. `CRASH_PARTS`: how many random fates a power loss has at each
point.
"""

import os

import pytest

_WANTED = os.environ.get("CRASH_POINTS", "1")
EVERYTHING = _WANTED == "all"
#: So many times as many points are tried as in the tests' usual run.
TIMES = 1.0 if EVERYTHING else float(_WANTED)
#: How often a power loss at one point keeps any part of what was not synced, besides nothing and everything of it.
PARTS = int(os.environ.get("CRASH_PARTS", "4" if EVERYTHING else "1"))
#: How long a test may take, in seconds.
TIMEOUT = 12 * 3600 if EVERYTHING else 600 * max(TIMES, 1)


def few_or_many(few, many):
    """How many points a test tries: a few among the fast tests, and many besides in all; where all are, once."""
    return [many] if EVERYTHING else [few, pytest.param(many, marks=pytest.mark.slow)]


def sample(points, most):
    """`most` of the points, spread evenly; all of them where everything is to be tried."""
    points, most = list(points), int(most * TIMES)
    if EVERYTHING or len(points) <= most:
        return points
    return [points[number * len(points) // most] for number in range(most)]
