"""A driver is held up for a while before and after each request to an object store that it makes."""

import os
import signal

import pytest
from commit_driver import BATCHES, PARTITIONS, TOPIC, Driver, content, rows, values

from pyspark_log import Store

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def new_store(object_url):
    """Makes a store as it is before the first batch; its URL."""
    made = []

    def make():
        made.append(f"{object_url}/{len(made)}")
        Store.create(made[-1]).create_topic(TOPIC, PARTITIONS)
        return made[-1]

    return make


def check_end(url, where):
    assert content(url) == values(BATCHES), where
    store = Store.open(url)
    assert [(one.publisher, one.number) for one in store.publishes.publishers()] == [("spark-query", BATCHES - 1)], (
        where
    )
    # And nothing holds up the next publisher.
    store.append(TOPIC, rows(9, 0))


def all_requests(new_store):
    url = new_store()
    driver = Driver(url, "run 0")
    assert driver.wait()
    assert driver.done == BATCHES
    check_end(url, "undisturbed")
    # A claim, one object for the larger task, and the decision.
    assert driver.changes >= 2 * 3 * BATCHES
    return driver.changes


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="sees in /proc that a process is stopped, which Linux has")
def test_two_drivers_of_one_query_publish_once(new_store):
    requests, stopped = all_requests(new_store), 0
    for request in range(requests):
        url, where = new_store(), f"stopped at {request} of {requests}"
        first = Driver(url, "run 1", 0, request, signal.SIGSTOP)
        stopped += first.wait_until_stopped()
        # All partitions have a batch, or none has: what a kill leaves here, too.
        assert content(url) in (values(first.done), values(first.done + 1)), where
        # Nothing is locked: the second one never waits.
        second = Driver(url, "run 2", first.done)
        try:
            assert second.wait(), where
            assert second.done == BATCHES, where
            first.resume()
            assert first.wait(), where
        finally:
            first.end()
            second.end()
        # If the first one had its claim still to make, it continues, and its batches are there already.
        check_end(url, where)
    # A number is given to each report of a batch, too.
    assert stopped >= requests - BATCHES
