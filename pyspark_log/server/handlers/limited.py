"""What is done for a request of a client that has quotas, around its handler."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from pyspark_log.kafka import encode_response
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.records import fetch, produce
from pyspark_log.server.network import Wait
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource


async def answer_limited(
    call: Call, key: int, handler: Callable[..., Coroutine[Wait[Any], None, Any]], request: Struct, size: int
) -> Struct | None:
    """Has a request handled, counts what it uses, and says in the response how long the pause is that follows.

    Args:
        call: with a throttle.
        key: of the API.
        handler: of the API.
        request: what the handler gets. Where it is forwarded, the response may say that there is to be a pause.
        size: the bytes of the request with its header.

    Returns:
        The response; None: the client expects none.
    """
    throttle = call.throttle
    assert throttle is not None
    if key == fetch.KEY and _is_of_follower(call, request):
        # Quotas are of clients. What followers get has a throttle of its own.
        return await handler(call, request)
    if key == fetch.KEY and (most := throttle.most_fetched) is not None:
        # So that there is an answer that the quota allows, however long the client waits.
        request = request._replace(max_bytes=min(request.max_bytes, most), min_bytes=min(request.min_bytes, most))
    work = Work(handler(call, request), call.broker.loop.time)
    try:
        response = await work
    finally:
        # Also what comes with an error that closes the connection.
        if key == produce.KEY:
            throttle.produced(size)
    if response is not None:
        throttle.worked(work.seconds)
        throttle.forwarded(response.throttle_time_ms)
    if key == fetch.KEY and throttle.fetched(sum(map(len, encode_response(response, call.version, 0)))):
        response = fetch.taken_back(call, response)
    throttle.note()
    return None if response is None else response._replace(throttle_time_ms=throttle.pause_ms)


def _is_of_follower(call: Call, request: Any) -> bool:  # noqa: ANN401  (a FetchRequest)
    """Whether a fetch is another broker's, and not one of a client that calls itself a broker."""
    is_follower = call.broker.cluster.is_follower(fetch.follower_of(request, call.version))
    return is_follower and call.allows(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)


class Work:
    """Awaits a coroutine.

    Attributes:
        seconds: how long it has worked, in this thread and in others that it waited for.
    """

    def __init__(self, of: Coroutine[Wait[Any], None, Any], clock: Callable[[], float]) -> None:
        self._of, self._clock, self.seconds = of, clock, 0.0

    def __await__(self) -> Generator[Wait[Any], None, Any]:
        try:
            while True:
                began = self._clock()
                try:
                    wait = self._of.send(None)
                except StopIteration as end:
                    return end.value
                finally:
                    self.seconds += self._clock() - began
                yield wait
                self.seconds += wait.worked
        finally:
            self._of.close()
