"""What README and the pages of docs/ link to is there."""

import re
import subprocess
import sys

import pytest
import yaml

from tests.paths import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / ".github").glob("**/*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def anchors(page):
    """The names that headings get where the page is shown: letters, digits and hyphens of the text, in lower case."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" not in target:
            to = page.parent / target if target else page
            assert to.exists(), link
            assert not anchor or anchor in anchors(to), link


def test_the_hooks_before_a_commit_pass_here():
    """.pre-commit-config.yaml names tools of this environment; each gets files as pre-commit gives them."""
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repo["hooks"]:
        tool, *words = hook["entry"].split()
        assert tool == ".venv/bin/ruff"
        command = [sys.executable, "-m", "ruff", *words, __file__]
        assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0, hook["id"]
