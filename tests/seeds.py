"""Seeds of tests that draw by chance: that of the commit in CI, so that a run can be repeated; elsewhere a new one.

A failure gives its seed; `PYLOG_TEST_SEED` has it drawn again.
"""

import os
import random
import subprocess

from tests.paths import ROOT


def commit_seed():
    """A number that only another commit changes; 0 outside of a clone."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return int(commit.stdout[:8] or "0", 16)


def new_seed():
    """The seed for a test."""
    if "PYLOG_TEST_SEED" in os.environ:
        return int(os.environ["PYLOG_TEST_SEED"])
    return commit_seed() if "CI" in os.environ else random.randrange(2**32)
