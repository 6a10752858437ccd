"""Topics by their ids (KIP-516), which newer requests have in place of names."""

from __future__ import annotations

from pyspark_log.errors import InvalidTopicError, UnknownTopicError
from pyspark_log.server.served import ServedLogs
from pyspark_log.storage.catalog.topics import id_bytes

#: The id of no topic.
NO_ID = bytes(16)


class TopicIds:
    """Finds the names of topics; safe to use from several threads."""

    def __init__(self, logs: ServedLogs) -> None:
        """Of one store."""
        self._logs = logs
        # The name of each topic, and its id as the store has it, by its id as requests have it.
        self._names: dict[bytes, tuple[str, str]] = {}

    def known_name(self, topic_id: bytes) -> str | None:
        """The topic of an id, if it was found before and still exists; takes some microseconds."""
        noted = self._names.get(topic_id)
        if noted is None:
            return None
        name, stored_id = noted
        try:
            if self._logs.topic(name).topic_id == stored_id:
                return name
        except (UnknownTopicError, InvalidTopicError):
            pass
        self._names.pop(topic_id, None)
        return None

    def name(self, topic_id: bytes) -> str | None:
        """The topic of an id; None: there is none. May look through all topics. PylogError, OSError."""
        if self.known_name(topic_id) is None:
            for topic in self._logs.topics(fresh=True):
                self.note(topic.name)
        return self.known_name(topic_id)

    def note(self, name: str) -> bytes | None:
        """The id of a topic, which is remembered; None: it does not exist."""
        try:
            stored_id = self._logs.topic(name).topic_id
        except (UnknownTopicError, InvalidTopicError):
            return None
        topic_id = id_bytes(stored_id)
        self._names[topic_id] = name, stored_id
        return topic_id
