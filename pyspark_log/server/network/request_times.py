"""Where the time of requests goes, by API."""

from __future__ import annotations

from pyspark_log.storage.fs.timings import BOUNDS, Spans

# Less is not worth a count of its own.
_LEAST = BOUNDS[0]


class ApiTimes:
    """The times of an API's requests.

    Attributes:
        queue: from the arrival of a request to its begin, of those that came together with others.
        local: in the thread of the loop.
        remote: waiting for other threads, for records, or for other members of a group; of those that did.
        send: from the end to the moment when the system has taken the response.
        total: from the arrival to that moment.
    """

    __slots__ = ("local", "queue", "remote", "send", "total")

    def __init__(self) -> None:
        self.queue, self.local, self.remote, self.send, self.total = Spans(), Spans(), Spans(), Spans(), Spans()


class RequestTimes(dict[int, ApiTimes]):
    """The times of requests, by the key of their API."""

    def __missing__(self, key: int) -> ApiTimes:
        found = self[key] = ApiTimes()
        return found


class Stopwatch:
    """Notes the times of one connection's requests, of which one is handled at a time.

    Attributes:
        api: the key of the API of the one that is handled.
    """

    __slots__ = ("_arrived", "_began", "_local", "_remote", "_times", "_unsent", "_waits_since", "api")

    def __init__(self, times: RequestTimes) -> None:
        """They are added to `times`. All other times that are given are of one clock, in seconds."""
        self._times, self.api = times, 0
        self._arrived = self._began = self._waits_since = self._local = self._remote = 0.0
        self._unsent: list[tuple[ApiTimes, float, float]] = []

    def arrived(self, now: float) -> None:
        """Bytes have arrived; the requests in them begin as those before them end."""
        self._arrived = now

    def begin(self, api: int, now: float) -> None:
        """A request begins."""
        self.api, self._began, self._local, self._remote = api, now, 0.0, 0.0
        queued = now - self._arrived
        if queued > _LEAST:
            self._times[api].queue.add(queued)

    def wait(self, now: float) -> None:
        """It begins to wait."""
        self._local += now - self._began
        self._waits_since = now

    def resume(self, now: float) -> None:
        """It has waited."""
        self._remote += now - self._waits_since
        self._began = now

    def end(self, now: float) -> None:
        """It is done; its response is still to be sent."""
        times = self._times[self.api]
        times.local.add(self._local + now - self._began)
        if self._remote:
            times.remote.add(self._remote)
        self._unsent.append((times, self._arrived, now))

    def sent(self, now: float) -> None:
        """All responses are with the system."""
        for times, arrived, done in self._unsent:
            times.send.add(now - done)
            times.total.add(now - arrived)
        self._unsent.clear()
