"""The metrics of a store, which any process can read from it: sizes, offsets, lag, publishers.

Names are those of Kafka's JMX exporter and of kafka_exporter, where they have one; docs/metrics.md has all of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.metrics.text import as_text
from pyspark_log.storage.groups import GroupState
from pyspark_log.storage.objects import is_address
from pyspark_log.storage.publish.decision import NO_NUMBER
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

_AT = ("topic", "partition")
_GROUP, _GROUP_AT = ("consumergroup",), ("consumergroup", *_AT)


class LiveGroup(NamedTuple):
    """A group as its server has it, which knows more than the store's records say.

    Attributes:
        state: by Kafka's name.
        members: how many it has.
        generations: how many generations it has had; of a group of KIP-848 its epoch.
    """

    state: str
    members: int
    generations: int


class StoreMetrics:
    """The metrics of a store as text, read again when they are a few seconds old; safe to use from several threads."""

    def __init__(
        self, store: Store, live: Callable[[], Mapping[str, LiveGroup]] | None = None, fresh_s: float = 5.0
    ) -> None:
        """`live`: gives the groups of the store's server; `fresh_s`: how long what was read is taken for current."""
        self._store, self._live, self._fresh = store, live, fresh_s
        self._lock, self._text, self._read_at = threading.Lock(), b"", float("-inf")

    def text(self) -> bytes:
        """The text. Where the store cannot be read that is logged, and the text says it: `pylog_store_up` is 0."""
        with self._lock:
            if time.monotonic() - self._read_at >= self._fresh:
                self._text = self._read()
                self._read_at = time.monotonic()
            return self._text

    def _read(self) -> bytes:
        began = time.monotonic()
        try:
            found = store_metrics(self._store, None if self._live is None else self._live())
        except (PylogError, OSError) as error:
            _log.warning("%s: its metrics cannot be read: %s", self._store.path, error)
            return as_text([_up(False)])
        return as_text([*found, _up(True), _gauge("pylog_store_read_seconds", time.monotonic() - began)])


def _up(up: bool) -> Metric:
    return _gauge("pylog_store_up", up)


def store_metrics(store: Store, live: Mapping[str, LiveGroup] | None = None) -> list[Metric]:
    """Reads all metrics of a store. Publishes that are decided and not applied are counted, and then applied.

    Args:
        store: the store.
        live: the groups of its server; None: groups are as their records say.

    Raises:
        PylogError, OSError: the store cannot be read. A partition that cannot be is counted, and left out otherwise.
    """
    if not is_address(store.path):
        Store.open(store.path)  # A folder that is gone would look like a store without topics.
    with store.partitions.looking():
        publishers = _publishers(store)
        store.publishes.apply_pending()
        log = store.groups.log
        # Before the ends of logs, as in `pylog groups describe`.
        committed = {group: {at: kept.offset for at, kept in log.fetch(group).items()} for group in log.groups()}
        topics, logs, ends = _logs(store)
        groups = _lag(committed, topics, ends)
        states = _live_states(live) if live is not None else _recorded_states(store, list(committed))
        return [*logs, *groups, *states, *publishers]


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, HELP[name], value)


def _gauges(name: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, HELP[name], labels=labels)


def _logs(store: Store) -> tuple[dict[str, int], list[Metric], dict[TopicPartition, int | None]]:
    """The numbers of partitions of topics, metrics, and the ends of logs that have records; None: it is unknown."""
    topics, ends = dict[str, int](), dict[TopicPartition, int | None]()
    count = _gauges("kafka_topic_partitions", ("topic",))
    size, segments = _gauges("kafka_log_log_size", _AT), _gauges("kafka_log_log_numlogsegments", _AT)
    start, end = _gauges("kafka_log_log_logstartoffset", _AT), _gauges("kafka_log_log_logendoffset", _AT)
    unstable = _gauges("kafka_cluster_partition_laststableoffsetlag", _AT)
    for name in store.topics(internal=True):
        try:
            topics[name] = store.describe_topic(name).partitions
            described = [store.partitions.describe(name, number) for number in store.partitions.written(name)]
        except UnknownTopicError:
            topics.pop(name, None)
            continue  # deleted meanwhile
        count.add_metric([name], topics[name])
        for one in described:
            at = [name, str(one.partition)]
            ends[TopicPartition(name, one.partition)] = None if one.problem else one.high_watermark
            if one.problem:
                continue
            size.add_metric(at, one.size)
            segments.add_metric(at, one.segments)
            start.add_metric(at, one.log_start)
            end.add_metric(at, one.high_watermark)
            unstable.add_metric(at, one.high_watermark - one.last_stable_offset)
    offline = sum(end is None for end in ends.values())
    return topics, [
        count, size, segments, start, end, unstable,
        _gauge("kafka_server_replicamanager_partitioncount", sum(topics.values())),
        _gauge("kafka_controller_kafkacontroller_offlinepartitionscount", offline),
    ], ends  # fmt: skip


def _lag(
    committed: Mapping[str, Mapping[TopicPartition, int]],
    topics: Mapping[str, int],
    ends: Mapping[TopicPartition, int | None],
) -> list[Metric]:
    """What groups have committed in partitions that exist, and how many offsets are after it."""
    current, lag = (
        _gauges("kafka_consumergroup_current_offset", _GROUP_AT),
        _gauges("kafka_consumergroup_lag", _GROUP_AT),
    )
    for group, offsets in committed.items():
        for at, offset in offsets.items():
            if at.partition >= topics.get(at.topic, 0):
                continue
            where = [group, at.topic, str(at.partition)]
            current.add_metric(where, offset)
            end = ends.get(at, 0)
            if end is not None:
                lag.add_metric(where, max(end - offset, 0))
    return [current, lag]


def _live_states(groups: Mapping[str, LiveGroup]) -> list[Metric]:
    rebalances = CounterMetricFamily(
        "kafka_consumergroup_rebalances", HELP["kafka_consumergroup_rebalances_total"], labels=_GROUP
    )
    for name, group in groups.items():
        rebalances.add_metric([name], group.generations)
    return [*_states({name: (group.state, group.members) for name, group in groups.items()}), rebalances]


def _recorded_states(store: Store, groups: list[str]) -> list[Metric]:
    found = [store.groups.log.describe(name) for name in groups]
    return _states(
        {group.group: (group.state.value, len(group.members)) for group in found if group.state is not GroupState.DEAD}
    )


def _states(groups: Mapping[str, tuple[str, int]]) -> list[Metric]:
    states, members = (
        _gauges("kafka_consumergroup_state", (*_GROUP, "state")),
        _gauges("kafka_consumergroup_members", _GROUP),
    )
    for name, (state, count) in groups.items():
        states.add_metric([name, state], 1)
        members.add_metric([name], count)
    return [states, members]


def _publishers(store: Store) -> list[Metric]:
    """The last publish of each publisher, but for those that publish once."""
    publishers, labels = store.publishes.publishers(), ("publisher",)
    number, decided = _gauges("pylog_publisher_number", labels), _gauges("pylog_publisher_timestamp_seconds", labels)
    for one in publishers:
        if one.number != NO_NUMBER and not one.one_off:
            number.add_metric([one.publisher], one.number)
            decided.add_metric([one.publisher], one.time / 1000)
    return [number, decided, _gauge("pylog_publishes_pending", len(store.publishes.pending()))]


#: The metrics, with what each says.
HELP: Mapping[str, str] = {
    "kafka_topic_partitions": "Partitions of the topic",
    "kafka_log_log_size": "Bytes of the partition's records, as they are stored",
    "kafka_log_log_numlogsegments": "Segments of the partition",
    "kafka_log_log_logstartoffset": "First offset that can be read",
    "kafka_log_log_logendoffset": "Offset that the next record gets",
    "kafka_cluster_partition_laststableoffsetlag": "Offsets from the last stable offset to the end: open transactions",
    "kafka_server_replicamanager_partitioncount": "Partitions of all topics",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "Partitions that cannot be read",
    "kafka_consumergroup_current_offset": "Committed offset of the group",
    "kafka_consumergroup_lag": "Offsets from the committed one to the end",
    "kafka_consumergroup_state": "1, with the state of the group as a label",
    "kafka_consumergroup_members": "Members of the group",
    "kafka_consumergroup_rebalances_total": "Generations that the group has had; of a group of KIP-848 its epoch",
    "pylog_publisher_number": "Number of the publisher's last publish: of a streaming query, its batch",
    "pylog_publisher_timestamp_seconds": "Time of the publisher's last publish, since 1970",
    "pylog_publishes_pending": "Publishes that are decided and not visible everywhere yet",
    "pylog_store_up": "1: the metrics of the store could be read; 0: they are left out",
    "pylog_store_read_seconds": "How long it took to read them",
}
