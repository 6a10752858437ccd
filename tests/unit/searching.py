"""How long generated tests search; deeper: PYLOG_TEST_EXAMPLES=20000 pytest ..."""

import os

from hypothesis import settings

_USUAL = 200
_WANTED = int(os.environ.get("PYLOG_TEST_EXAMPLES", _USUAL))


def examples(usual=_USUAL):
    """How many examples a test tries, given the usual number. A slow test has the mark `sampled`, too."""
    return max(10, usual * _WANTED // _USUAL)


#: A decorator for tests with `given`. No deadline: a busy machine is no failure.
searched = settings(max_examples=examples(), deadline=None)
