"""The environment of `pylog-python`."""

import pytest
from warm_tools import Environment


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """An environment whose warm process has come up. A test that ends or replaces it brings it up again."""
    environment = Environment(tmp_path_factory.mktemp("warm"))
    environment.warm_up()
    yield environment
    environment.close()
