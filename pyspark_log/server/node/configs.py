"""The configs of topics and brokers of a cluster, as a node of it describes them by the image of the metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyspark_log.config import OWN_TOPIC_CONFIGS, STORE_CONFIGS, TOPIC_CONFIGS, ConfigKey
from pyspark_log.server.answers.configs import Config, Layers, Source, Synonym, Type, of_brokers, topic_config, type_of
from pyspark_log.server.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, Image, Resource
from pyspark_log.units import truth

# Kafka's configs of topics that mean nothing where there is one copy, with its defaults.
_OF_REPLICAS: tuple[ConfigKey, ...] = (
    ConfigKey("min.insync.replicas", "min.insync.replicas", "1", "",
              "how many replicas in sync acks=all needs", int),
    ConfigKey("unclean.leader.election.enable", "unclean.leader.election.enable", "false", "",
              "whether a replica that is not in sync may be elected", truth),
    ConfigKey("preallocate", "log.preallocate", "false", "", "whether segments get their size at once", truth),
    ConfigKey("leader.replication.throttled.replicas", "", "", "",
              "of which replicas the leaders are throttled", str),
    ConfigKey("follower.replication.throttled.replicas", "", "", "",
              "of which replicas the followers are throttled", str),
    ConfigKey("remote.storage.enable", "", "false", "", "whether segments are kept in remote storage, too", truth),
    ConfigKey("remote.log.copy.disable", "", "false", "", "whether no more of them are copied there", truth),
    ConfigKey("remote.log.delete.on.disable", "", "false", "", "whether they are deleted there at its end", truth),
    ConfigKey("local.retention.bytes", "log.local.retention.bytes", "-2", "bytes",
              "retention.bytes of what is not only there", int),
    ConfigKey("local.retention.ms", "log.local.retention.ms", "-2", "ms",
              "retention.ms of what is not only there", int),
)  # fmt: skip
_OF_TOPICS = {key.name: key for key in (*TOPIC_CONFIGS.values(), *_OF_REPLICAS) if key.name not in OWN_TOPIC_CONFIGS}
_OF_BROKERS = {key.store_name: key for key in _OF_TOPICS.values() if key.store_name}
# Those of STORE_CONFIGS that Kafka lets be changed while brokers run.
_CHANGEABLE = frozenset({
    "log.cleaner.dedupe.buffer.size", "log.cleaner.io.max.bytes.per.second", "producer.id.expiration.ms",
})  # fmt: skip
# Values of Kafka's type PASSWORD.
_SECRET = re.compile(r"(?:password|jaas\.config|keystore\.key|certificate\.chain|truststore\.certificates)$")


def configs_of_topic(image: Image, topic: str, node_id: int, of_store: Mapping[str, str]) -> Iterator[Config]:
    """The configs of a topic; `of_store` are those of the node's store.json, which is as a broker's own settings."""
    own = image.configs.get(Resource(TOPIC_RESOURCE, topic), {})
    layers = _layers(image, node_id, of_store)
    for key in _OF_TOPICS.values():
        yield topic_config(key, own, layers)
    for name in own.keys() - _OF_TOPICS.keys():
        yield Config(name, Type.UNKNOWN, "", (Synonym(name, own[name], Source.TOPIC),))


def configs_of_all_brokers(image: Image) -> Iterator[Config]:
    """What is set for all brokers while they run."""
    for name, value in image.configs.get(Resource(BROKER_RESOURCE, ""), {}).items():
        yield _dynamic(name, (Synonym(name, value, Source.BROKERS),))


def configs_of_node(image: Image, node_id: int, listener: str, of_store: Mapping[str, str]) -> Iterator[Config]:
    """The configs of a node; `listener`: as brokers have it in advertised.listeners."""
    layers = _layers(image, node_id, of_store)
    fixed = (
        ("broker.id", str(node_id), Type.INT, "the number of this node"),
        ("node.id", str(node_id), Type.INT, "the same"),
        ("advertised.listeners", listener, Type.LIST, "the address that clients and brokers get"),
    )
    for name, value, kind, meaning in fixed:
        yield Config(name, kind, meaning, (Synonym(name, value, Source.STORE),), read_only=True)
    for key in STORE_CONFIGS.values():
        is_fixed = key.name not in _CHANGEABLE
        yield Config(key.name, type_of(key), key.meaning, of_brokers(key, layers), read_only=is_fixed)
    for name, key in _OF_BROKERS.items():
        yield Config(name, type_of(key), f"{key.meaning}; for topics that do not set it", of_brokers(key, layers))
    names = {name for name, *_ in fixed} | STORE_CONFIGS.keys() | _OF_BROKERS.keys()
    for name in {name for source, values in layers if source is not Source.STORE for name in values} - names:
        yield _dynamic(name, tuple(Synonym(name, values[name], source) for source, values in layers if name in values))


def broker_config(image: Image, node_id: int, of_store: Mapping[str, str], name: str) -> str:
    """The value of one of STORE_CONFIGS that counts for a node."""
    return of_brokers(STORE_CONFIGS[name], _layers(image, node_id, of_store))[0].value


def _layers(image: Image, node_id: int, of_store: Mapping[str, str]) -> Layers:
    return (
        (Source.BROKER, image.configs.get(Resource(BROKER_RESOURCE, str(node_id)), {})),
        (Source.BROKERS, image.configs.get(Resource(BROKER_RESOURCE, ""), {})),
        (Source.STORE, of_store),
    )


def _dynamic(name: str, synonyms: tuple[Synonym, ...]) -> Config:
    """A config of brokers that is set while they run, and which this version may not know."""
    key = _OF_BROKERS.get(name) or STORE_CONFIGS.get(name)
    config = Config(name, Type.UNKNOWN, "", synonyms, is_sensitive=_SECRET.search(name) is not None)
    return config if key is None else replace(config, type=type_of(key), meaning=key.meaning)
