"""The same work for many items, in several threads: each once, in order, and as many threads as there are."""

import threading

import pytest

from pyspark_log.storage.fs import side_by_side


def test_results_are_in_the_order_of_the_items():
    assert side_by_side(lambda item: item * item, range(1000), 4) == [item * item for item in range(1000)]
    assert side_by_side(str, [], 4) == []
    assert side_by_side(str, [1, 2], 1) == ["1", "2"]


def test_as_many_threads_work_as_were_asked_for():
    together = threading.Barrier(3)
    side_by_side(lambda _: together.wait(60), range(3), 3)


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_each_item_is_done_once_though_the_system_gives_no_more_threads(allowed, monkeypatch):
    left, start = [None] * allowed, threading.Thread.start

    def may_start(thread):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", may_start)
    done = []
    side_by_side(done.append, range(100), 4)
    assert sorted(done) == [*range(100)]


@pytest.mark.parametrize("error", [IndexError("i"), KeyboardInterrupt()])
def test_an_error_of_the_work_is_raised(error):
    def work(item):
        if item == 7:
            raise error

    with pytest.raises(type(error)) as raised:
        side_by_side(work, range(100), 4)
    assert raised.value is error
