"""A store for tests of commands."""

import pytest

from pyspark_log import Store


@pytest.fixture
def path(tmp_path):
    """Where a store may be made."""
    return tmp_path / "store"


@pytest.fixture
def either(place):
    """A store of either kind."""
    store = Store.create(place)
    yield store
    store.close()


@pytest.fixture
def store(path):
    store = Store.create(path)
    yield store
    store.close()
