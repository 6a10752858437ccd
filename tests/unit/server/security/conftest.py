"""A store that a server could serve, of either kind."""

import pytest

from pyspark_log import Store
from tests.documents import place_of


@pytest.fixture
def kept(place):
    """The documents of the store, as bytes, too."""
    Store.create(place).close()
    return place_of(place)


@pytest.fixture
def folder(tmp_path):
    """A store in a folder."""
    Store.create(tmp_path / "store").close()
    return tmp_path / "store"
