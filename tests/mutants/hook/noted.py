"""A plugin of pytest that notes which test runs, which failed, and the processor time of each file."""

import os
import resource
import sys

import pytest

NOTES = os.environ.get("MUTANTS_NOTES", os.devnull)
#: More memory than a test needs, and less than the machine has: a loop may have lost its end.
MEMORY = 12 << 30
_failed = []


def _note(kind, text):
    with open(NOTES, "a", encoding="utf-8") as notes:
        notes.write(f"{kind} {text}\n")


def pytest_configure(config):
    os.environ["MUTANTS_NOW"] = f"{NOTES}-{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def pytest_collectreport(report):
    if report.failed:
        _note("failed", report.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    file = item.nodeid.partition("::")[0]
    _note("runs", item.nodeid)
    with open(os.environ["MUTANTS_NOW"], "w", encoding="utf-8") as now:
        now.write(file)
    if measured := "coverage" in sys.modules and sys.modules["coverage"].Coverage.current():
        measured.switch_context(file)
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        _note("took", f"{sum(os.times()[:4]) - before:.2f} {file}")
        if _failed:
            _note("failed", item.nodeid)
            _failed.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    if report.failed:
        _failed.append(report)
    return report
