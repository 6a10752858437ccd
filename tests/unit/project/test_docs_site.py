"""`make docs`: the site has each page, as HTML and as Markdown, and needs nothing from elsewhere."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from tests.paths import DOCS, PAGES, ROOT

#: The pages that were in docs/ before there were rooms, as its last table has them.
OLD_PAGES = re.findall(r"^\| `docs/([\w-]+)\.md` \|", (DOCS / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the site and what it was made of."""
    if importlib.util.find_spec("zensical") is None:
        if "docs" in os.environ.get("PYLOG_REQUIRE", "").split(","):
            pytest.fail("there is no Zensical here (make docs)")
        pytest.skip("there is no Zensical here (make docs)")
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run([sys.executable, ROOT / "docs/build.py", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_each_page_is_there_and_listed(built):
    site = built / "site"
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    pages = [str(page.relative_to(DOCS)) for page in PAGES if page.parent != DOCS]
    assert sorted(listed) == sorted(pages)
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in pages:
        assert (site / page).read_text(encoding="utf-8").startswith("# ")
        html = page.removesuffix(".md") + ".html"
        assert (site / html).is_file()
        assert f'href="{html}"' in home or f'href="./{html}"' in home, f"{page} is not in the navigation"


def test_the_search_takes_the_name_of_an_error_as_one_word(built):
    """Else PYLOG_PUBLISHER_FENCED finds each page that has "pylog" and "publisher"."""
    search = json.loads((built / "site/search.json").read_text(encoding="utf-8"))
    assert re.split(search["config"]["separator"], "of PYLOG_DATA_LOSS, or") == ["of", "PYLOG_DATA_LOSS", "or"]


def test_old_names_lead_to_pages(built):
    site = built / "site"
    assert len(OLD_PAGES) == 31
    for name in OLD_PAGES:
        [to] = re.findall(r'location.replace\("([^"]+)"', (site / f"{name}.html").read_text(encoding="utf-8"))
        assert (site / to).is_file(), name


def test_nothing_is_fetched_from_elsewhere(built):
    for path in (built / "site").rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", path.read_text(encoding="utf-8"))
        assert [tag for tag in tags if re.search(r'(?:src|href)="?(?:https?:)?//', tag)] == [], path
    for path in (built / "site").rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("link", ["none.md", "server.md#none"])
def test_a_dead_link_ends_it(built, link):
    page = built / "docs/guides/ui.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(f"{text}\n[dead]({link})\n", encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", built / "zensical.toml"]
    try:
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    finally:
        page.write_text(text, encoding="utf-8")
