"""The words and phrases that docstrings, comments, messages and pages do without (CONTRIBUTING.md, "Language")."""

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

CODE = [path for path in sorted((ROOT / "pyspark_log").rglob("*.p*")) if path.suffix in (".py", ".pyx", ".pxd", ".pyi")]
CODE += sorted((ROOT / "pyspark_log").rglob("*.h"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CONF = [path for path in sorted((ROOT / "conf").rglob("*")) if path.is_file()]
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
    r"puts?\s+right": "recover, repair",
    r"(?:lets?|letting)\s+go": "delete, mark as deleted, release",
    r"closed\s+segments?": "inactive segment",
    r"positions?\s+of\s+(?:(?:a|the)\s+)?groups?": "committed offset",
    r"mend(?:s|ing)?": "repair, fix",
    r"lest": "so that ... not; because ... could",
    r"(?:not\s+)?of\s+one\s+time": "out of step with each other",
    r"as\s+ever": "as usual, as before",
    r"in\s+the\s+midst": "in the middle of, during",
    r"so\s+late": "that time or later",
    r"deleted\s+and\s+made\s+again": "deleted and recreated",
}


@pytest.mark.parametrize("words", WORDS)
def test_words_that_are_not_used(words: str) -> None:
    found = []
    for path in [*CODE, *PAGES, *CONF]:
        text = text_of(path)
        for match in re.finditer(rf"\b(?:{words})\b", text, re.IGNORECASE):
            number = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{number}: {text.splitlines()[number - 1].strip()}")
    assert found == [], f"write instead: {WORDS[words]}"


def text_of(path: Path) -> str:
    """What a file says; of a page without its code blocks, of which the line ends stay."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        return text
    return re.sub(r"^ *```.*?^ *```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def test_code_blocks_of_pages_are_left_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n```sh\nin it\n```\n- item\n  ```\n  in it\n  ```\nafter\n")
    assert text_of(page) == "before\n\n\n\n- item\n\n\n\nafter\n"
