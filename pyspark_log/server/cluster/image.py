"""The image: what the records of a cluster's metadata say together, as of one position in their log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from pyspark_log.kafka.messages import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)

#: No broker: the leader of a partition that has none.
NO_LEADER = -1
#: Ids of log dirs that are none (Kafka's DirectoryId): not said by old records, not chosen yet, failed.
MIGRATING, UNASSIGNED, LOST = (number.to_bytes(16, "big") for number in range(3))


class Position(NamedTuple):
    """The last record of the log that is in an image. `epoch`: of the controllers' leader that wrote it."""

    offset: int
    epoch: int


#: Before the first record. Kafka's controllers want 0 as the epoch of a log that has no records.
START = Position(-1, 0)


class Endpoint(NamedTuple):
    """Where a listener of a broker is. `security_protocol`: Kafka's number, as 0 for PLAINTEXT."""

    listener: str
    host: str
    port: int
    security_protocol: int


class FeatureRange(NamedTuple):
    """The levels of a feature from `lowest` to `highest`."""

    lowest: int
    highest: int


class Broker(NamedTuple):
    """A broker that is registered.

    Attributes:
        epoch: of its registration: the offset of the record.
        incarnation_id: of its process, 16 bytes.
        features: what it knows.
        fenced: it leads nothing and is in no ISR.
        log_dirs: ids of those that are online.
        cordoned_log_dirs: ids of those that get no new partitions; None: it has not said so far.
    """

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, FeatureRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    cordoned_log_dirs: tuple[bytes, ...] | None


class Partition(NamedTuple):
    """A partition. Replicas are ids of brokers.

    Attributes:
        directories: for each of the replicas, the id of its log dir, or one of those that are none.
        elr, last_known_elr: eligible leaders beside the ISR, and the last ones known (KIP-966).
        removing, adding: replicas of a reassignment that is under way.
        leader: a broker, or NO_LEADER.
        is_recovering: the leader was not in the ISR when it was elected, and has yet to recover.
        leader_epoch: rises with each election.
        partition_epoch: rises with each change.
    """

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    is_recovering: bool
    leader_epoch: int
    partition_epoch: int

    def directory_of(self, broker_id: int) -> bytes:
        """The log dir of one of its replicas. ValueError: the broker has none."""
        return self.directories[self.replicas.index(broker_id)]


class Topic(NamedTuple):
    """A topic, and its partitions by their numbers."""

    name: str
    id: bytes
    partitions: Mapping[int, Partition]


class Resource(NamedTuple):
    """What has configs. `type`: Kafka's number, as 2 for a topic and 4 for a broker; `name`: "" for all brokers."""

    type: int
    name: str


TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4

#: Which clients a quota is for: pairs of a type as "user" and a name, by type. None: of each that has no other quota.
Entity: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Image:
    """A cluster's metadata. It never changes; the next one shares what is the same.

    Attributes:
        position: how far the log's records are in it.
        features: the level of each finalized feature.
        brokers, controllers: by id.
        topics: by id.
        topic_ids: by name.
        configs: what is set of each resource.
        quotas: what is set for each entity.
        scram: credentials by user and mechanism (Kafka's number, 1 for SCRAM-SHA-256 and 2 for SCRAM-SHA-512).
        acls: by id.
        tokens: delegation tokens by id, without their secrets.
        next_producer_id: the first one that was given to no broker.
    """

    position: Position = START
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)
    topics: Mapping[bytes, Topic] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    configs: Mapping[Resource, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    scram: Mapping[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)
    acls: Mapping[bytes, AccessControlEntryRecord] = field(default_factory=dict)
    tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=dict)
    next_producer_id: int = 0

    def topic(self, name: str) -> Topic | None:
        """A topic by its name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]
