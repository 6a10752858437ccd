"""Fixtures of the tests of locks."""

import pytest


@pytest.fixture
def path(tmp_path):
    """A file to lock."""
    file = tmp_path / "lock"
    file.write_bytes(b"")
    return str(file)
