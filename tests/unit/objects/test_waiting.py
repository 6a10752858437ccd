"""The wait for what an object store answers, and Ctrl-C."""

import contextlib
import gc
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspark_log.storage.objects import Objects, waiting
from tests.processes import forked
from tests.waiting import PATIENCE, wait_until

REQUESTS = {
    "put": lambda objects: objects.put("a", b"x"),
    "create": lambda objects: objects.create("a", b"x"),
    "get": lambda objects: objects.get("a"),
    "get_ranges": lambda objects: objects.get_ranges("a", [(0, 1)]),
    "list": lambda objects: list(objects.list()),
    "delete": lambda objects: objects.delete(["a"]),
}


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def is_open(connection):
    connection.setblocking(False)
    try:
        while connection.recv(100_000):
            pass
    except BlockingIOError:
        return True
    finally:
        connection.setblocking(True)
    return False


@pytest.fixture
def silent():
    """A server that answers nothing by itself, and the objects that it should have."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        options = {"endpoint": endpoint, "region": "r", "access_key_id": "k", "secret_access_key": "s"}
        yield server, Objects("s3://bucket/store", options)


@pytest.fixture(autouse=True)
def _ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("ask", REQUESTS.values(), ids=REQUESTS)
def test_ctrl_c_ends_the_wait_for_an_answer(silent, monkeypatch, ask):
    """As where the network is away: the library waits for a minute, or tries for half of one."""
    server, objects = silent
    monkeypatch.setattr(waiting, "_PATIENCE", 0)
    connections = []

    def accept():
        connections.append(server.accept()[0])
        interrupt()

    threading.Thread(target=accept).start()
    asker = waiting.answer(threading.current_thread)
    with pytest.raises(KeyboardInterrupt):
        ask(objects)
    with connections[0] as connection:
        assert is_open(connection)  # The library has not given up.
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        asker.join()


def test_an_answer_that_comes_soon_is_waited_for(monkeypatch):
    monkeypatch.setattr(waiting, "_PATIENCE", PATIENCE)
    is_asked, is_interrupted = threading.Event(), threading.Event()
    asked_by = []

    def ask():
        is_asked.set()
        is_interrupted.wait()
        asked_by.append(threading.current_thread())

    def stop(*_):
        is_interrupted.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    threading.Thread(target=lambda: (is_asked.wait(), interrupt())).start()
    with pytest.raises(KeyboardInterrupt):
        waiting.answer(ask)
    assert asked_by == [waiting.answer(threading.current_thread)]


def test_a_refused_request_keeps_none_of_its_bytes():
    """As where several want to create an object: not until the garbage collector looks, either."""

    def refuse(_):
        raise FileExistsError

    def is_free():
        with contextlib.suppress(BufferError):
            data.clear()
        return not data

    data = bytearray(1)
    gc.disable()
    try:
        with contextlib.suppress(FileExistsError):
            waiting.answer(refuse, memoryview(data))
        wait_until(is_free, "nothing has a view of the bytes")
    finally:
        gc.enable()


def test_requests_are_made_also_where_no_thread_can_start(monkeypatch):
    """As in what Python calls at its end."""

    def refuse(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(waiting, "_asker", None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert waiting.answer(threading.current_thread) is threading.main_thread()


def test_other_threads_and_forked_children_ask_by_themselves():
    assert waiting.answer(threading.current_thread) is not threading.main_thread()
    with ThreadPoolExecutor() as pool:
        name = pool.submit(waiting.answer, threading.current_thread).result().name
    assert name.startswith("ThreadPoolExecutor")
    with forked(lambda: waiting.answer(int)):
        pass
