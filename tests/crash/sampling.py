"""Which of many crash points a test tries: a fixed sample of them, a part of that, all of them, or one.

In the environment:

- `CRASH_POINTS`: `all` has every point tried (`make crash`), which takes hours; a number, that many times as many as
  usual; `few` a twentieth, and 5 at most (`make test`): others at each commit, and the same ones in each run of it.
- `CRASH_PARTS`: how many random fates a power loss has at each point.
- `CRASH_AT`: only the point of that number is tried; a failure gives it.
- `CRASH_SEED`: the seed of those fates, and of where a part of the sample begins; a failure gives it.
"""

import os
import random

import pytest

from tests.seeds import commit_seed

_WANTED = os.environ.get("CRASH_POINTS", "1")
EVERYTHING = _WANTED == "all"
FEW = _WANTED == "few"
#: The factor by which more points are tried than usual.
TIMES = 1.0 if EVERYTHING else 0.05 if FEW else float(_WANTED)
#: How often a power loss at one point keeps any part of what was not synced, besides nothing and everything of it.
PARTS = int(os.environ.get("CRASH_PARTS", "4" if EVERYTHING else "1"))
#: How long a test may take, in seconds.
TIMEOUT = 12 * 3600 if EVERYTHING else 1400 * max(TIMES, 1)
#: The marks of tests that try more in the slow part than in the fast one.
SAMPLED = [pytest.mark.sampled, pytest.mark.timeout(TIMEOUT)]
_AT = os.environ.get("CRASH_AT")


def _seed():
    if "CRASH_SEED" in os.environ:
        return int(os.environ["CRASH_SEED"])
    if not FEW:
        return random.randrange(2**32)
    return commit_seed()


SEED = _seed()
# Where a part of the sample begins, as a part of the distance between two of its points.
_START = random.Random(SEED).random() if FEW else 0.0


def spread(points, most):
    """`TIMES` as many points as `most`, one at least, spread evenly; all of them where everything is to be tried."""
    points, most = list(points), max(1, int(most * TIMES))
    most = min(most, 5) if FEW else most
    if EVERYTHING or len(points) <= most:
        return points
    start = int(_START * len(points))
    return [points[(number * len(points) + start) // most] for number in range(most)]


def sample(points, most, *, ends=0):
    """The same for numbers of changes, or tuples that begin with one; only those of `CRASH_AT` if that is set.

    `ends`: how many of the last points are tried in any case; then the first one is, too.
    """
    points = list(points)
    if _AT is None:
        chosen = spread(points, most)
        return sorted({*chosen, points[0], *points[-ends:]}) if ends else chosen
    return [point for point in points if (point[0] if isinstance(point, tuple) else point) == int(_AT)]
