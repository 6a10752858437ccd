"""The next image while records are applied to it: what they change is copied, once, and the rest is shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark_log.kafka.messages import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from pyspark_log.kafka.records import MetadataRecord
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.cluster.errors import MetadataError
from pyspark_log.server.cluster.image import (
    MIGRATING,
    TOPIC_RESOURCE,
    Broker,
    Endpoint,
    FeatureRange,
    Image,
    Partition,
    Position,
    Resource,
    Topic,
)

# The leader in a change that does not change it.
_SAME_LEADER = -2


class Draft:
    """An image that is being made from another one.

    Attributes:
        topics: the ids of topics that were created, changed or deleted.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._own: dict[str, Any] = {}  # what is different, by the names of the image's fields
        self._partitions: dict[bytes, dict[int, Partition]] = {}  # of the topics that are different
        self.topics: set[bytes] = set()

    def finish(self, position: Position) -> Image:
        """The next image. The draft is used up."""
        return replace(self._image, position=position, **self._own)

    def apply(self, record: MetadataRecord) -> None:
        """Applies a record.

        Raises:
            MetadataError: it is about what is not there.
        """
        _APPLY[record.name](self, record.value)

    def _of(self, field: str) -> dict[Any, Any]:
        """A mapping of the image, which may be changed."""
        own: dict[Any, Any] | None = self._own.get(field)
        if own is None:
            own = self._own[field] = dict(getattr(self._image, field))
        return own

    # ---- brokers and features

    def feature_level(self, record: FeatureLevelRecord) -> None:
        """The level of a feature; 0: it is not finalized any more."""
        if record.feature_level:
            self._of("features")[record.name] = record.feature_level
        else:
            self._of("features").pop(record.name, None)

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        """A broker."""
        cordoned = record.cordoned_log_dirs
        self._of("brokers")[record.broker_id] = Broker(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            tuple(Endpoint(one.name, one.host, one.port, one.security_protocol) for one in record.end_points),
            {one.name: FeatureRange(one.min_supported_version, one.max_supported_version) for one in record.features},
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
            None if cordoned is None else tuple(cordoned),
        )

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        """A broker that is gone for good."""
        self._of("brokers").pop(record.broker_id, None)

    def change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        """What is new of a broker."""
        changed = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            changed = changed._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            changed = changed._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            changed = changed._replace(log_dirs=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            changed = changed._replace(cordoned_log_dirs=tuple(record.cordoned_log_dirs))
        self._of("brokers")[record.broker_id] = changed

    def fence_broker(self, record: FenceBrokerRecord) -> None:
        """The same, as Kafka before 3.3 has it."""
        self._of("brokers")[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)

    def unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        """The same, as Kafka before 3.3 has it."""
        self._of("brokers")[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        found: Broker | None = self._of("brokers").get(broker_id)
        if found is None or found.epoch != epoch:
            known = "no such broker is registered" if found is None else f"its epoch is {found.epoch}"
            raise MetadataError(f"broker {broker_id} with epoch {epoch} changes, but {known}")
        return found

    def register_controller(self, record: RegisterControllerRecord) -> None:
        """A controller."""
        self._of("controllers")[record.controller_id] = record

    # ---- topics

    def topic(self, record: TopicRecord) -> None:
        """A topic, whose partitions follow."""
        self._partitions[record.topic_id] = partitions = dict[int, Partition]()
        self._of("topics")[record.topic_id] = Topic(record.name, record.topic_id, partitions)
        self._of("topic_ids")[record.name] = record.topic_id
        self.topics.add(record.topic_id)

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        """A topic that is gone, with its partitions and configs."""
        topic: Topic | None = self._of("topics").pop(record.topic_id, None)
        if topic is None:
            raise MetadataError(f"the topic with id {record.topic_id.hex()} is deleted, but there is none")
        self._partitions.pop(record.topic_id, None)
        if self._of("topic_ids").get(topic.name) == record.topic_id:
            del self._of("topic_ids")[topic.name]
        self._of("configs").pop(Resource(TOPIC_RESOURCE, topic.name), None)
        self.topics.add(record.topic_id)

    def partition(self, record: PartitionRecord) -> None:
        """A partition, as it is."""
        replicas, directories = tuple(record.replicas), tuple(record.directories)
        if directories and len(directories) != len(replicas):
            raise MetadataError(f"a partition has {len(replicas)} replicas in {len(directories)} log dirs: {record}")
        self._partitions_of(record.topic_id)[record.partition_id] = Partition(
            replicas,
            _directories(directories, replicas),
            tuple(record.isr),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader,
            record.leader_recovery_state == 1,
            record.leader_epoch,
            record.partition_epoch,
        )

    def change_partition(self, record: PartitionChangeRecord) -> None:
        """What is new of a partition. Each change moves its epoch, and each election the leader's."""
        partitions = self._partitions_of(record.topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            raise MetadataError(
                f"partition {record.partition_id} of the topic with id {record.topic_id.hex()} changes, but it is not"
                " there"
            )
        replicas = old.replicas if record.replicas is None else tuple(record.replicas)
        directories = old.directories if record.directories is None else tuple(record.directories)
        is_elected = record.leader != _SAME_LEADER
        partitions[record.partition_id] = Partition(
            replicas,
            _directories(directories, replicas),
            old.isr if record.isr is None else tuple(record.isr),
            old.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            old.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
            old.removing if record.removing_replicas is None else tuple(record.removing_replicas),
            old.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            record.leader if is_elected else old.leader,
            old.is_recovering if record.leader_recovery_state < 0 else record.leader_recovery_state == 1,
            old.leader_epoch + is_elected,
            old.partition_epoch + 1,
        )

    def clear_elr(self, record: ClearElrRecord) -> None:
        """A topic, or all of them if it has no name, forgets its eligible leaders."""
        if record.topic_name:
            topic_id = self._of("topic_ids").get(record.topic_name)
            if topic_id is None:
                raise MetadataError(f"the ELR of topic {record.topic_name!r} is cleared, but there is no such topic")
            topics = [self._of("topics")[topic_id]]
        else:
            topics = list(self._of("topics").values())
        for topic in topics:
            for number, one in topic.partitions.items():
                if one.elr or one.last_known_elr:
                    changed = one._replace(elr=(), last_known_elr=(), partition_epoch=one.partition_epoch + 1)
                    self._partitions_of(topic.id)[number] = changed

    def _partitions_of(self, topic_id: bytes) -> dict[int, Partition]:
        """The partitions of a topic, which may be changed."""
        own = self._partitions.get(topic_id)
        if own is None:
            topic: Topic | None = self._of("topics").get(topic_id)
            if topic is None:
                raise MetadataError(
                    f"a partition of the topic with id {topic_id.hex()} changes, but there is no such topic"
                )
            own = self._partitions[topic_id] = dict(topic.partitions)
            self._of("topics")[topic_id] = topic._replace(partitions=own)
            self.topics.add(topic_id)
        return own

    # ---- the rest

    def config(self, record: ConfigRecord) -> None:
        """One config of a resource; without a value it is not set any more."""
        self._set("configs", Resource(record.resource_type, record.resource_name), record.name, record.value)

    def client_quota(self, record: ClientQuotaRecord) -> None:
        """One quota of an entity."""
        entity = tuple(sorted((one.entity_type, one.entity_name) for one in record.entity))
        self._set("quotas", entity, record.key, None if record.remove else record.value)

    def _set(self, field: str, of: object, key: str, value: object) -> None:
        """Sets one of the values of something, or takes it away; what has none is left out."""
        values = {name: one for name, one in self._of(field).get(of, {}).items() if name != key}
        if value is not None:
            values[key] = value
        if values:
            self._of(field)[of] = values
        else:
            self._of(field).pop(of, None)

    def scram_credential(self, record: UserScramCredentialRecord) -> None:
        """A user's credential."""
        self._of("scram")[record.name, record.mechanism] = record

    def remove_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        """A user's credential that is gone."""
        self._of("scram").pop((record.name, record.mechanism), None)

    def acl(self, record: AccessControlEntryRecord) -> None:
        """An ACL."""
        self._of("acls")[record.id] = record

    def remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        """An ACL that is gone."""
        if self._of("acls").pop(record.id, None) is None:
            raise MetadataError(f"the ACL with id {record.id.hex()} is deleted, but there is none")

    def token(self, record: DelegationTokenRecord) -> None:
        """A delegation token."""
        self._of("tokens")[record.token_id] = record

    def remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        """A delegation token that is gone."""
        self._of("tokens").pop(record.token_id, None)

    def producer_ids(self, record: ProducerIdsRecord) -> None:
        """A block of producer ids is given to a broker."""
        self._own["next_producer_id"] = record.next_producer_id

    def nothing(self, record: Struct) -> None:
        """A record that only moves the offset."""


def _directories(given: tuple[bytes, ...], replicas: tuple[int, ...]) -> tuple[bytes, ...]:
    """The log dirs of replicas, where records may not say them."""
    is_unsaid = all(one == MIGRATING for one in given)
    return (MIGRATING,) * len(replicas) if is_unsaid else given


_APPLY: dict[str, Callable[[Draft, Any], None]] = {
    "AccessControlEntryRecord": Draft.acl,
    "BrokerRegistrationChangeRecord": Draft.change_broker,
    "ClearElrRecord": Draft.clear_elr,
    "ClientQuotaRecord": Draft.client_quota,
    "ConfigRecord": Draft.config,
    "DelegationTokenRecord": Draft.token,
    "FeatureLevelRecord": Draft.feature_level,
    "FenceBrokerRecord": Draft.fence_broker,
    "NoOpRecord": Draft.nothing,
    "PartitionChangeRecord": Draft.change_partition,
    "PartitionRecord": Draft.partition,
    "ProducerIdsRecord": Draft.producer_ids,
    "RegisterBrokerRecord": Draft.register_broker,
    "RegisterControllerRecord": Draft.register_controller,
    "RemoveAccessControlEntryRecord": Draft.remove_acl,
    "RemoveDelegationTokenRecord": Draft.remove_token,
    "RemoveTopicRecord": Draft.remove_topic,
    "RemoveUserScramCredentialRecord": Draft.remove_scram_credential,
    "TopicRecord": Draft.topic,
    "UnfenceBrokerRecord": Draft.unfence_broker,
    "UnregisterBrokerRecord": Draft.unregister_broker,
    "UserScramCredentialRecord": Draft.scram_credential,
    "ZkMigrationStateRecord": Draft.nothing,
}
