"""The topics of a store: one small file each, `topics/TOPIC.json`, which is replaced as a whole."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Mapping

from pyspark_log.storage import files
from pyspark_log.storage.config import INT_MAX, check_topic_configs
from pyspark_log.storage.errors import (
    InvalidConfigError,
    InvalidTopicError,
    StoreVersionError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.types import TopicDescription

VERSION = 1
MAX_NAME_LENGTH = 249
#: Topics of the engine itself; records of anybody else would break it.
OFFSETS_TOPIC = "__consumer_offsets"
PUBLISH_TOPIC = "__pylog_publish"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def check_name(name: str) -> None:
    """Refuses what Kafka refuses as a topic's name (and so everything that could leave the store's folder).

    Raises:
        InvalidTopicError: with the rule.
    """
    if name in (".", "..") or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidTopicError(
            f"topic name {name!r}: must be 1 to {MAX_NAME_LENGTH} of the characters a-z, A-Z, 0-9, '.', '_', '-', "
            "and neither '.' nor '..'"
        )


def check_open_to_all(name: str) -> None:
    """Refuses the topics that only the engine writes to. InvalidTopicError."""
    if name in (OFFSETS_TOPIC, PUBLISH_TOPIC):
        raise InvalidTopicError(f"topic {name} holds the store's own records; nobody else may write to it")


def new_id() -> str:
    """16 random bytes as 22 characters of URL-safe base64, as Kafka's Uuid prints; never with '-' in front."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class TopicCatalog:
    """Reads and writes the descriptions of topics.

    A description is read again only when its file changes, so looking one up costs a `stat`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, int], TopicDescription]] = {}

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}.json"

    def names(self) -> list[str]:
        """The names of all topics, sorted."""
        try:
            found = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(name[: -len(".json")] for name in found if name.endswith(".json"))

    def describe(self, name: str) -> TopicDescription:
        """What the store says of a topic.

        Raises:
            InvalidTopicError: no topic can have that name.
            UnknownTopicError: there is no such topic.
            StoreVersionError: its file was written by a newer version.
        """
        check_name(name)
        path = self._path(name)
        try:
            status = os.stat(path)
            stamp = (status.st_ino, status.st_mtime_ns)
            known = self._known.get(name)
            if known is not None and known[0] == stamp:
                return known[1]
            with open(path, "rb") as file:
                content = json.load(file)
        except FileNotFoundError:
            raise UnknownTopicError(f"there is no topic {name!r}") from None
        if content["version"] > VERSION:
            raise StoreVersionError(
                f"{path}: written in version {content['version']}, this pyspark-log knows {VERSION}: "
                "use a newer pyspark-log"
            )
        description = TopicDescription(name, content["topic_id"], content["partitions"], content["configs"])
        self._known[name] = (stamp, description)
        return description

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicDescription:
        """Makes a topic. Its partitions get files with their first record.

        Raises:
            InvalidTopicError, InvalidConfigError: refused.
            TopicExistsError: there is one of that name, or another process made it first.
        """
        check_name(name)
        check_topic_configs(configs)
        if not 1 <= partitions <= INT_MAX:
            raise InvalidConfigError(f"topic {name!r}: {partitions} partitions; it must have 1 at least")
        description = TopicDescription(name, new_id(), partitions, dict(configs))
        content = {
            "version": VERSION,
            "topic_id": description.topic_id,
            "partitions": partitions,
            "configs": dict(configs),
        }
        files.make_folder(self._folder)
        try:
            files.create_whole(self._path(name), json.dumps(content, indent=2).encode() + b"\n")
        except FileExistsError:
            raise TopicExistsError(f"topic {name!r} exists already") from None
        return description
