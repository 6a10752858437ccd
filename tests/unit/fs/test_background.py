"""One call at a time in another thread."""

import _thread
import os
import signal
import threading
import time

import pytest

from pyspark_log.storage.fs.background import Background


def test_calls_run_in_their_order_and_the_block_waits():
    done = []
    with Background() as background:
        for number in range(100):
            background.begin(done.append, number)
    assert done == list(range(100))


def test_without_a_thread_the_caller_makes_the_calls(monkeypatch):
    def none_left(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", none_left)
    done = []
    with Background() as background:
        for number in range(3):
            background.begin(lambda number=number: done.append((number, threading.get_ident())))
    assert done == [(number, threading.get_ident()) for number in range(3)]


def test_the_caller_continues_meanwhile():
    go, here = threading.Event(), []
    with Background() as background:
        background.begin(go.wait, 60)
        here.append(1)
        go.set()
    assert here == [1]


def fail():
    raise OSError("no")


def run(*functions, error=None):
    """Runs functions in the background, and raises in the block."""
    with Background() as background:
        for function in functions:
            background.begin(function)
        if error is not None:
            raise error


def test_an_error_is_raised_by_the_next_call_or_by_the_end():
    made = []
    with pytest.raises(OSError, match="no"):
        run(fail, lambda: made.append(1))
    assert not made
    with pytest.raises(OSError, match="no"):
        run(fail)
    # That of the block itself comes first.
    with pytest.raises(ValueError, match="mine"):
        run(fail, error=ValueError("mine"))


def test_an_interrupt_does_not_end_the_wait_for_a_call():
    order = []

    def slow():
        # The caller waits at the end of its block by now, or soon.
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        order.append("call")

    with pytest.raises(KeyboardInterrupt):
        run(slow)
    order.append("block")
    assert order == ["call", "block"]
