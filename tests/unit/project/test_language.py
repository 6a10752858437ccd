"""The words that docstrings, comments and messages do without (CONTRIBUTING.md, "Language")."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "pyspark_log"
# A word, and what to write instead.
WORDS = {
    r"who|whoever|whom": "name the actor: the writer, a reader, any process",
    r"he|his|him": "it, its: a process is no person",
    r"somebody": "another process",
    r"nobody": "no process, no reader, no writer",
    r"behind": "after (order), beyond (offsets)",
    r"stands?|stood": "is, are, has",
    r"tells?|told": "report, say, show, return",
    r"anew": "again; or rebuild, rewrite, recreate",
    r"puts? right": "recover, repair",
    r"lets? go|letting go": "delete, mark as deleted, release",
}


@pytest.mark.parametrize("words", WORDS)
def test_words_that_are_not_used(words):
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.p*"))
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(rf"\b(?:{words})\b", line, re.IGNORECASE)
    ]
    assert found == [], f"write instead: {WORDS[words]}"
