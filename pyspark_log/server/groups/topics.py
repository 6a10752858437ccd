"""The topics as groups of KIP-848 see them: their members subscribe to names, and to regular expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from types import ModuleType

from pyspark_log.server.coordinator import Topic, Topics
from pyspark_log.server.network import Workers

# For how long what was read is taken for what there is, in seconds.
_FRESH = 1.0


class GroupTopics:
    """Reads the topics from time to time. All calls come from the loop's thread.

    Args:
        read: gives the topics by name, as they are if its argument says so; called in a thread.
        clock: the time in seconds, which never goes back.
    """

    def __init__(self, workers: Workers, read: Callable[[bool], dict[str, Topic]], clock: Callable[[], float]) -> None:
        self._workers, self._read, self._clock = workers, read, clock
        self._topics = Topics(0, {}, partial(matching, ()))
        self._read_at = float("-inf")

    async def current(self, *, at_once: bool) -> Topics:
        """The topics, as they are now or were a moment ago. Their version is the same as long as they are.

        PylogError, OSError: the store cannot be looked at.
        """
        if at_once or self._clock() - self._read_at >= _FRESH:
            asked_at = self._clock()
            topics = await self._workers.run(self._read, at_once)
            if asked_at < self._read_at:
                return self._topics  # another request has read them since
            self._read_at = asked_at
            if topics != self._topics.topics:
                self._topics = Topics(self._topics.version + 1, topics, partial(matching, topics))
        return self._topics


def matching(names: Collection[str], pattern: str) -> list[str]:
    """The names that match a regular expression as a whole, in RE2's syntax, which is Kafka's.

    ValueError: it is none; or google-re2 is not installed, without which none can be matched.
    """
    re2 = _re2()
    options = re2.Options()
    options.log_errors = False
    try:
        expression = re2.compile(pattern, options)
    except re2.error as error:
        [why] = error.args
        raise ValueError(f"{pattern} is no regular expression of RE2: {why.decode(errors='replace')}") from error
    return [name for name in names if expression.fullmatch(name)]


def _re2() -> ModuleType:
    try:
        return import_module("re2")
    except ImportError as error:
        raise ValueError("this server has no google-re2, so it cannot match regular expressions") from error
