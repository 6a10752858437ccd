"""A socket that is dropped fails the test that runs then if it is ours, and only then."""

import gc
import socket

import pytest
from kafka.net.inet import create_connection
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from tests.ports import HOST


@pytest.fixture
def listening():
    with socket.create_server((HOST, 0)) as one:
        yield one


def test_kafka_python_drops_one_that_connects(listening):
    net = NetworkSelector()
    net.call_soon(create_connection(net, *listening.getsockname()))
    net.poll(0)
    listening.accept()[0].close()
    net.close()


@pytest.mark.parametrize("kind", [KafkaTCPTransport, KafkaSSLTransport])
def test_kafka_python_drops_one_that_sends(listening, kind):
    net = NetworkSelector()
    transport = kind(net, net.run(create_connection, net, *listening.getsockname()), HOST)
    transport.write(b"x")
    transport.close()
    net.close()
    assert transport._sock.fileno() > 0
    del transport


def test_kafka_python_drops_those_by_which_it_wakes_itself():
    net = NetworkSelector()
    assert net._wakeup_r.fileno() > 0
    del net
    gc.collect()


@pytest.mark.xfail(raises=pytest.PytestUnraisableExceptionWarning, strict=True)
def test_ours(listening):
    socket.create_connection(listening.getsockname())
