"""The environment of `pylog-python`."""

import signal

import pytest
from warm_tools import Environment


@pytest.fixture(scope="module")
def no_signal_is_ignored():
    """A shell, or nohup, may have this process ignore some, and each child would. A warm process is for those alike."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="module")
def warm(tmp_path_factory, no_signal_is_ignored):
    """An environment whose warm process has come up. A test that ends or replaces it brings it up again."""
    environment = Environment(tmp_path_factory.mktemp("warm"))
    environment.warm_up()
    yield environment
    environment.close()
