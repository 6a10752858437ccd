"""A store for tests of commands."""

import pytest

from pyspark_log import Store


@pytest.fixture
def store(tmp_path):
    store = Store.create(tmp_path / "store")
    yield store
    store.close()
