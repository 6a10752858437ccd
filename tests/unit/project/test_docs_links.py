"""What README, the pages of docs/ and comments of files link to is there."""

import functools
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import yaml

from tests.paths import DOCS, PAGES, RESULTS, ROOT

READ = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / ".github").glob("**/*.md")),
    *PAGES,
    *RESULTS,
]


SUFFIXES = (".py", ".pyx", ".pxd", ".md", ".yaml", ".yml", ".conf", ".properties", ".toml", ".sh")
#: Programs and settings, which name pages in comments, docstrings and messages.
FOLDERS = ("pyspark_log", "tests", "benchmarks", "examples", "conf")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES]
FILES += [ROOT / name for name in ("Makefile", "pyproject.toml", ".importlinter", "CHANGELOG.md")]
NAMED = re.compile(r"(?<![\w/])docs/([\w/-]+\.md)(?:#([\w-]+))?")


@functools.cache
def anchors(page):
    """The names that headings get where the page is shown: letters, digits and hyphens of the text, in lower case."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page):
    """Those of a page that lead to no file, or to no heading of it."""
    links = [
        link for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")) if not re.match(r"\w+:", link)
    ]
    return [link for link in links if not is_there(page, *link.partition("#")[::2])]


def is_there(page, target, anchor):
    to = page.parent / target if target else page
    return to.exists() and (not anchor or anchor in anchors(to))


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert dead_links(page) == []


def test_dead_links_are_found(tmp_path):
    """Also those from room to room, and those to a heading that is not there."""
    for name, text in (
        ("guides/one.md", "# One\n"),
        ("concepts/two.md", "[a](../guides/one.md#one) [b](#two)\n# Two\n"),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    two = tmp_path / "concepts/two.md"
    assert dead_links(two) == []
    dead = ["one.md", "../guides/one.md#none", "#none", "../internals/one.md"]
    two.write_text(" ".join(f"[a]({link})" for link in dead))
    assert dead_links(two) == dead


def test_pages_that_files_name_are_there():
    named = [(path, page, anchor) for path in FILES for page, anchor in NAMED.findall(path.read_text(encoding="utf-8"))]
    assert len(named) > 50
    assert [(str(path), page, anchor) for path, page, anchor in named if not is_there(DOCS / "-", page, anchor)] == []


def test_the_index_has_each_page_once():
    index = (DOCS / "README.md").read_text(encoding="utf-8").partition("## Where old pages went")[0]
    listed = re.findall(r"^- \[[^\]]+\]\((\w+/[^)]+)\): ", index, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES if page.parent != DOCS)


def test_the_hooks_before_a_commit_pass_here():
    """.pre-commit-config.yaml names tools of this environment; each gets files as pre-commit gives them."""
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repo["hooks"]:
        tool, *words = hook["entry"].split()
        assert tool == ".venv/bin/ruff"
        command = [sys.executable, "-m", "ruff", *words, __file__]
        assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0, hook["id"]


DRAWINGS = sorted((DOCS / "images").glob("*.svg"))


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.name)
def test_a_drawing_is_shown_in_light_and_dark_and_is_read_aloud(drawing):
    """Its title is what a page gives in its place."""
    svg = ElementTree.parse(drawing).getroot()
    title = svg.findtext("{http://www.w3.org/2000/svg}title")
    style = svg.findtext("{http://www.w3.org/2000/svg}style")
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    assert set(re.findall(r"(\.\w+) {[^}]*#", light)) == set(re.findall(r"(\.\w+) {[^}]*#", dark))
    places = [page for page in READ if f"![{title}]" in page.read_text(encoding="utf-8")]
    assert places
