"""The metrics of a store, which any process can read from it: sizes, offsets, lag, publishers.

Names are those of Kafka's JMX exporter and of kafka_exporter, where they have one; docs/reference/metrics.md has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pyspark_log.metrics.text import as_text
from pyspark_log.monitoring import Snapshot, Snapshots
from pyspark_log.storage.publish.decision import NO_NUMBER

_AT = ("topic", "partition")
_GROUP, _GROUP_AT = ("consumergroup",), ("consumergroup", *_AT)


class StoreMetrics:
    """The metrics of a store as text; safe to use from several threads."""

    def __init__(self, snapshots: Snapshots) -> None:
        """`snapshots`: give the store as it is."""
        self._snapshots, self._made = snapshots, (Snapshot(0, 0.0), b"")

    def text(self) -> bytes:
        """The text. Where the store cannot be read it says only that: `pylog_store_up` is 0."""
        snapshot, (known, text) = self._snapshots.current(), self._made
        if snapshot is not known:
            if snapshot.problem:
                text = as_text([_gauge("pylog_store_up", False)])
            else:
                took = _gauge("pylog_store_read_seconds", snapshot.seconds)
                text = as_text([*store_metrics(snapshot), _gauge("pylog_store_up", True), took])
            self._made = snapshot, text
        return text


def store_metrics(snapshot: Snapshot) -> list[Metric]:
    """All metrics of a store."""
    return [*_logs(snapshot), *_lag(snapshot), *_groups(snapshot), *_publishers(snapshot)]


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, HELP[name], value)


def _gauges(name: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, HELP[name], labels=labels)


def _logs(snapshot: Snapshot) -> list[Metric]:
    count = _gauges("kafka_topic_partitions", ("topic",))
    size, segments = _gauges("kafka_log_log_size", _AT), _gauges("kafka_log_log_numlogsegments", _AT)
    start, end = _gauges("kafka_log_log_logstartoffset", _AT), _gauges("kafka_log_log_logendoffset", _AT)
    unstable = _gauges("kafka_cluster_partition_laststableoffsetlag", _AT)
    for name, topic in snapshot.topics.items():
        count.add_metric([name], topic.partitions)
        for one in topic.written:
            if one.problem:
                continue
            at = [name, str(one.partition)]
            size.add_metric(at, one.size)
            segments.add_metric(at, one.segments)
            start.add_metric(at, one.log_start)
            end.add_metric(at, one.high_watermark)
            unstable.add_metric(at, one.high_watermark - one.last_stable_offset)
    topics = snapshot.topics.values()
    return [
        count, size, segments, start, end, unstable,
        _gauge("kafka_server_replicamanager_partitioncount", sum(topic.partitions for topic in topics)),
        _gauge("kafka_controller_kafkacontroller_offlinepartitionscount", sum(topic.offline for topic in topics)),
    ]  # fmt: skip


def _lag(snapshot: Snapshot) -> list[Metric]:
    """What groups have committed in partitions that exist, and how many offsets are after it."""
    current = _gauges("kafka_consumergroup_current_offset", _GROUP_AT)
    lag = _gauges("kafka_consumergroup_lag", _GROUP_AT)
    for group, at, offset, left in snapshot.positions():
        where = [group, at.topic, str(at.partition)]
        current.add_metric(where, offset)
        if left is not None:
            lag.add_metric(where, left)
    return [current, lag]


def _groups(snapshot: Snapshot) -> Iterable[Metric]:
    states = _gauges("kafka_consumergroup_state", (*_GROUP, "state"))
    members = _gauges("kafka_consumergroup_members", _GROUP)
    rebalances = CounterMetricFamily(
        "kafka_consumergroup_rebalances", HELP["kafka_consumergroup_rebalances_total"], labels=_GROUP
    )
    for name, group in snapshot.groups.items():
        states.add_metric([name, group.state], 1)
        members.add_metric([name], group.members)
        if group.generations is not None:
            rebalances.add_metric([name], group.generations)
    yield from (states, members)
    if rebalances.samples:
        yield rebalances


def _publishers(snapshot: Snapshot) -> list[Metric]:
    """The last publish of each publisher, but for those that publish once."""
    labels = ("publisher",)
    number, decided = _gauges("pylog_publisher_number", labels), _gauges("pylog_publisher_timestamp_seconds", labels)
    for one in snapshot.publishers:
        if one.number != NO_NUMBER and not one.one_off:
            number.add_metric([one.publisher], one.number)
            decided.add_metric([one.publisher], one.time / 1000)
    return [number, decided, _gauge("pylog_publishes_pending", snapshot.pending)]


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
