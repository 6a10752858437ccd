"""A log to clean."""

import pytest
from cleaning_tools import Log


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)
