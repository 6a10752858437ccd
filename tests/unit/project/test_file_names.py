"""Source files that comments and pages name exist."""

import re

from tests.paths import PAGES, RESULTS, ROOT

FOLDERS = ("pyspark_log", "tests", "benchmarks", "examples")
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.p[xy]*")) if path.suffix != ".pyc"]
PATHS = {f"/{path.relative_to(ROOT)}" for path in (*SOURCES, *ROOT.glob("*.py"))}
# A path, or its last parts, as in `storage/log/appending/writer.py`; not a pattern such as `tests/unit/*_tools.py`.
NAMED = re.compile(r"(?<![\w*/.-])(?:\w+/)*\w+\.(?:pyx|pxd|pyi|py)\b(?!\()")
READ = [
    *(path for path in SOURCES if path.is_relative_to(ROOT / "pyspark_log")),
    *PAGES,
    *RESULTS,
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]


def test_named_files_exist():
    ends = {path[at + 1 :] for path in PATHS for at, letter in enumerate(path) if letter == "/"}
    missing = {}
    for path in READ:
        # Line by line, as the pattern takes long where nothing is named.
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if ".p" in line]
        if unknown := set(NAMED.findall("\n".join(lines))) - ends:
            missing[str(path.relative_to(ROOT))] = unknown
    assert missing == {}


def test_no_two_test_files_have_one_name():
    # pytest imports them by their names.
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))
