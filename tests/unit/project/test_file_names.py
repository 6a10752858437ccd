"""Source files that comments and pages name exist."""

import re

import pytest

from tests.paths import PAGES, RESULTS, ROOT

FOLDERS = ("pyspark_log", "tests", "benchmarks", "examples")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.p[xy]*")) if path.suffix != ".pyc"]
PATHS = {f"/{path.relative_to(ROOT)}" for path in (*SOURCES, *ROOT.glob("*.py"))}
# A path, or its last parts, as in `storage/log/writer.py`; not a pattern such as `tests/unit/*_tools.py`.
NAMED = re.compile(r"(?<![\w*/.-])(?:\w+/)*\w+\.(?:pyx|pxd|pyi|py)\b(?!\()")
READ = [
    *(path for path in SOURCES if path.is_relative_to(ROOT / "pyspark_log")),
    *PAGES,
    *RESULTS,
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path):
    named = NAMED.findall(path.read_text(encoding="utf-8"))
    assert [name for name in named if not any(known.endswith(f"/{name}") for known in PATHS)] == []


def test_no_two_test_files_have_one_name():
    # pytest imports them by their names.
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))
