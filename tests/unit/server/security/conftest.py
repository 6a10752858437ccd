"""The folder of a store that a server could serve."""

import pytest

from pyspark_log import Store


@pytest.fixture
def folder(tmp_path):
    Store.create(tmp_path / "store").close()
    return tmp_path / "store"
