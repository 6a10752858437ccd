"""Offsets as JSON: what users write in options, and what Spark keeps in a query's checkpoint.

Both use the form of Spark's Kafka connector, `{"topic": {"0": 123}}`, where a number is the offset of the next
record to read. User options may also hold -2 (earliest) and -1 (latest).

A checkpoint entry has one more key, which carries what must outlive the process, since Spark gives a Python source
neither its query's id nor its checkpoint: `group`, the consumer group under which the query's progress is committed;
`cluster_id` and `topic_ids`, the store and topics of the offsets; and, in the end offset of batch 0 only, `start`,
where that batch began. With it a batch 0 that is rerun after a restart reads the same records, even if the query
starts at "latest".

Spark shows the entries as a query's progress, and programs walk them by topic and partition. So the key is to them a
topic without partitions, `{"topic": {"0": 123}, "@{...}": {}}`: an `@`, which no topic's name has, and all of it as
JSON. Older versions wrote it as the value of a key `@`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_log.errors import shortened
from pyspark_log.spark_connector.errors import ConnectorError, option_error
from pyspark_log.types import EARLIEST, LATEST, TopicPartition

_OWN = "@"
_LONG_MAX = 2**63 - 1

Offsets = dict[TopicPartition, int]


def parse_option(option: str, text: str) -> Offsets:
    """Parses offsets that a user gave as JSON.

    Raises:
        ConnectorError: `text` is not of the form above, or holds a number below -2.
    """
    offsets = _parsed(option, text, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')
    for at, offset in offsets.items():
        if offset < EARLIEST:
            raise option_error(f"{option} for {at} is {offset}: only -2 (earliest) and -1 (latest) may be below 0")
    return offsets


def parse_timestamps(option: str, text: str) -> Offsets:
    """Parses timestamps (ms) that a user gave as JSON. ConnectorError: they have another form."""
    return _parsed(option, text, '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789}}')


def _parsed(option: str, text: str, example: str) -> Offsets:
    try:
        return _from_nested(json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise option_error(f"{option}: Expected e.g. {example}, got {shortened(text)}") from None


def _from_nested(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    offsets: Offsets = {}
    for topic, partitions in nested.items():
        for partition, offset in partitions.items():
            if type(offset) is not int or not -_LONG_MAX <= offset <= _LONG_MAX:
                raise ValueError(offset)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def to_nested(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """The JSON form, with topics and partitions ascending: Spark compares offsets as text."""
    nested: dict[str, Any] = {}
    for at in sorted(offsets):
        nested.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return nested


def is_own(key: str) -> bool:
    """Whether a key of a checkpoint entry is the one beside the topics."""
    return key.startswith(_OWN)


@dataclass(frozen=True)
class Identity:
    """The identity of a store and topics, beyond their names.

    Attributes:
        cluster_id: the store's, if it is known.
        topic_ids: the topics' ids, by name, as far as they are known.
    """

    cluster_id: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceOffset:
    """A position of a streaming query.

    Attributes:
        offsets: for each partition the next offset to read.
        group: the query's consumer group; None only in what `initialOffset` returns, so its absence marks the
            start of batch 0.
        start: where batch 0 began; only in the end of batch 0.
        identity: the store and topics of the offsets, as far as they are known.
    """

    offsets: Offsets
    group: str | None = None
    start: Offsets | None = None
    identity: Identity = field(default_factory=Identity)

    @property
    def is_initial(self) -> bool:
        """Whether batch 0 begins here, so that no batch ends here."""
        return self.group is None

    def to_json(self) -> dict[str, Any]:
        """The form for Spark."""
        own: dict[str, Any] = {}
        if self.group is not None:
            own["group"] = self.group
        if self.identity.cluster_id is not None:
            own["cluster_id"] = self.identity.cluster_id
        if self.identity.topic_ids:
            own["topic_ids"] = dict(sorted(self.identity.topic_ids.items()))
        if self.start is not None:
            own["start"] = to_nested(self.start)
        nested = to_nested(self.offsets)
        return {**nested, _OWN + json.dumps(own, separators=(",", ":")): {}} if own else nested

    @classmethod
    def from_json(cls, nested: Mapping[str, Any]) -> SourceOffset:
        """The inverse of `to_json`; also accepts an offset of the Kafka connector (topics alone).

        Raises:
            ConnectorError: it is neither, e.g. in a checkpoint of another source.
        """
        try:
            own = next((_own(key, value) for key, value in nested.items() if is_own(key)), {})
            start = own.get("start")
            return cls(
                _from_nested({topic: parts for topic, parts in nested.items() if not is_own(topic)}),
                own.get("group"),
                None if start is None else _from_nested(start),
                Identity(own.get("cluster_id"), dict(own.get("topic_ids", {}))),
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise ConnectorError(
                "PYLOG_OFFSET_NOT_UNDERSTOOD", f"the checkpoint holds an offset of another source: {json.dumps(nested)}"
            ) from None


def _own(key: str, value: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = value if key == _OWN else json.loads(key[len(_OWN) :])
    return own


@dataclass(frozen=True)
class Everywhere:
    """The same sentinel in every partition: -2 (earliest) or -1 (latest)."""

    offset: int


@dataclass(frozen=True)
class Specific:
    """An offset or sentinel for each partition; it must name exactly the existing partitions."""

    offsets: Offsets


@dataclass(frozen=True)
class AtTimestamp:
    """In every partition the first record whose time is `timestamp` (ms since 1970) or later.

    Attributes:
        timestamp: in ms.
        or_latest: without such a record, the log end; otherwise that is an error.
    """

    timestamp: int
    or_latest: bool = False


@dataclass(frozen=True)
class AtTimestamps:
    """The same with a timestamp for each partition; it must name exactly the existing partitions."""

    timestamps: Offsets
    or_latest: bool = False


@dataclass(frozen=True)
class AtCommitted:
    """Where the committed offsets of a group are; the first record of a partition for which it has none."""

    group: str


Position = Everywhere | Specific | AtTimestamp | AtTimestamps | AtCommitted

AT_EARLIEST = Everywhere(EARLIEST)
AT_LATEST = Everywhere(LATEST)


def check_bounds(start: Specific, end: Specific) -> None:
    """Refuses ends of other partitions than the starts, and those before them. ConnectorError."""
    if start.offsets.keys() != end.offsets.keys():
        raise ConnectorError(
            "PYLOG_MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
            "The specified start offset and end offset should have the same topic-partitions. "
            f"For the start: {_names(start)}; for the end: {_names(end)}.",
        )
    for at, first in start.offsets.items():
        last = end.offsets[at]
        if first > last >= 0:
            raise ConnectorError(
                "PYLOG_UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
                f"The specified start offset {first} is greater than the end offset {last} for topic {at.topic} "
                f"partition {at.partition}.",
            )


def _names(position: Specific) -> str:
    return ", ".join(str(at) for at in sorted(position.offsets))
