"""A socket of ours that is dropped fails the test that runs then. Those that kafka-python drops, other tests have."""

import socket

import pytest

from tests.ports import HOST


@pytest.mark.xfail(raises=pytest.PytestUnraisableExceptionWarning, strict=True)
def test_ours():
    with socket.create_server((HOST, 0)) as listening:
        socket.create_connection(listening.getsockname())
