"""Fixtures of all unit tests."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """A shell has what it starts in the background ignore Ctrl-C, and so would the processes that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
