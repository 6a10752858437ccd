"""Where the time of requests goes, by API."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias

from pyspark_log.storage.fs.clock import BOUNDS, Spans

_LEAST = BOUNDS[0]

#: A request that is answered: the key of its API, when it arrived, began and was done, and how long it has waited in
#: between; in seconds. A plain tuple, as each request makes one.
Answered: TypeAlias = tuple[int, float, float, float, float]


class ApiTimes:
    """The times of an API's requests.

    As there are so many that take next to nothing, those up to the least bound are not in the spans' counts: of all
    `count` requests they are the rest.

    Attributes:
        count: how many there were.
        queue: from the arrival of a request to its begin, of those that came together with others.
        local: in the thread of the loop.
        remote: waiting for other threads, for records, or for other members of a group.
        send: from the end to the moment when the system has taken the response.
        total: from the arrival to that moment.
    """

    __slots__ = ("count", "local", "queue", "remote", "send", "total")

    def __init__(self) -> None:
        self.count = 0
        self.queue, self.local, self.remote, self.send, self.total = Spans(), Spans(), Spans(), Spans(), Spans()


class RequestTimes(dict[int, ApiTimes]):
    """The times of requests, by the key of their API."""

    def __missing__(self, key: int) -> ApiTimes:
        found = self[key] = ApiTimes()
        return found

    def note(self, requests: Iterable[Answered], now: float) -> None:
        """The responses to these requests are with the system now."""
        for api, arrived, began, done, remote in requests:
            times = self[api]
            times.count += 1
            # Written out, and not in a function for one: it is the larger part of what counting costs.
            local, send, total = done - began - remote, now - done, now - arrived
            times.local.total += local
            if local > _LEAST:
                times.local.counts[bisect_left(BOUNDS, local)] += 1
            times.send.total += send
            if send > _LEAST:
                times.send.counts[bisect_left(BOUNDS, send)] += 1
            times.total.total += total
            if total > _LEAST:
                times.total.counts[bisect_left(BOUNDS, total)] += 1
            if began - arrived > _LEAST:
                times.queue.add(began - arrived)
            if remote > _LEAST:
                times.remote.add(remote)
