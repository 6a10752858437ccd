"""A socket of ours that is dropped fails the test that runs then. Those that kafka-python drops, other tests have.

Nor does a client of it that looks for its servers change what Python's generator draws next.
"""

import random
import socket

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.net.compat import KafkaNetClient

from tests.ports import HOST, free_ports


@pytest.mark.xfail(raises=pytest.PytestUnraisableExceptionWarning, strict=True)
def test_ours():
    with socket.create_server((HOST, 0)) as listening:
        socket.create_connection(listening.getsockname())


def test_a_client_that_finds_no_server():
    client = KafkaNetClient(bootstrap_servers=f"{HOST}:{free_ports(1)[0]}")
    before = random.getstate()
    with pytest.raises(KafkaTimeoutError):
        client.get_broker_version(timeout_ms=100)
    assert random.getstate() == before
    client.close()
