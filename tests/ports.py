"""Ports for servers that tests start, of which some are ended and started again on the same port."""

import os
import random
import socket
import sys
from pathlib import Path

HOST = "127.0.0.1"
_LOWEST = 20_000
# By this process: each is given once, as a server may not listen yet when another one asks.
_given = set()


def free_ports(count):
    """Free ports of the loopback interface, outside the range from which the system itself picks ports.

    The system gives ports of that range to any program that connects, also while a server is down for a moment: its
    clients could even be connected to themselves then.
    """
    found = set()
    for port in random.SystemRandom().sample(_ports(), 1000):
        if len(found) == count:
            break
        if _is_free(port):
            found.add(port)
    assert len(found) == count, f"{count} ports are wanted, and only {found} are free"
    _given.update(found)
    return list(found)


def free_ports_in_a_row(count):
    """The first of as many free ports."""
    for first in random.SystemRandom().sample(_ports()[:-count], 1000):
        if all(map(_is_free, range(first, first + count))):
            _given.update(range(first, first + count))
            return first
    raise AssertionError(f"there are no {count} free ports in a row")


def _is_free(port):
    if port in _given:
        return False
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _ports():
    """Those of this process of pytest, as another one may look for some before a server listens."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    size = (_first_of_the_system() - _LOWEST) // count
    return range(_LOWEST + number * size, _LOWEST + (number + 1) * size)


def _first_of_the_system():
    if sys.platform == "linux":
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
        # Where the range begins as low as that, nothing below it is left.
        return first if first > _LOWEST + 2000 else 60_000
    return 49_152
