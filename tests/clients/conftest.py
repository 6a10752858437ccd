"""A server for all tests."""

from tests.server_fixtures import server, store

__all__ = ["server", "store"]
