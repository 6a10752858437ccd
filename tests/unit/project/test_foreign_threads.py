"""An exception in a thread fails the test that runs then if the thread is ours, and only then."""

import sysconfig
import threading

import pytest

ours = pytest.mark.xfail(raises=(pytest.PytestUnhandledThreadExceptionWarning, pytest.PytestUnraisableExceptionWarning))


def begin_with(path, work):
    """Runs `work` in a thread whose code is that of the file."""
    names = {"work": work}
    exec(compile("def begin():\n    work()\n", path, "exec"), names)
    thread = threading.Thread(target=names["begin"])
    thread.start()
    thread.join()


def die():
    raise IndexError("pop from an empty deque")


class _Dies:
    def __del__(self):
        die()


def drop():
    _Dies()


@pytest.mark.parametrize("work", [die, drop])
@pytest.mark.parametrize(
    "path",
    [f"{sysconfig.get_path('purelib')}/py4j/clientserver.py", pytest.param(__file__, marks=ours)],
    ids=["theirs", "ours"],
)
def test_an_exception_in_a_thread(path, work):
    begin_with(path, work)


@ours
def test_an_exception_in_a_thread_of_pythons_own_code():
    thread = threading.Thread(target=int, args=("no number",))
    thread.start()
    thread.join()


@ours
def test_an_exception_that_cannot_be_caught_in_the_tests_own_thread():
    drop()
