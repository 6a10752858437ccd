"""The words and phrases that code, pages and commit subjects do without (CONTRIBUTING.md, "Language").

All text of the package, conf and pages is searched; of tests, benchmarks and examples the comments and docstrings, as
their strings and names are often data; of the settings of tools the comments.
"""

import ast
import functools
import io
import re
import shutil
import subprocess
import tokenize
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.paths import PAGES, RESULTS, ROOT

CODE = [path for path in sorted((ROOT / "pyspark_log").rglob("*.p*")) if path.suffix in (".py", ".pyx", ".pxd", ".pyi")]
CODE += sorted((ROOT / "pyspark_log").rglob("*.h"))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES, *RESULTS]
CONF = [path for path in sorted((ROOT / "conf").rglob("*")) if path.is_file()]
PROGRAMS = [
    path for folder in ("tests", "benchmarks", "examples", "docs") for path in sorted((ROOT / folder).rglob("*.py"))
]
SETTINGS = [ROOT / "pyproject.toml", ROOT / "Makefile"]
ALL = [*CODE, *TEXTS, *CONF, *PROGRAMS, *SETTINGS]
PRODUCT, NAMED = frozenset(CODE), frozenset((*CODE, *PROGRAMS))
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
    r"positions?\s+of\s+(?:(?:a|the)\s+)?groups?|groups?'?s?\s+positions?": "committed offset",
    r"log\s+(?:folder|directory|directories)s?": "log dir",
    r"mend(?:s|ing)?": "repair, fix",
    r"lest": "so that ... not; because ... could",
    r"(?:not\s+)?of\s+one\s+time": "out of step with each other",
    r"as\s+ever": "as usual, as before",
    r"in\s+the\s+midst": "in the middle of, during",
    r"so\s+late": "that time or later",
    r"made\s+again": "recreated, repeated",
    r"(?:go|goes|went|gone)\s+on(?!\s+(?:to|the|its|a)\b)": "continue, resume, keep ...ing",
    r"so\s+many\s+(?:bytes|of|entries|offsets|records|partitions)": "N, this many, how many",
    r"of\s+the\s+system(?!'s)": "native, system call, the OS",
}
# What names of files, functions and variables do without too.
NAMES = {
    r"closed_segments?": "inactive segment",
    r"group_positions?|positions?_of_(?:a_|the_)?groups?": "committed offset",
    r"log_(?:folder|directory|directories)s?": "log dir",
    r"test_(?:\w*_)?(?:who|whoever|whom|somebody|nobody|anybody|everybody)(?:_\w*)?": "name the actor",
    r"test_(?:\w*_)?(?:tells?|told|anew|behind|stands?|stood|mend(?:s|ed)?|lest)(?:_\w*)?": "as in prose, see WORDS",
    r"test_(?:\w*_)?(?:made_again|go(?:es)?_on)(?:_\w*)?": "recreate, repeat; continue, resume",
}


# The last day (by the author's date) of commits that are not checked: their subjects cannot change any more.
UNCHECKED_UNTIL = "2026-11-25"
AREAS = r"[a-z][\w/.-]*(?:, [a-z][\w/.-]*)*"
# Words that begin no imperative, and the endings of other forms of a verb and of plurals.
NO_VERBS = r"an?|the|no|more|also|this|all|each|one|two|how|what|when|where|which|plainer"
NO_ENDINGS = r"[^e]ed|(?<!br)ing|[^su]s"
SUBJECT = re.compile(rf"{AREAS}: (?!(?:{NO_VERBS})\b)(?!\w+(?:{NO_ENDINGS})\b)[a-z][a-z-]*,? \S.*")


@pytest.mark.parametrize("words", WORDS)
def test_words_that_are_not_used(words: str) -> None:
    found, pattern = [], re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for path in having(rf"\b(?:{words.partition('(?!')[0]})\b"):
        text = text_of(path)
        for match in pattern.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            line = text.split("\n")[number - 1].strip()
            found.append(f"{path.relative_to(ROOT)}:{number}: {line}")
    assert found == [], f"write instead: {WORDS[words]}"


@pytest.mark.parametrize("words", NAMES)
def test_words_that_are_not_in_names(words: str) -> None:
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in having(words)
        if path in NAMED and path != Path(__file__)
        for match in pattern.finditer(written(path))
    ]
    found += [str(path.relative_to(ROOT)) for path in NAMED if pattern.search(path.name)]
    assert found == [], f"write instead: {NAMES[words]}"


def having(words: str) -> list[Path]:
    """The files that have words, by Arrow's expressions, which take a tenth of the time of Python's."""
    texts = pa.array(map(written, ALL))
    found = pc.match_substring_regex(texts, pattern=words, ignore_case=True)
    return [path for path, has in zip(ALL, found.to_pylist(), strict=True) if has]


@functools.cache
def written(path: Path) -> str:
    """All of a file; of the product a string in several pieces is one, so that no break hides a word of two."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r'"[ ]*\n[ ]*f?"', "\n", text) if path in PRODUCT else text


@functools.cache
def text_of(path: Path) -> str:
    """What is searched in a file, each line where it is in the file."""
    text = written(path)
    if path.suffix == ".py" and path not in PRODUCT:
        return prose_of(text)
    if path in SETTINGS:
        return re.sub(r"^(?:[^#\n]*[^#\s])?\s*(#|$)", "", text, flags=re.MULTILINE)
    return without_code_blocks(text) if path.suffix == ".md" else text


def prose_of(program: str) -> str:
    """The comments and docstrings of a program."""
    source = program.split("\n")
    lines = [""] * len(source)
    for token in tokenize.generate_tokens(io.StringIO(program).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string.lstrip("#:")
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if ast.get_docstring(node) is not None and first.end_lineno:
                lines[first.lineno - 1 : first.end_lineno] = source[first.lineno - 1 : first.end_lineno]
    return "\n".join(lines)


def without_code_blocks(page: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", lambda block: "\n" * block[0].count("\n"), page, flags=re.MULTILINE | re.DOTALL)


# ---- commits


def faults_of(subject: str) -> list[str]:
    """What is wrong with a commit's subject."""
    found = [
        f"write instead of {match[0]}: {WORDS[words]}"
        for words in WORDS
        if (match := re.search(rf"\b(?:{words})\b", subject, re.IGNORECASE))
    ]
    if len(subject) > 72:
        found.append(f"it has {len(subject)} characters, expected at most 72")
    if not SUBJECT.fullmatch(subject):
        found.append("expected `area: imperative`")
    return found


def test_subjects_of_commits() -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git history here")
    command = ["git", "-C", str(ROOT), "log", "--no-merges", "--date=short", "--format=%ad %s", "-n", "50", "HEAD"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"no git history can be read here: {listed.stderr.strip()}")
    commits = [line.partition(" ")[::2] for line in listed.stdout.splitlines()]
    wrong = {subject: faults_of(subject) for day, subject in commits if day > UNCHECKED_UNTIL}
    assert {subject: faults for subject, faults in wrong.items() if faults} == {}
