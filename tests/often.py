"""Runs tests that start processes many times, side by side, to find those that fail by luck.

`python -m tests.often [--runs 30] [--jobs 4] [--marks "not long"] [FILES]`: the first run is of all tests of the files,
the others of the files in which one has started a process, or forked one. Each failure is printed, with its run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter

import pytest

# The file that gets a line for each test, of the process that leads the others.
_NOTES = "PYLOG_OFTEN_NOTES"
# What Python reports when a process is started; to the fork server of the tests there is a connection.
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn"})
_STARTED = "has started a process"


class _Starts:
    """A plugin of a process that runs tests: their reports say which have started a process."""

    def __init__(self):
        self._count = self._before = 0
        sys.addaudithook(self._note)

    def _note(self, event, arguments):
        self._count += event in _STARTS or (event == "socket.connect" and isinstance(arguments[1], str))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self._before = self._count
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when == "teardown" and self._count > self._before:
            item.user_properties.append((_STARTED, True))


class _Notes:
    """A plugin of the process that gets all reports."""

    def __init__(self, path):
        self._path = path

    def pytest_runtest_logreport(self, report):
        failure = f"{report.when}: {report.longreprtext}" if report.failed else ""
        if failure or report.when == "teardown":
            started = any(name == _STARTED for name, _ in report.user_properties)
            with open(self._path, "a", encoding="utf-8") as notes:
                notes.write(json.dumps([report.nodeid, failure, started]) + "\n")


def pytest_configure(config):
    """Adds them; this module is a plugin, too."""
    config.pluginmanager.register(_Starts())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Notes(os.environ[_NOTES]))


def main():
    """The exit status: 1 if a test has failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=4, help="how many run side by side; 0: in the one process")
    parser.add_argument("--marks", default="not long", help="which tests, as for pytest -m")
    parser.add_argument("files", nargs="*", default=["tests"])
    options = parser.parse_args()
    arguments = ["-q", "-p", "tests.often", "-p", "no:cacheprovider", "-m", options.marks]
    if options.jobs:
        arguments += ["-n", str(options.jobs), "--no-loadscope-reorder", "--max-worker-restart", "0"]
    runs, failed, files = Counter(), Counter(), set()
    for number in range(1, options.runs + 1):
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as notes:
            command = [sys.executable, "-m", "pytest", *arguments, *(sorted(files) or options.files)]
            environment = {**os.environ, _NOTES: notes.name}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                sys.exit(done.stdout + done.stderr)
            for test, failure, started in map(json.loads, notes):
                if failure:
                    failed[test] += 1
                    print(f"!!! {test} failed in run {number}\n{failure}", flush=True)
                else:
                    runs[test] += 1
                if started:
                    files.add(test.partition("::")[0])
        often = [count for test, count in runs.items() if test.partition("::")[0] in files]
        least = min(often, default=0)
        print(f"run {number}: {len(often)} tests of {len(files)} files, each {least} times or more", flush=True)
    for test, count in failed.items():
        print(f"{test} failed {count} times of {runs[test]}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
