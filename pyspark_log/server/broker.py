"""What the handlers of requests share: the store, threads for it, and what waits for its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_log.server.cluster_view import ClusterView
from pyspark_log.server.groups import Groups
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.quotas import ClientQuotas, Throttles
from pyspark_log.server.security import Acls, Users
from pyspark_log.server.served import ServedLogs
from pyspark_log.server.state.appends import Appends
from pyspark_log.server.state.counts import Counts
from pyspark_log.server.state.fetch_sessions import FetchSessions
from pyspark_log.server.state.producer_ids import ProducerIds
from pyspark_log.server.state.topic_ids import TopicIds
from pyspark_log.server.transactions import Admission, Coordinator
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    from pyspark_log.server.handlers import Api


@dataclass(frozen=True)
class Broker:
    """A server over one store, as its handlers see it.

    Attributes:
        store: what is served: its topics.
        logs: its logs, with groups and transactions.
        apis: what is served, by keys.
        served: the versions of these.
        cluster: the one that this server is a node of, or that it is alone.
        node_id: this server's, by Kafka's `broker.id`. In a cluster of its own it is the leader of each partition, and
            the controller.
        advertised: host and port that clients get; None: the address at which each has reached the server.
        sync_acks_all: whether records are synced before a producer with acks=all gets its answer.
        loop: the loop, whose thread runs the handlers.
        workers: run what may wait for a disk or a lock.
        appends: reports new records.
        fetch_sessions: what consumers have asked for (KIP-227).
        topics: the topics by their ids.
        producer_ids: ids for producers.
        groups: the groups that this server coordinates.
        transactions: the transactions that it coordinates.
        gate: says what producers may append in transactions, which other brokers may coordinate.
        users: those with passwords.
        acls: what each principal may do; None: everything.
        quotas: how much each may use.
        throttles: what they have used.
        counts: what is counted.
    """

    store: Store
    logs: ServedLogs
    apis: Mapping[int, Api]
    served: Mapping[int, range]
    cluster: ClusterView
    node_id: int
    advertised: tuple[str, int] | None
    sync_acks_all: bool
    loop: Loop
    workers: Workers
    appends: Appends
    fetch_sessions: FetchSessions
    topics: TopicIds
    producer_ids: ProducerIds
    groups: Groups
    transactions: Coordinator
    gate: Admission
    users: Users
    acls: Acls | None
    quotas: ClientQuotas
    throttles: Throttles
    counts: Counts
