"""Logs of a cluster's metadata for tests: batches of records, as Kafka's controllers write them."""

import copy

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.records import encode_record
from pyspark_log.kafka.schemas import message_of
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns

_MOST = 1 << 30
# A Raft control record (LeaderChange); its content does not matter to a node.
_LEADER_CHANGE = (b"\0\0\0\2", b"\0\0\0")


def batch_of(values, base_offset, epoch=1):
    """The bytes of a batch of records, each in its newest version."""
    return batch_of_values([encode_record(one, newest(one)) for one in values], base_offset, epoch)


def batch_of_values(values, base_offset, epoch=1):
    """The bytes of a batch of any values."""
    return _batch([None] * len(values), values, base_offset, epoch)


def control_batch(base_offset, epoch=1):
    """The bytes of a control batch, which takes one offset."""
    key, value = _LEADER_CHANGE
    return _batch([key], [value], base_offset, epoch, control=True)


def newest(value):
    """The newest version of a record."""
    return message_of(value).versions[-1]


def _batch(keys, values, base_offset, epoch, **flags):
    columns = RecordColumns.of_pairs(keys, values, 0)
    builder = BatchBuilder(_MOST, _MOST)
    assert builder.append(columns, None, 0, len(values)) == len(values)
    return bytes(builder.seal(base_offset=base_offset, leader_epoch=epoch, **flags))


def records_of(image):
    """Records that say what an image says: those of a snapshot."""
    found = [m.FeatureLevelRecord(name, level) for name, level in image.features.items()]
    found += [
        m.RegisterBrokerRecord(
            one.id, False, one.incarnation_id, one.epoch,
            [m.RegisterBrokerRecord.BrokerEndpoint(*endpoint) for endpoint in one.endpoints],
            [m.RegisterBrokerRecord.BrokerFeature(name, *levels) for name, levels in one.features.items()],
            one.rack, one.fenced, one.in_controlled_shutdown, one.log_dirs, one.cordoned_log_dirs,
        )
        for one in image.brokers.values()
    ]  # fmt: skip
    found += image.controllers.values()
    for topic in image.topics.values():
        found.append(m.TopicRecord(topic.name, topic.id))
        found += [
            m.PartitionRecord(
                number, topic.id, one.replicas, one.isr, one.removing, one.adding, one.leader, int(one.is_recovering),
                one.leader_epoch, one.partition_epoch, one.directories, one.elr or None, one.last_known_elr or None,
            )
            for number, one in topic.partitions.items()
        ]  # fmt: skip
    for resource, configs in image.configs.items():
        found += [m.ConfigRecord(*resource, name, value) for name, value in configs.items()]
    for entity, quotas in image.quotas.items():
        parts = [m.ClientQuotaRecord.EntityData(*one) for one in entity]
        found += [m.ClientQuotaRecord(parts, name, value, False) for name, value in quotas.items()]
    found += [*image.scram.values(), *image.acls.values(), *image.tokens.values()]
    found.append(m.ProducerIdsRecord(-1, -1, image.next_producer_id))
    return found


class Scribe:
    """Makes records that may follow each other, by chance: as controllers write them, and in less usual order."""

    def __init__(self, chance, brokers=(0, 1, 2, 3)):
        """`brokers`: those that come and go; replicas are in all four, whether they are there or not."""
        self._chance, self._brokers, self._number = chance, brokers, 0
        # What there is: epochs of brokers; names and replicas of topics; ids of ACLs, users, tokens.
        self._epochs, self._topics, self._acls, self._users, self._tokens = {}, {}, [], [], []
        # Names of topics that are created, or whose configs are set, in the step that is not finished. Kafka's classes
        # keep their configs if they are deleted in the same step. And "scram": if it deletes the last credential of a
        # mechanism, Kafka's classes lose others of it that the same step sets.
        self._fresh = set()
        self._kept = None

    def begin(self):
        """A transaction begins."""
        self._kept = copy.deepcopy((self._epochs, self._topics, self._acls, self._users, self._tokens))

    def abort(self):
        """What was written since the transaction began never was."""
        self._epochs, self._topics, self._acls, self._users, self._tokens = self._kept

    def batch(self, base_offset):
        """Some records, the first of which is at an offset."""
        found = []
        for _ in range(self._chance.randint(1, 6)):
            makers = [
                self._feature, self._broker, self._broker, self._gone_broker, self._changed_broker, self._old_change,
                self._controller, self._topic, self._topic, self._no_topic, *[self._changed_partition] * 8,
                self._more_partitions, self._clear, self._config, self._config, self._quota, self._scram, self._acl,
                self._token, self._ids, self._nothing,
            ]  # fmt: skip
            found += self._chance.choice(makers)(base_offset + len(found))
        return found or [m.NoOpRecord()]

    def finish(self):
        """What comes next is in another step."""
        self._fresh = set()

    def _next(self):
        self._number += 1
        return self._number

    def _uuid(self):
        return self._next().to_bytes(16, "little")

    def _some(self, of, most=4):
        return self._chance.sample(of, self._chance.randint(0, min(most, len(of))))

    def _feature(self, _):
        name = self._chance.choice(["transaction.version", "share.version", "other.version"])
        return [m.FeatureLevelRecord(name, self._chance.randint(0, 2))]

    def _broker(self, offset):
        number, chance, dirs = self._chance.choice(self._brokers), self._chance, [self._uuid(), self._uuid()]
        self._epochs[number] = offset
        endpoints = [m.RegisterBrokerRecord.BrokerEndpoint(name, "h", number, 1) for name in ("A", "B")]
        features = [m.RegisterBrokerRecord.BrokerFeature("metadata.version", 7, 30)]
        return [
            m.RegisterBrokerRecord(
                number, False, self._uuid(), offset, endpoints, features, chance.choice([None, "r"]),
                chance.random() < 0.5, chance.random() < 0.2, dirs, chance.choice([None, (), dirs[:1]]),
            )
        ]  # fmt: skip

    def _one_broker(self):
        return self._chance.choice(sorted(self._epochs.items())) if self._epochs else None

    def _gone_broker(self, _):
        if not (one := self._one_broker()):
            return []
        return [m.UnregisterBrokerRecord(one[0], self._epochs.pop(one[0]))]

    def _changed_broker(self, _):
        if not (one := self._one_broker()):
            return []
        chance = self._chance
        dirs, cordoned = chance.choice([(), [self._uuid()]]), chance.choice([None, (), [self._uuid()]])
        return [m.BrokerRegistrationChangeRecord(*one, chance.randint(-1, 1), chance.randint(0, 1), dirs, cordoned)]

    def _old_change(self, _):
        if not (one := self._one_broker()):
            return []
        return [self._chance.choice([m.FenceBrokerRecord, m.UnfenceBrokerRecord])(*one)]

    def _controller(self, _):
        endpoints = [m.RegisterControllerRecord.ControllerEndpoint("C", "h", self._chance.randrange(9), 0)]
        features = [m.RegisterControllerRecord.ControllerFeature("kraft.version", 0, 1)]
        return [
            m.RegisterControllerRecord(self._chance.randrange(3000, 3003), self._uuid(), False, endpoints, features)
        ]

    def _replicas(self):
        return self._chance.sample(range(4), self._chance.randint(1, 3))

    def _partition(self, topic_id, number):
        replicas, chance = self._replicas(), self._chance
        isr, elr = self._some(replicas), self._some(replicas)
        leader = chance.choice([-1, *isr])
        self._topics[topic_id][1][number] = replicas, leader
        return m.PartitionRecord(
            number, topic_id, replicas, isr, self._some(replicas, 1), self._some(replicas, 1),
            leader, chance.randint(0, 1), chance.randrange(5), chance.randrange(5),
            chance.choice([(), [self._uuid() for _ in replicas]]), elr or None, self._some(replicas) or None,
        )  # fmt: skip

    def _topic(self, _):
        taken = {name for name, _ in self._topics.values()}
        free = [name for name in ("a", "b", "c", "d") if name not in taken]
        if not free:
            return []
        topic_id, name = self._uuid(), self._chance.choice(free)
        self._topics[topic_id] = name, {}
        self._fresh.add(name)
        return [
            m.TopicRecord(name, topic_id),
            *(self._partition(topic_id, n) for n in range(self._chance.randint(1, 3))),
        ]

    def _one_topic(self):
        return self._chance.choice(sorted(self._topics)) if self._topics else None

    def _no_topic(self, _):
        topic_id = self._one_topic()
        if topic_id is None or self._topics[topic_id][0] in self._fresh:
            return []
        del self._topics[topic_id]
        return [m.RemoveTopicRecord(topic_id)]

    def _more_partitions(self, _):
        topic_id = self._one_topic()
        return [] if topic_id is None else [self._partition(topic_id, len(self._topics[topic_id][1]))]

    def _changed_partition(self, _):
        topic_id, chance = self._one_topic(), self._chance
        if topic_id is None:
            return []
        number = chance.choice(sorted(self._topics[topic_id][1]))
        replicas, leader = self._topics[topic_id][1][number]
        given = {"leader_recovery_state": chance.randint(-1, 1)}
        if chance.random() < 0.3:
            replicas = self._replicas()
            given |= {"replicas": replicas, "directories": [self._uuid() for _ in replicas]}
        for field in ("isr", "removing_replicas", "adding_replicas", "eligible_leader_replicas", "last_known_elr"):
            if chance.random() < 0.3:
                given[field] = self._replicas() if chance.random() < 0.8 else []
        if leader not in (-1, *replicas) or chance.random() < 0.5:
            leader = given["leader"] = chance.choice([-1, *replicas])
        self._topics[topic_id][1][number] = replicas, leader
        return [m.PartitionChangeRecord(number, topic_id, **given)]

    def _clear(self, _):
        names = sorted(name for name, _ in self._topics.values())
        return [m.ClearElrRecord(self._chance.choice(["", *names]))]

    def _config(self, _):
        resource = self._chance.choice([(2, "a"), (2, "b"), (2, "c"), (4, ""), (4, "1")])
        self._fresh.add(resource[1])
        return [m.ConfigRecord(*resource, self._chance.choice(["x", "y"]), self._chance.choice([None, "1", "2"]))]

    def _quota(self, _):
        entity = [
            m.ClientQuotaRecord.EntityData(kind, self._chance.choice([None, "n"])) for kind in ("user", "client-id")
        ]
        entity = self._chance.choice([entity, entity[:1], entity[::-1]])
        key, value = self._chance.choice(["p", "q"]), self._chance.randrange(9) / 2
        return [m.ClientQuotaRecord(entity, key, value, self._chance.random() < 0.4)]

    def _scram(self, _):
        if "scram" in self._fresh:
            return []
        self._fresh.add("scram")
        if self._users and self._chance.random() < 0.4:
            return [m.RemoveUserScramCredentialRecord(*self._users.pop())]
        user = self._chance.choice("uvw"), self._chance.choice([1, 2])
        if user not in self._users:
            self._users.append(user)
        return [m.UserScramCredentialRecord(*user, b"salt", b"stored", b"server", 4096 + self._next())]

    def _acl(self, _):
        if self._acls and self._chance.random() < 0.5:
            return [m.RemoveAccessControlEntryRecord(self._acls.pop())]
        self._acls.append(self._uuid())
        return [m.AccessControlEntryRecord(self._acls[-1], 2, f"t{self._next()}", 3, "User:u", "*", 3, 3)]

    def _token(self, _):
        if self._tokens and self._chance.random() < 0.5:
            return [m.RemoveDelegationTokenRecord(self._tokens.pop())]
        self._tokens.append(f"token{self._next()}")
        return [m.DelegationTokenRecord("User:u", "User:v", ["User:w"], 1, 3, 2, self._tokens[-1])]

    def _ids(self, _):
        return [m.ProducerIdsRecord(0, 0, 1000 * self._next())]

    def _nothing(self, _):
        return [m.NoOpRecord()]
