"""How much time of processors the tests use, by folder, and the budget that a run keeps: `--budget tests/budget.toml`.

It is the time of the process of the tests and of all that it started, so it does not depend on what else the machine
waits for. Beside busy neighbours a processor itself is slower, by a factor of two at times: so once in a second of
tests a fixed calculation is timed, and the seconds are those of a processor at rest. A test has what was used since the
end of the one before it: the first pays what later ones share.
The start of the processes and their collection of tests belong to none.
"""

import contextlib
import os
import time
import tomllib
from collections import Counter
from pathlib import PurePath

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")

# Seconds that `slowness` takes for its calculation on a processor at rest, where the budget was measured.
_AT_REST = 0.006


def pytest_addoption(parser):
    parser.addoption("--budget", metavar="FILE", help="fail if the tests use more time of processors than it allows")


def pytest_configure(config):
    if os.path.isdir("/proc/self/task"):
        config.pluginmanager.register(_Clock())
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(_Account(config.option.budget))


def used(process="self"):
    """Seconds of processors that a process has used, with its children of now and those that it has waited for."""
    folder = f"/proc/{process}"
    try:
        with open(f"{folder}/stat", encoding="utf-8") as file:
            seconds = sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / _TICKS
        threads = os.listdir(f"{folder}/task")
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return 0.0
    for thread in threads:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            with open(f"{folder}/task/{thread}/children", encoding="utf-8") as file:
                children = file.read().split()
            seconds += sum(map(used, children))
    return seconds


def slowness():
    """How many times as long as on a processor at rest a calculation takes now: at least 1."""
    begin = time.process_time()
    total = 0
    for number in range(200_000):
        total += number
    return max(1.0, (time.process_time() - begin) / _AT_REST)


class _Clock:
    """Notes in the last report of each test what was used for it."""

    before = 0.0
    slow = 1.0
    timed = 0.0

    def pytest_collection_finish(self):
        self.before = used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call):
        report = yield
        if call.when == "teardown":
            now = used()
            if time.monotonic() > self.timed + 1:
                self.slow, self.timed = slowness(), time.monotonic()
            report.processor_seconds = max(0.0, now - self.before) / self.slow
            self.before = now
        return report


class _Account:
    """Adds up what all processes of the tests report, and compares it with the budget at the end."""

    def __init__(self, budget):
        self.budget = budget
        self.files = Counter()
        self.above = []

    def pytest_runtest_logreport(self, report):
        if hasattr(report, "processor_seconds"):
            self.files[report.nodeid.partition("::")[0]] += report.processor_seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session, exitstatus):
        if self.budget is not None:
            with open(self.budget, "rb") as file:
                self.above = exceeded(self.files, tomllib.load(file))
            if self.above and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if self.budget is not None:
            terminalreporter.section("processor time, in seconds")
            for folder, seconds in by_folder(self.files).most_common():
                terminalreporter.line(f"{seconds:7.1f}  {folder}")
            terminalreporter.line(f"{sum(self.files.values()):7.1f}  in all")
            for line in self.above:
                terminalreporter.line(f"OVER BUDGET: {line}", red=True)


def by_folder(files):
    """Seconds by the folder of the tests, given those by file."""
    folders = Counter()
    for file, seconds in files.items():
        folders[str(PurePath(file).parent)] += seconds
    return folders


def exceeded(files, budget):
    """A line for each folder and file above its share.

    Args:
        files: seconds by file.
        budget: the table `folders` has seconds by folder, `other` those of each folder that it does not name; `file` is
            what a file may use, and the table `files` has those that may use more.
    """
    lines = []
    for folder, seconds in by_folder(files).items():
        share = budget["folders"].get(folder, budget["other"])
        if seconds > share:
            lines.append(f"{folder} used {seconds:.1f} s, its share is {share} s; see CONTRIBUTING.md, Time")
    for file, seconds in files.items():
        share = budget["files"].get(file, budget["file"])
        if seconds > share:
            lines.append(f"{file} used {seconds:.1f} s, its share is {share} s; see CONTRIBUTING.md, Time")
    return lines
