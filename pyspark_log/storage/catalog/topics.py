"""The topics of a store: one small file each, `topics/TOPIC.json`, which is replaced atomically."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from pyspark_log.config import INT_MAX, TOPIC_CONFIGS, check_topic_configs
from pyspark_log.errors import (
    DescriptionError,
    InvalidConfigError,
    InvalidTopicError,
    TopicExistsError,
    UnknownTopicError,
    shortened,
)
from pyspark_log.near_names import did_you_mean
from pyspark_log.storage.fs import contextmanager, files, lock_for
from pyspark_log.storage.fs.json_fields import Fields
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.types import TopicDescription
from pyspark_log.units import plural

VERSION = 1
#: The descriptions of deleted topics whose files still exist, one file each, named by the topic's id.
DELETED_FOLDER = "deleted"
MAX_NAME_LENGTH = 249
#: The most partitions that a topic can have. Each that is written to has files, and each reader reads all: a
#: whole Kafka cluster has some 200,000.
MAX_PARTITIONS = 100_000
#: Topics of the engine itself; records of other writers would break it.
OFFSETS_TOPIC = "__consumer_offsets"
PUBLISH_TOPIC = "__pylog_publish"
TRANSACTIONS_TOPIC = "__transaction_state"
#: Topics that no user has created: the engine's own, and those that Kafka's brokers keep for themselves. Any other
#: name is allowed, however it begins, as in Kafka.
INTERNAL_TOPICS = frozenset({
    OFFSETS_TOPIC, PUBLISH_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state", "__cluster_metadata",
    "__remote_log_metadata",
})  # fmt: skip
#: The largest description of a store or topic in bytes: far more than all configs together take.
MAX_DESCRIPTION_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ID = re.compile(r"[A-Za-z0-9_-]{22}")


def check_name(name: str) -> None:
    """Refuses what Kafka refuses as a topic's name (and so every name that leads out of the store's folder).

    Raises:
        InvalidTopicError: with the rule.
    """
    if name in (".", "..") or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise InvalidTopicError(
            f"topic name {shortened(name)!r}: must be 1 to {MAX_NAME_LENGTH} of the characters a-z, A-Z, 0-9, '.', "
            "'_', '-', and neither '.' nor '..'"
        )


def check_not_internal(name: str) -> None:
    """Refuses topics that only the engine writes to. InvalidTopicError."""
    if name in (OFFSETS_TOPIC, PUBLISH_TOPIC, TRANSACTIONS_TOPIC):
        raise InvalidTopicError(f"topic {name} holds the store's own records: only the store writes to it")


def check_has_id(topic: TopicDescription, topic_id: str | None) -> None:
    """Refuses a topic that has another id than the one that is meant, if one is. UnknownTopicError."""
    if topic_id not in (None, topic.topic_id):
        raise UnknownTopicError(f"the topic with id {topic_id} is deleted; {topic.name!r} is another one")


def check_added(topic: TopicDescription, total: int) -> None:
    """Refuses a number of partitions that is no more than a topic has, or too large. InvalidConfigError."""
    if total <= topic.partitions:
        has = plural(topic.partitions, "partition")
        raise InvalidConfigError(f"topic {topic.name!r} has {has}; it can get more, not {total}")
    check_partitions(topic.name, total)


def check_partitions(name: str, partitions: int) -> None:
    """Refuses a number of partitions that no topic can have. InvalidConfigError."""
    if not isinstance(partitions, int) or not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidConfigError(f"topic {name!r}: {partitions!r} partitions; it can have 1 to {MAX_PARTITIONS}")


def check_id(text: str) -> None:
    """Refuses what is not an id of a store or topic. ValueError."""
    if not _ID.fullmatch(text):
        raise ValueError(f"{text[:60]!r} where 22 characters of URL-safe base64 should be")


def id_text(data: bytes) -> str:
    """An id of 16 bytes as 22 characters of URL-safe base64, as Kafka's Uuid prints."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def id_bytes(topic_id: str) -> bytes:
    """A topic's id as requests have it: 16 bytes."""
    return base64.urlsafe_b64decode(topic_id + "==")


def new_id() -> str:
    """Returns 16 random bytes as 22 characters of URL-safe base64, as Kafka's Uuid prints; never begins with '-'."""
    while True:
        text = id_text(secrets.token_bytes(16))
        if not text.startswith("-"):
            return text


class DeletedTopic(NamedTuple):
    """A deleted topic whose files still exist.

    Attributes:
        topic: its description.
        forgotten: whether what else the store had of it is deleted (TopicCatalog.note_forgotten).
        since: when it was deleted, in ms.
    """

    topic: TopicDescription
    forgotten: bool
    since: int


class TopicCatalog:
    """Reads and writes the descriptions of topics.

    A description is read again only when its file changes, so looking one up costs a `stat` and no lock. All
    changes are made under one lock, `changing`.
    """

    def __init__(self, folder: str, lock_path: str) -> None:
        self._folder = folder
        self._lock_path = lock_path
        self._known: dict[str, tuple[tuple[int, int], TopicDescription]] = {}

    @contextmanager
    def changing(self, timeout: float = DEFAULT_TIMEOUT) -> Iterator[None]:
        """Holds the lock of all topics, which is taken before any partition's lock. LockTimeoutError, OSError."""
        files.open_or_create(self._lock_path).close()
        with lock_for(self._lock_path).held(timeout):
            yield

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}.json"

    def names(self) -> list[str]:
        """The names of all topics, sorted."""
        try:
            found = files.list_folder(self._folder)
        except FileNotFoundError:
            return []
        return sorted(name[: -len(".json")] for name in found if name.endswith(".json"))

    def exists(self, name: str) -> bool:
        """Whether a topic of that name exists."""
        return files.exists(self._path(name))

    def describe(self, name: str) -> TopicDescription:
        """Returns a topic's description.

        Raises:
            InvalidTopicError: no topic can have that name.
            UnknownTopicError: there is no such topic.
            StoreVersionError: its file was written by a newer version.
            DescriptionError: its file is damaged.
        """
        known = self._known.get(name)
        if known is None:
            check_name(name)
        path = self._path(name)
        try:
            status = files.status_of(path)
            stamp = (status.st_ino, status.st_ctime_ns)
            if known is not None and known[0] == stamp:
                return known[1]
            description, _ = _read(path, name)
        except FileNotFoundError:
            near = "" if name in INTERNAL_TOPICS else did_you_mean(name, self.names())
            raise UnknownTopicError(f"there is no topic {name!r}{near}") from None
        self._known[name] = (stamp, description)
        return description

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicDescription:
        """Creates a topic. Its partitions get files with their first record. The lock is held.

        Raises:
            InvalidTopicError, InvalidConfigError: refused.
            TopicExistsError: there is one of that name.
        """
        check_name(name)
        check_topic_configs(configs)
        check_partitions(name, partitions)
        description = TopicDescription(name, new_id(), partitions, dict(configs))
        files.make_folder(self._folder)
        try:
            files.create_whole(self._path(name), _encode(description))
        except FileExistsError:
            raise TopicExistsError(f"topic {name!r} exists already") from None
        return description

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Raises a topic's number of partitions to `total`. The lock is held.

        Raises:
            InvalidTopicError, UnknownTopicError: no such topic.
            InvalidConfigError: it has as many already, or more: partitions are never removed.
        """
        before = self.describe(name)
        check_added(before, total)
        return self._replace(replace(before, partitions=total))

    def alter_configs(self, name: str, set_to: Mapping[str, str], delete: Collection[str]) -> TopicDescription:
        """Changes configs of a topic; those in `delete` follow the store's again. The lock is held.

        Raises:
            InvalidTopicError, UnknownTopicError: no such topic.
            InvalidConfigError: a config is unknown, or its value is bad; nothing was changed.
        """
        before = self.describe(name)
        check_topic_configs({**{key: "" for key in delete if key not in TOPIC_CONFIGS}, **set_to})
        kept = {key: value for key, value in before.configs.items() if key not in delete}
        return self._replace(replace(before, configs={**kept, **set_to}))

    def _replace(self, description: TopicDescription) -> TopicDescription:
        files.replace_whole(self._path(description.name), _encode(description))
        return self.describe(description.name)

    def delete(self, name: str) -> TopicDescription:
        """Deletes a topic in one durable step; its files are deleted elsewhere. The lock is held.

        Raises:
            InvalidTopicError, UnknownTopicError: no such topic.
        """
        description = self.describe(name)
        files.make_folder(f"{self._folder}/{DELETED_FOLDER}")
        files.rename(self._path(name), self._deleted_path(description.topic_id))
        # The new name first: the files of a topic that is in neither place would never be deleted.
        files.sync_folder(f"{self._folder}/{DELETED_FOLDER}")
        files.sync_folder(self._folder)
        return description

    def prepare(self, description: TopicDescription) -> None:
        """Records a topic that is about to be created as a deleted one, so that its files are deleted if it never is.

        The lock is held. OSError.
        """
        for folder in (self._folder, f"{self._folder}/{DELETED_FOLDER}"):
            files.make_folder(folder)
        files.create_whole(self._deleted_path(description.topic_id), _encode(description))
        files.sync_folder(f"{self._folder}/{DELETED_FOLDER}")

    def adopt(self, description: TopicDescription) -> None:
        """Creates a topic that was prepared, in one durable step. The lock is held, and no topic has that name."""
        files.rename(self._deleted_path(description.topic_id), self._path(description.name))
        files.sync_folder(self._folder)
        files.sync_folder(f"{self._folder}/{DELETED_FOLDER}")

    def find_deleted(self, topic_id: str) -> DeletedTopic | None:
        """A deleted topic whose files are not all deleted; None: there is none of that id."""
        path = self._deleted_path(topic_id)
        try:
            return DeletedTopic(*_read(path), since=files.status_of(path).st_ctime_ns // 1_000_000)
        except FileNotFoundError:
            return None

    def deleted(self) -> list[DeletedTopic]:
        """The deleted topics whose files are not all deleted."""
        try:
            names = files.list_folder(f"{self._folder}/{DELETED_FOLDER}")
        except FileNotFoundError:
            return []
        ids = (name.removesuffix(".json") for name in sorted(names) if name.endswith(".json"))
        # Another process may have finished one by now.
        return [found for topic_id in ids if (found := self.find_deleted(topic_id)) is not None]

    def note_forgotten(self, topic: TopicDescription) -> None:
        """Notes of a deleted topic that what else the store had of it is deleted. The lock is held. OSError."""
        files.replace_whole(self._deleted_path(topic.topic_id), _encode(topic, forgotten=True))

    def invalidate(self, topic_id: str) -> None:
        """Removes the description of a deleted topic whose files are all deleted."""
        files.unlink(self._deleted_path(topic_id))

    def _deleted_path(self, topic_id: str) -> str:
        return f"{self._folder}/{DELETED_FOLDER}/{topic_id}.json"


def _encode(description: TopicDescription, *, forgotten: bool = False) -> bytes:
    content: dict[str, object] = {
        "version": VERSION,
        "name": description.name,
        "topic_id": description.topic_id,
        "partitions": description.partitions,
        "configs": dict(description.configs),
    }
    if forgotten:
        content["forgotten"] = True
    return json.dumps(content, indent=2).encode() + b"\n"


def _read(path: str, name: str | None = None) -> tuple[TopicDescription, bool]:
    """Reads a description, and whether it is noted as forgotten.

    `name`: the topic's, if the file is named after it.
    """
    try:
        content = Fields.parse(files.read_whole(path, MAX_DESCRIPTION_BYTES))
        content.check_version(VERSION, path)
        topic_id, name = content.text("topic_id"), name or content.text("name")
        check_id(topic_id)
        check_name(name)
        partitions = content.whole("partitions", low=1, high=INT_MAX)
        return TopicDescription(name, topic_id, partitions, content.texts("configs")), content.has("forgotten")
    except (ValueError, InvalidTopicError) as error:
        raise DescriptionError(
            f"{path} is not a valid topic description: {error}; restore the file from a copy"
        ) from None
