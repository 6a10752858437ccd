"""The metrics of a server: HTTP for Prometheus, and for those that ask whether it lives and is ready.

The loop only counts; here its counts become metrics, in the threads of HTTP. docs/reference/metrics.md has all names,
which are those of Kafka's JMX exporter where it has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import api
from pyspark_log.metrics import TEXT, StoreMetrics, as_text
from pyspark_log.monitoring import Page, Snapshots
from pyspark_log.server.broker import Broker
from pyspark_log.server.network import ApiTimes, Listener
from pyspark_log.server.pages.loop_calls import LoopStuckError, in_loop
from pyspark_log.server.quotas import Usage
from pyspark_log.server.session import ClientSession
from pyspark_log.storage.fs.clock import BOUNDS, LOCK_WAITS, SYNCS, Spans

# Clients say their own names: so many, of so many characters, get series of their own.
_MOST_SOFTWARE, _MOST_CHARACTERS = 100, 64
_MS = 1000
#: The parts of the time of requests, by their metrics.
_PARTS: Mapping[str, Callable[[ApiTimes], Spans]] = {
    "kafka_network_requestmetrics_totaltimems": lambda times: times.total,
    "kafka_network_requestmetrics_requestqueuetimems": lambda times: times.queue,
    "kafka_network_requestmetrics_localtimems": lambda times: times.local,
    "kafka_network_requestmetrics_remotetimems": lambda times: times.remote,
    "kafka_network_requestmetrics_responsesendtimems": lambda times: times.send,
}
# Clients that are limited: so many get series of their own, those that were throttled most.
_MOST_LIMITED = 100
#: The quotas that are rates, by Kafka's names of what is limited; and the metric of each rate.
_LIMITED: Mapping[str, tuple[str, str]] = {
    "producer_byte_rate": ("Produce", "kafka_server_quota_byte_rate"),
    "consumer_byte_rate": ("Fetch", "kafka_server_quota_byte_rate"),
    "request_percentage": ("Request", "kafka_server_quota_request_time"),
    "controller_mutation_rate": ("ControllerMutation", "kafka_server_quota_mutation_rate"),
}
# A broker's purgatories, with the APIs whose requests wait in them.
_WAITING: Mapping[str, Sequence[int]] = {"Produce": [0], "Fetch": [1], "Rebalance": [11, 14]}


class _Counted(NamedTuple):
    """What was counted up to a moment: a copy, that the loop does not change."""

    topics: Mapping[str, tuple[int, int, int]]
    requests: Mapping[int, Sequence[int]]
    errors: Mapping[tuple[int, int], int]
    times: Mapping[int, tuple[int, Mapping[str, Spans]]]
    accepted: int
    refused: int
    request_bytes: int
    software: Counter[str]
    waiting: Counter[int]
    usages: Sequence[Usage]


class ServerMetrics:
    """The pages of a server. They are made in other threads than the loop's.

    Attributes:
        not_ready: why clients cannot be served yet, or any more; "": they can.
    """

    def __init__(self, broker: Broker, listener: Listener, protocol: str, snapshots: Snapshots) -> None:
        """Of a server that is about to start.

        Args:
            broker, listener: of the server.
            protocol: Kafka's `security.protocol` of its clients.
            snapshots: give its store as it is.
        """
        self._broker, self._listener, self._protocol = broker, listener, protocol
        self.not_ready = "the server is starting"
        # A server without it at the start is one for reading.
        self._writes = broker.logs.writable
        self._process = ProcessCollector(registry=None)
        self._store = StoreMetrics(snapshots)

    def pages(self) -> Mapping[str, Callable[[], Page]]:
        """The pages by their paths."""
        return {
            "/metrics": self._unless_stuck(self._metrics),
            "/health": self._unless_stuck(self._health),
            "/ready": self._unless_stuck(self._ready),
        }

    def _unless_stuck(self, page: Callable[[], Page]) -> Callable[[], Page]:
        def made() -> Page:
            try:
                return page()
            except LoopStuckError as error:
                return _unavailable(str(error))

        return made

    # ---- the pages

    def _health(self) -> Page:
        if not self.not_ready:
            in_loop(self._broker.loop, lambda: None)
        return Page(b"the process serves\n")

    def _ready(self) -> Page:
        problem = self.not_ready or self._broker.logs.problem()
        if problem:
            return _unavailable(problem)
        in_loop(self._broker.loop, lambda: None)
        return Page(b"clients are served\n" if self._writes else b"clients are served, for reading\n")

    def _metrics(self) -> Page:
        if self.not_ready:
            return _unavailable(self.not_ready)
        counted = in_loop(self._broker.loop, self._take_counts)
        gone = self._find_deleted(counted.topics.keys())
        if gone:
            in_loop(self._broker.loop, lambda: self._forget(gone))
        topics = {name: counts for name, counts in counted.topics.items() if name not in gone}
        own = [
            *_of_topics(topics), *_of_requests(counted), *_of_connections(counted, self._protocol),
            *_of_quotas(counted.usages), *_of_disks(), *self._process.collect(),
        ]  # fmt: skip
        own += _of_node(self._broker.cluster.gauges())
        return Page(as_text(own) + self._store.text(), content_type=TEXT)

    def _find_deleted(self, topics: Collection[str]) -> set[str]:
        """Those that do not exist any more; none, if the store cannot be looked at."""
        store = self._broker.store
        try:
            existing = store.topics(internal=True) if self._broker.logs.is_there() else topics
        except (PylogError, OSError):
            existing = topics
        return set(topics).difference(existing)

    # ---- in the thread of the loop

    def _take_counts(self) -> _Counted:
        counts, listener = self._broker.counts, self._listener
        software, waiting = Counter[str](), Counter[int]()
        for connection in listener.connections:
            assert isinstance(connection.session, ClientSession)
            software[connection.session.client.software] += 1
            if connection.is_waiting:
                waiting[connection.api] += 1
        return _Counted(
            {name: (topic.messages_in, topic.bytes_in, topic.bytes_out) for name, topic in counts.topics.items()},
            {key: list(versions) for key, versions in counts.requests.items()},
            counts.errors.copy(),
            {
                key: (times.count, {name: part(times).copy() for name, part in _PARTS.items()})
                for key, times in listener.times.items()
            },
            listener.accepted,
            listener.refused,
            listener.request_bytes,
            software,
            waiting,
            list(self._broker.throttles.usages()),
        )

    def _forget(self, topics: Collection[str]) -> None:
        for name in topics:
            self._broker.counts.topics.pop(name, None)


def _unavailable(why: str) -> Page:
    return Page(f"{why}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)


# ---- metrics of what was counted


def _counter(name: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(name.removesuffix("_total"), HELP[name], labels=labels)


def _gauge(name: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, HELP[name], labels=labels)


def _of_topics(topics: Mapping[str, tuple[int, int, int]]) -> Iterator[Metric]:
    names = (f"kafka_server_brokertopicmetrics_{count}_total" for count in ("messagesin", "bytesin", "bytesout"))
    for index, name in enumerate(names):
        metric = _counter(name, ["topic"])
        for topic, values in topics.items():
            metric.add_metric([topic], values[index])
        yield metric


def _of_requests(counted: _Counted) -> Iterator[Metric]:
    requests = _counter("kafka_network_requestmetrics_requests_total", ["request", "version"])
    for key, versions in counted.requests.items():
        for version, count in enumerate(versions):
            if count:
                requests.add_metric([_name(key), str(version)], count)
    errors = _counter("kafka_network_requestmetrics_errors_total", ["request", "error"])
    for (key, code), count in counted.errors.items():
        errors.add_metric([_name(key), ErrorCode(code).name], count)
    yield from (requests, errors)
    for name in _PARTS:
        times = HistogramMetricFamily(name, HELP[name], labels=["request"])
        for key, (count, parts) in counted.times.items():
            _add(times, [_name(key)], parts[name], total=count)
        yield times
    waiting = _gauge("kafka_server_delayedoperationpurgatory_purgatorysize", ["delayedOperation"])
    for operation, keys in _WAITING.items():
        waiting.add_metric([operation], sum(counted.waiting[key] for key in keys))
    yield waiting
    used = _gauge("kafka_network_socketserver_memorypoolused")
    used.add_metric([], counted.request_bytes)
    yield used


def _of_connections(counted: _Counted, listener: str) -> Iterator[Metric]:
    for name, value in (("connection_creation_total", counted.accepted), ("connection_refused_total", counted.refused)):
        metric = _counter(f"kafka_server_socket_server_metrics_{name}", ["listener"])
        metric.add_metric([listener], value)
        yield metric
    open_now = _gauge("kafka_server_socket_server_metrics_connection_count", ["listener"])
    open_now.add_metric([listener], counted.software.total())
    yield open_now
    software = _gauge(
        "kafka_server_socket_server_metrics_connections_software",
        ["clientSoftwareName", "clientSoftwareVersion", "listener"],
    )
    named = Counter[tuple[str, str]]()
    for said, count in counted.software.items():
        name, _, version = said.partition(" ")
        named[name[:_MOST_CHARACTERS] or "unknown", version[:_MOST_CHARACTERS] or "unknown"] += count
    most = named.most_common(_MOST_SOFTWARE)
    others = named.total() - sum(count for _, count in most)
    for (name, version), count in [*most, *([(("other", "other"), others)] if others else [])]:
        software.add_metric([name, version, listener], count)
    yield software


def _of_quotas(usages: Sequence[Usage]) -> Iterator[Metric]:
    labels = ["resource", "user", "clientId"]
    rates = {name: _gauge(name, labels) for _, name in _LIMITED.values()}
    pauses = _gauge("kafka_server_quota_throttle_time", labels)
    throttled = _counter("pylog_quota_throttled_requests_total", labels)
    # Of those that have one name when it is cut, the last one: a series may not be there twice.
    by_name = {
        (usage.name, usage.user[:_MOST_CHARACTERS], usage.client_id[:_MOST_CHARACTERS]): usage
        for usage in sorted(usages, key=lambda usage: usage.throttled)[-_MOST_LIMITED:]
    }
    for (name, user, client_id), usage in by_name.items():
        resource, rate = _LIMITED[name]
        whose = [resource, user, client_id]
        rates[rate].add_metric(whose, usage.rate)
        pauses.add_metric(whose, usage.pause_ms)
        throttled.add_metric(whose, usage.throttled)
    yield from (*rates.values(), pauses, throttled)


def _of_disks() -> Iterator[Metric]:
    for name, spans, unit in (
        ("kafka_log_logflushstats_logflushrateandtimems", SYNCS, _MS),
        ("pylog_lock_wait_seconds", LOCK_WAITS, 1),
    ):
        histogram = HistogramMetricFamily(name, HELP[name])
        _add(histogram, [], spans.copy(), unit)
        yield histogram


def _of_node(values: Sequence[int]) -> Iterator[Metric]:
    for name, value in zip(OF_NODES, values, strict=False):
        gauge = GaugeMetricFamily(name, OF_NODES[name])
        gauge.add_metric([], value)
        yield gauge


def _add(
    histogram: HistogramMetricFamily, labels: Sequence[str], spans: Spans, unit: int = _MS, total: int | None = None
) -> None:
    """Adds a histogram; `total`: of N spans, of which those that are missing took less than the least bound."""
    counts = list(spans.counts)
    if total is not None:
        counts[0] += total - sum(counts)
    limits = [*(f"{bound * unit:g}" for bound in BOUNDS), "+Inf"]
    histogram.add_metric(labels, list(zip(limits, accumulate(counts), strict=True)), spans.total * unit)


def _name(key: int) -> str:
    """The name of an API, as Kafka's metrics have it."""
    return api(key)[0].name.removesuffix("Request")


#: Those that only the node of a cluster has, with what each says.
OF_NODES: Mapping[str, str] = {
    "kafka_server_replicamanager_leadercount": "Partitions that the node leads",
    "kafka_server_replicamanager_underreplicatedpartitions": "Those that have replicas that are not in sync",
    "kafka_server_replicamanager_underminisrpartitioncount": "Those with fewer replicas in sync than acks=all wants",
    "kafka_server_kafkaserver_brokerstate": "3: the node serves as a broker; 1: it is fenced",
}
#: The metrics, with what each says.
HELP: Mapping[str, str] = {
    "kafka_server_brokertopicmetrics_messagesin_total": "Records that clients have appended",
    "kafka_server_brokertopicmetrics_bytesin_total": "Bytes of the batches of those records",
    "kafka_server_brokertopicmetrics_bytesout_total": "Bytes of batches in responses to fetches",
    "kafka_network_requestmetrics_requests_total": "Requests",
    "kafka_network_requestmetrics_errors_total": "Error codes in responses",
    "kafka_network_requestmetrics_totaltimems": "From the arrival of a request until the system has its response",
    "kafka_network_requestmetrics_requestqueuetimems": "Waiting for requests before it that came at the same time",
    "kafka_network_requestmetrics_localtimems": "Work in the server's loop",
    "kafka_network_requestmetrics_remotetimems": "Waiting for disks, locks, records, or members of the group",
    "kafka_network_requestmetrics_responsesendtimems": "Sending, until the system has all of the response",
    "kafka_server_delayedoperationpurgatory_purgatorysize": "Requests that wait now",
    "kafka_network_socketserver_memorypoolused": "Bytes of requests that are not answered yet",
    "kafka_server_socket_server_metrics_connection_creation_total": "Connections that were accepted",
    "kafka_server_socket_server_metrics_connection_refused_total": "Connections that a limit has refused",
    "kafka_server_socket_server_metrics_connection_count": "Open connections",
    "kafka_server_socket_server_metrics_connections_software": "Open connections by the client's library",
    "kafka_server_quota_byte_rate": "Bytes a second of a client that has such a quota",
    "kafka_server_quota_request_time": "Percent of a thread's time, of a client that has such a quota",
    "kafka_server_quota_mutation_rate": "Partitions a second, of a client that has such a quota",
    "kafka_server_quota_throttle_time": "Mean pause of a client after a request that was too much, in eleven seconds",
    "pylog_quota_throttled_requests_total": "Requests that were followed by a pause",
    "kafka_log_logflushstats_logflushrateandtimems": "Syncs of files",
    "pylog_lock_wait_seconds": "Waits for locks of partitions that another process had",
}
