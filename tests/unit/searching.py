"""How long generated tests search; deeper: PYLOG_TEST_EXAMPLES=20000 pytest ..."""

import os

from hypothesis import settings

#: A decorator for tests with `given`. No deadline: a busy machine is no failure.
searched = settings(max_examples=int(os.environ.get("PYLOG_TEST_EXAMPLES", "200")), deadline=None)
