"""Pages stay short: a user's page can be read at a stretch, and a room grows only if another page of it shrinks."""

import pytest

from tests.paths import DOCS, PAGES

#: What a user reads, by room; `internals` is for contributors.
USERS = ("start", "guides", "concepts", "reference")
#: Written by `pylog explain --document`: as long as there are errors.
GENERATED = {"reference/errors.md"}
MOST_LINES = 250
MOST_OF_USERS = 4_500
MOST_OF_INTERNALS = 2_000


def lines(*rooms):
    """How many lines each page of some rooms has."""
    found = {str(page.relative_to(DOCS)): page for page in PAGES if page.parent.name in rooms}
    return {name: len(page.read_text(encoding="utf-8").splitlines()) for name, page in found.items()}


def test_every_page_is_in_a_room():
    assert {str(page.relative_to(DOCS)) for page in PAGES} == {"README.md", *lines(*USERS, "internals")}


def test_a_page_of_a_user():
    assert {name: count for name, count in lines(*USERS).items() if count > MOST_LINES} == {}


@pytest.mark.parametrize(("rooms", "most"), [(USERS, MOST_OF_USERS), (("internals",), MOST_OF_INTERNALS)])
def test_all_pages_together(rooms, most):
    assert sum(count for name, count in lines(*rooms).items() if name not in GENERATED) <= most
