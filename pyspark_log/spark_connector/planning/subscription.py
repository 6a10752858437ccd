"""Which partitions a read is of: the options `subscribe`, `subscribePattern` and `assign`.

All three are looked up again for each micro-batch, so a stream finds new partitions, and new topics of a pattern.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_log.errors import UnknownTopicError, shortened
from pyspark_log.spark_connector.errors import option_error
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:  # Options are parsed in processes that do not load the engine.
    from pyspark_log.storage.store import Store

_STRATEGIES = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class Topics:
    """All partitions of topics that are named.

    Attributes:
        names: the topics, without repetitions.
    """

    names: tuple[str, ...]

    def partitions(self, store: Store, *, may_miss: bool = False) -> list[TopicPartition]:
        """The partitions of the topics, in their order.

        Args:
            store: the store.
            may_miss: whether missing topics are passed over.

        Raises:
            UnknownTopicError: a topic is missing.
        """
        return [at for name in self.names for at in _partitions(store, name, may_miss=may_miss)]

    def covers(self, at: TopicPartition) -> bool:
        """Whether the subscription has the partition, if that exists."""
        return at.topic in self.names


@dataclass(frozen=True)
class Pattern:
    """All partitions of the topics in whose names a regular expression is found; not of internal topics."""

    pattern: re.Pattern[str]

    def partitions(self, store: Store, *, may_miss: bool = True) -> list[TopicPartition]:
        """The partitions of the topics that match now, by topic. A topic that is deleted meanwhile has none."""
        found = (name for name in store.topics() if self.pattern.search(name))
        return [at for name in found for at in _partitions(store, name, may_miss=True)]

    def covers(self, at: TopicPartition) -> bool:
        """Whether the subscription has the partition, if that exists."""
        return self.pattern.search(at.topic) is not None


@dataclass(frozen=True)
class Assigned:
    """Single partitions. Those that their topic does not have are passed over, as in the Kafka connector."""

    wanted: frozenset[TopicPartition]

    def partitions(self, store: Store, *, may_miss: bool = False) -> list[TopicPartition]:
        """Those of the partitions that exist, by topic. UnknownTopicError: a topic is missing, unless `may_miss`."""
        names = sorted({at.topic for at in self.wanted})
        return [at for name in names for at in _partitions(store, name, may_miss=may_miss) if at in self.wanted]

    def covers(self, at: TopicPartition) -> bool:
        """Whether the subscription has the partition, if that exists."""
        return at in self.wanted


Subscription = Topics | Pattern | Assigned


def only_topic(subscription: Subscription) -> str | None:
    """The one topic of a subscription; None: there may be several."""
    names = set[str]()
    if isinstance(subscription, Topics):
        names = set(subscription.names)
    elif isinstance(subscription, Assigned):
        names = {at.topic for at in subscription.wanted}
    return next(iter(names)) if len(names) == 1 else None


def _partitions(store: Store, topic: str, *, may_miss: bool) -> list[TopicPartition]:
    try:
        count = store.describe_topic(topic).partitions
    except UnknownTopicError:
        if not may_miss:
            raise
        return []
    return [TopicPartition(topic, number) for number in range(count)]


def parse_subscription(options: Mapping[str, str]) -> Subscription:
    """Parses the one of the three options that is given.

    Args:
        options: with their names in lower case.

    Raises:
        ConnectorError: none is given, or several; or its value is malformed.
    """
    given = [name for name in _STRATEGIES if name.lower() in options]
    if len(given) != 1:
        how_many = "One" if not given else "Only one"
        must = "must" if not given else "can"
        raise option_error(
            f"{how_many} of the following options {must} be specified for pylog source: {', '.join(_STRATEGIES)}. "
            "See the docs for more details."
        )
    value = options[given[0].lower()]
    if given[0] == "assign":
        return _assigned(value)
    if given[0] == "subscribePattern":
        return _pattern(value)
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        quoted = shortened(value)
        raise option_error(f"No topics to subscribe to as specified value for option 'subscribe' is '{quoted}'")
    return Topics(names)


def _assigned(value: str) -> Assigned:
    if not value.strip().startswith("{"):
        quoted = shortened(value)
        raise option_error(f"No topicpartitions to assign as specified value for option 'assign' is '{quoted}'")
    try:
        wanted = [TopicPartition(topic, number) for topic, numbers in json.loads(value).items() for number in numbers]
    except (ValueError, TypeError, AttributeError, RecursionError):
        wanted = []
    if not wanted or any(type(at.partition) is not int or at.partition < 0 for at in wanted):
        raise option_error(f'assign: Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {shortened(value)}')
    return Assigned(frozenset(wanted))


def _pattern(value: str) -> Pattern:
    if not value.strip():
        raise option_error(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{shortened(value)}'"
        )
    try:
        with warnings.catch_warnings():
            # What is an operation on sets in Java, such as [a-z&&[^t]], Python would take for single characters.
            warnings.simplefilter("error", FutureWarning)
            return Pattern(re.compile(value.strip()))
    except (re.error, FutureWarning, RecursionError) as error:
        quoted = shortened(value)
        raise option_error(f"subscribePattern: {quoted!r} is not a regular expression of Python: {error}") from None
