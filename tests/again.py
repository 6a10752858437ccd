"""Runs pytest, and what failed once more, alone, at the end: `python -m tests.again ARGUMENTS`.

One case in ten thousand that fails by luck shall not stop a change: at most three such may pass, and each is named with
its first failure. Each is a defect all the same, of the product or of the test.
"""

import subprocess
import sys

import pytest

#: How many tests may fail first, and pass alone.
MOST = 3


class _Failures:
    """A plugin that keeps what failed: the text of its first failure, by the test's id."""

    def __init__(self):
        self.texts = {}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.texts.setdefault(report.nodeid, f"{report.when}: {report.longreprtext}")


def main(arguments):
    """The exit status: 0 if all passed, or all that failed, at most `MOST`, passed alone."""
    failures = _Failures()
    status = pytest.main(arguments, plugins=[failures])
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failures.texts) <= MOST:
        return int(status)
    print(f"\n=== {len(failures.texts)} failed; each runs once more, alone ===", flush=True)
    again = [name for name in failures.texts if not _passes(name)]
    for name, text in failures.texts.items():
        said = "FAILED AGAIN" if name in again else "PASSED ONLY WHEN IT RAN AGAIN, which is a defect to repair"
        print(f"\n!!! {said}: {name}\n{text}", flush=True)
    return int(bool(again))


def _passes(name):
    return subprocess.run([sys.executable, "-m", "pytest", "-q", name], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
