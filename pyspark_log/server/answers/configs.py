"""The configs of topics and of the server as Kafka describes them: value, source, synonyms, type."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from pyspark_log.config import OWN_TOPIC_CONFIGS, STORE_CONFIGS, TOPIC_CONFIGS, ConfigKey, check_topic_configs
from pyspark_log.errors import InvalidConfigError, shortened


class Source(IntEnum):
    """Where a value comes from: Kafka's ConfigSource."""

    TOPIC = 1
    BROKER = 2  # set for one broker while it runs
    BROKERS = 3  # set for all brokers while they run
    STORE = 4  # Kafka's STATIC_BROKER_CONFIG: it is changed in store.json alone
    DEFAULT = 5


class Type(IntEnum):
    """What a value is: Kafka's ConfigType."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Synonym(NamedTuple):
    """A value that a config has by another name or from another source; the first one counts."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True)
class Config:
    """A config as it is.

    Attributes:
        synonyms: all its values, that counts first; it has one at least.
        is_sensitive: its values are shown to no client.
    """

    name: str
    type: Type
    meaning: str
    synonyms: tuple[Synonym, ...]
    read_only: bool = False
    is_sensitive: bool = False

    @property
    def value(self) -> str:
        """The value that counts."""
        return self.synonyms[0].value

    @property
    def source(self) -> Source:
        """Where it comes from."""
        return self.synonyms[0].source


#: Values by brokers' names of configs, with their sources; the first one counts, and Kafka's defaults come after them.
Layers = Sequence[tuple[Source, Mapping[str, str]]]

#: Kafka's configs of topics that mean nothing where there is one copy, with the values that they have then.
OF_REPLICAS: Mapping[str, str] = {
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.storage.enable": "false",
    "unclean.leader.election.enable": "false",
}
#: Kafka's other configs of topics that mean nothing here, and are never set.
NEVER_SET = frozenset({
    "follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "local.retention.bytes",
    "local.retention.ms", "remote.log.copy.disable", "remote.log.delete.on.disable",
})  # fmt: skip
_IN_SYNC = "min.insync.replicas"
_TYPES_OF_REPLICAS = {_IN_SYNC: Type.INT}
# Whole numbers of 32 bits; the others have 64.
_INTS = frozenset({
    "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "index.interval.bytes",
    "max.message.bytes", "min.insync.replicas", "segment.bytes", "segment.index.bytes", "batch.max.memory.bytes",
    "max.incremental.fetch.session.cache.slots", "num.partitions",
    "offsets.retention.minutes", "offsets.topic.num.partitions", "producer.id.expiration.ms",
    "transaction.max.timeout.ms", "transaction.state.log.num.partitions", "transactional.id.expiration.ms",
})  # fmt: skip
_LISTS = frozenset({
    "cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "log.dirs",
})  # fmt: skip
_TYPES = {bool: Type.BOOLEAN, int: Type.LONG, float: Type.DOUBLE}


def type_of(key: ConfigKey) -> Type:
    """The type of a config."""
    if key.name in _INTS:
        return Type.INT
    if key.name in _LISTS:
        return Type.LIST
    return _TYPES.get(type(key.value(key.default)), Type.STRING)


def of_topic(set_here: Mapping[str, str], of_store: Mapping[str, str]) -> Iterator[Config]:
    """The configs of a topic: `set_here` are its own, `of_store` those of store.json."""
    for key in _known(set_here.keys() | of_store.keys()):
        yield topic_config(key, set_here, ((Source.STORE, of_store),))
    for name, value in OF_REPLICAS.items():
        meaning = "means nothing here: there is one copy of the log"
        synonyms = (Synonym(name, value, Source.DEFAULT),)
        yield Config(name, _TYPES_OF_REPLICAS.get(name, Type.BOOLEAN), meaning, synonyms, read_only=True)


def _known(set_here: Collection[str]) -> Iterator[ConfigKey]:
    """The configs of topics that a client is shown: Kafka's, and ours where they are set."""
    return (key for key in TOPIC_CONFIGS.values() if key.name not in OWN_TOPIC_CONFIGS or key.name in set_here)


def topic_config(key: ConfigKey, set_here: Mapping[str, str], layers: Layers) -> Config:
    """A config of a topic: `set_here` are its own, `layers` those of its brokers."""
    own = (Synonym(key.name, set_here[key.name], Source.TOPIC),) if key.name in set_here else ()
    return Config(key.name, type_of(key), key.meaning, own + of_brokers(key, layers))


def of_brokers(key: ConfigKey, layers: Layers) -> tuple[Synonym, ...]:
    """What brokers have as a config: the values of the layers that have it, then Kafka's default."""
    name = key.store_name
    synonyms = [Synonym(name, values[name], source) for source, values in layers if name in values]
    return (*synonyms, Synonym(name, key.default, Source.DEFAULT))


def of_server(of_store: Mapping[str, str], node_id: int, listener: str) -> Iterator[Config]:
    """The configs of the server, of which none can be changed while it runs."""
    fixed = (
        ("broker.id", str(node_id), Type.INT, "the number of this server"),
        ("node.id", str(node_id), Type.INT, "the same"),
        ("advertised.listeners", listener, Type.LIST, "the address that clients get"),
        ("default.replication.factor", "1", Type.INT, "there is one copy of each log"),
        ("offsets.topic.replication.factor", "1", Type.SHORT, "there is one copy of each log"),
    )
    layers = ((Source.STORE, of_store),)
    for name, value, kind, meaning in fixed:
        yield Config(name, kind, meaning, (Synonym(name, value, Source.STORE),), read_only=True)
    for key in STORE_CONFIGS.values():
        yield Config(key.name, type_of(key), key.meaning, of_brokers(key, layers), read_only=True)
    for key in _known(of_store.keys()):
        meaning = f"{key.meaning}; for topics that do not set {key.name}"
        yield Config(key.store_name, type_of(key), meaning, of_brokers(key, layers), read_only=True)


def checked(values: Mapping[str, str], servers: int) -> dict[str, str]:
    """What to set of a topic's configs that a client gives: all but those that mean nothing here.

    Args:
        values: the configs.
        servers: how many servers the store has: a client that asks for as many replicas sets `min.insync.replicas` to
            as many, or one less, and gets what that is for, as the store keeps what is acknowledged.

    Raises:
        InvalidConfigError: there is no such config, or it cannot have that value here.
    """
    one_replica = "a partition has one replica here, in the files of the store"
    for name, value in values.items():
        if name in NEVER_SET:
            raise InvalidConfigError(f"{name} cannot be set: {one_replica}")
        most = servers if name == _IN_SYNC else 0
        if OF_REPLICAS.get(name, value) != value and value not in map(str, range(1, most + 1)):
            possible = OF_REPLICAS[name] + (f" to {most}" if most > 1 else "")
            raise InvalidConfigError(f"{name} = {shortened(value)!r}: must be {possible}: {one_replica}")
    kept = {name: value for name, value in values.items() if name not in OF_REPLICAS}
    check_topic_configs(kept)
    return kept


class Change(IntEnum):
    """How a config is changed: Kafka's AlterConfigOp."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def check_list(name: str) -> None:
    """Refuses a config of topics that is no list. InvalidConfigError."""
    key = TOPIC_CONFIGS.get(name)
    if key is None or type_of(key) is not Type.LIST:
        raise InvalidConfigError(f"{name} is no list, to which values could be added or from which they could be taken")


def changed_list(before: str, change: Change, value: str) -> str:
    """A list after elements were added to it, or taken from it."""
    elements, named = before.split(","), value.split(",")
    if change is Change.APPEND:
        return ",".join([*elements, *(element for element in named if element not in elements)])
    return ",".join(element for element in elements if element not in named)
