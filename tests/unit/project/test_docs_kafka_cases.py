"""The tables of options and of the Kafka connector's test cases in tests/spark/KAFKA_CASES.md name tests that exist."""

import ast
import re

from pyspark_log.connector_options import READ_OPTIONS, WRITE_OPTIONS
from tests.paths import ROOT

HEADING = "## The Kafka connector's own test cases"
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def cases():
    """The number, the case and the test of each row."""
    table = (ROOT / "tests/spark/KAFKA_CASES.md").read_text(encoding="utf-8").partition(f"\n{HEADING}\n")[2]
    return re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", table, re.MULTILINE)


def shown_options():
    """The option and the test of each row."""
    page = (ROOT / "tests/spark/KAFKA_CASES.md").read_text(encoding="utf-8")
    table = page.partition("\n## A test for each option of the connector\n")[2]
    return re.findall(r"^\| `([\w.]+)` \| `(test_\w+\.py)::(test_\w+)` \|$", table, re.MULTILINE)


def functions(file):
    """The names of a file's functions; there is one file of that name."""
    (path,) = (ROOT / "tests").rglob(file)
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_each_option_has_a_test():
    known = {*READ_OPTIONS, *WRITE_OPTIONS}
    assert sorted(name for name, _, _ in shown_options()) == sorted(known)
    assert [f"{file}::{name}" for _, file, name in shown_options() if name not in functions(file)] == []


def test_each_case_has_a_row():
    assert [int(number) for number, _, _ in cases()] == list(range(1, 105))


def test_each_row_names_tests_that_exist_or_a_reason():
    missing = [
        f"{number}: {file}::{name}"
        for number, _, tests in cases()
        for file, name in NAMED.findall(tests)
        if name not in functions(file)
    ]
    assert missing == []
    assert [tests for _, _, tests in cases() if not NAMED.search(tests) and not tests.startswith("cannot be: ")] == []
