"""What README and the pages of docs/ link to is there."""

import re

import pytest

from tests.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").glob("*.md"))]


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
