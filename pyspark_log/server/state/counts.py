"""What a server counts while it answers requests. All calls come from the loop's thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class TopicCounts:
    """Of one topic.

    Attributes:
        messages_in, bytes_in: the records that clients have appended, and the bytes of their batches.
        bytes_out: the bytes of batches in responses to fetches.
    """

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0


class Counts:
    """Of a server.

    Attributes:
        topics: by name. The caller sees to it that the topic exists.
        requests: those that were begun, by the key of their API; each a list of the counts of versions from 0 on.
        errors: error codes in responses, by the key of the API and the code.
    """

    def __init__(self, served: Mapping[int, range]) -> None:
        """`served`: the APIs by their keys, with their versions."""
        self.topics: dict[str, TopicCounts] = {}
        self.requests = {key: [0] * versions.stop for key, versions in served.items()}
        self.errors = Counter[tuple[int, int]]()

    def topic(self, name: str) -> TopicCounts:
        """Those of a topic."""
        counts = self.topics.get(name)
        if counts is None:
            counts = self.topics[name] = TopicCounts()
        return counts
