"""Errors of a store as a whole, and of the names and configs in it."""

from __future__ import annotations

from pyspark_log.errors.root import PylogError


class StoreError(PylogError):
    """The folder cannot be used as a store."""

    condition = "PYLOG_STORE"


class StoreNotFoundError(StoreError):
    """There is no store in that folder (as seen from this machine)."""

    condition = "PYLOG_STORE_NOT_FOUND"


class StoreExistsError(StoreError):
    """A store cannot be created there, since the folder is not empty."""

    condition = "PYLOG_STORE_EXISTS"


class StoreVersionError(StoreError):
    """The store was written by another version of pyspark-log, whose format this one does not know."""

    condition = "PYLOG_STORE_VERSION"


class ReadOnlyError(StoreError):
    """The folder is a log dir of a Kafka broker, or a server serves replicas of a node in it: nothing is written."""

    condition = "PYLOG_READ_ONLY"


class DescriptionError(StoreError):
    """`store.json`, the description of a topic, or the list of users is invalid; the message names file and field."""

    condition = "PYLOG_DESCRIPTION"


class InvalidConfigError(PylogError):
    """A config or argument was refused; nothing was changed."""

    condition = "PYLOG_INVALID_CONFIG"


class UnsupportedByStoreError(InvalidConfigError):
    """What a store of this kind cannot do; the message names the other way."""

    condition = "PYLOG_UNSUPPORTED_BY_STORE"


class InvalidTopicError(InvalidConfigError):
    """A name that no topic can have."""

    condition = "PYLOG_INVALID_TOPIC"


class TopicExistsError(PylogError):
    """A topic of that name exists already."""

    condition = "PYLOG_TOPIC_EXISTS"


class UnknownTopicError(PylogError):
    """The topic, or that partition of it, does not exist."""

    condition = "PYLOG_UNKNOWN_TOPIC_OR_PARTITION"


class UnknownGroupError(PylogError):
    """No record exists of a group of that name."""

    condition = "PYLOG_GROUP_ID_NOT_FOUND"


class GroupNotEmptyError(PylogError):
    """The group has active members, which own its committed offsets."""

    condition = "PYLOG_NON_EMPTY_GROUP"
