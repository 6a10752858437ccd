"""The words that docstrings, comments, messages and pages do without (CONTRIBUTING.md, "Language")."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

CODE = [path for path in sorted((ROOT / "pyspark_log").rglob("*.p*")) if path.suffix in (".py", ".pyx", ".pxd", ".pyi")]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CONF = sorted((ROOT / "conf").iterdir())
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
def test_words_that_are_not_used(words: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*CODE, *PAGES, *CONF]
        for number, line in text_of(path)
        if re.search(rf"\b(?:{words})\b", line, re.IGNORECASE)
    ]
    assert found == [], f"write instead: {WORDS[words]}"


def text_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers; of a page those outside of code blocks."""
    in_block = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = path.suffix == ".md" and line.lstrip().startswith("```")
        in_block ^= fence
        if not fence and not in_block:
            yield number, line


def test_code_blocks_of_pages_are_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n```sh\nin it\n```\n- item\n  ```\n  in it\n  ```\nafter\n")
    assert list(text_of(page)) == [(1, "before"), (5, "- item"), (9, "after")]
