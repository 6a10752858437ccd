"""Configs of topics and stores: Kafka's names, defaults and bounds.

A topic's value overrides the store's (under Kafka's broker name), which overrides Kafka's default.
The tables here are the only source of defaults; `conf/` documents them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_log.errors import InvalidConfigError, shortened
from pyspark_log.near_names import did_you_mean
from pyspark_log.units import truth

LONG_MAX = 2**63 - 1
#: The default of `batch.max.memory.bytes`, the bytes that one batch may take in memory: its records once they
#: are decompressed, and 32 for each record and each header. It bounds what a reader needs, whatever the bytes
#: claim, and keeps every column below the 2 GiB that Arrow's 32-bit offsets reach.
MAX_BATCH_BYTES: Final = 512 * 1024 * 1024
INT_MAX = 2**31 - 1
CODEC_NAMES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}")
        return value

    return parse


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not 0 <= value <= 1:
        raise ValueError("must be from 0 to 1")
    return value


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return parse


def _policies(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words or not set(words) <= {"delete", "compact"}:
        raise ValueError("must be delete, compact, or both with a comma")
    return words


#: What `value.format` and `key.format` may be; confluent: five bytes, then what the schema's kind says.
VALUE_FORMATS = ("bytes", "avro", "protobuf", "json", "confluent")


def _place_of_schemas(text: str) -> str:
    if text and not text.startswith(("http://", "https://", "/")):
        raise ValueError("must be the URL of a schema registry, or the absolute path of a folder")
    return text


Value = int | float | bool | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One config.

    Attributes:
        name: Kafka's name for it on a topic (or on a broker, for a config of the store alone).
        store_name: Kafka's broker name, under which a store can set it for all topics.
        default: the default, as text.
        unit: the unit of its number ("bytes", "ms"), or "".
        meaning: what it does, in a sentence.
        parse: converts text to the value; ValueError says what is wrong.
    """

    name: str
    store_name: str
    default: str
    unit: str
    meaning: str
    parse: Callable[[str], Value]

    def value(self, text: str) -> Value:
        """Parses `text`. InvalidConfigError names the config."""
        if not isinstance(text, str):  # A number, where a program's types are not checked.
            raise InvalidConfigError(f"{self.name} = {text!r}: must be a text, as {str(text)!r}")
        try:
            return self.parse(text.strip())
        except ValueError as error:
            raise InvalidConfigError(f"{self.name} = {shortened(text)!r}: {error}") from None


def _table(*keys: ConfigKey) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


TOPIC_CONFIGS: Mapping[str, ConfigKey] = _table(
    ConfigKey("cleanup.policy", "log.cleanup.policy", "delete", "",
              "what happens to old records: delete, compact (keep the last value of each key), or both", _policies),
    ConfigKey("compression.type", "compression.type", "producer", "",
              "codec of the record batches; producer keeps the writer's choice (none by default)",
              _one_of(*CODEC_NAMES)),
    ConfigKey("compression.gzip.level", "compression.gzip.level", "-1", "", "1 to 9; -1 is the library's default",
              _whole(-1, 9)),
    ConfigKey("compression.lz4.level", "compression.lz4.level", "9", "", "1 to 17", _whole(1, 17)),
    ConfigKey("compression.zstd.level", "compression.zstd.level", "3", "", "-131072 to 22", _whole(-131072, 22)),
    ConfigKey("delete.retention.ms", "log.cleaner.delete.retention.ms", "86400000", "ms",
              "how long compaction keeps tombstones", _whole(0, LONG_MAX)),
    ConfigKey("file.delete.delay.ms", "log.segment.delete.delay.ms", "60000", "ms",
              "how long a deleted segment's files stay for readers that have them open", _whole(0, LONG_MAX)),
    ConfigKey("flush.messages", "log.flush.interval.messages", str(LONG_MAX), "",
              "sync once a partition has this many unsynced records", _whole(1, LONG_MAX)),
    ConfigKey("flush.ms", "log.flush.interval.ms", str(LONG_MAX), "ms",
              "an append syncs once any record has been unsynced for longer than this", _whole(0, LONG_MAX)),
    ConfigKey("index.interval.bytes", "log.index.interval.bytes", "4096", "bytes",
              "log bytes between two index entries", _whole(0, INT_MAX)),
    ConfigKey("key.format", "key.format", "bytes", "",
              "what keys are, for Spark, the page and `pylog`: bytes, avro, protobuf, json, or confluent (five bytes "
              "first)", _one_of(*VALUE_FORMATS)),
    ConfigKey("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", str(LONG_MAX), "ms",
              "the longest time that a record stays uncompacted", _whole(1, LONG_MAX)),
    ConfigKey("max.message.bytes", "message.max.bytes", "1048588", "bytes",
              "the largest record batch, after compression", _whole(0, INT_MAX)),
    ConfigKey("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", "3600000", "ms",
              "how far a record's time may be after the clock (CreateTime)", _whole(0, LONG_MAX)),
    ConfigKey("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", str(LONG_MAX), "ms",
              "how far a record's time may be before the clock (CreateTime)", _whole(0, LONG_MAX)),
    ConfigKey("message.timestamp.type", "log.message.timestamp.type", "CreateTime", "",
              "which time a record gets: the writer's (CreateTime) or that of the append (LogAppendTime)",
              _one_of("CreateTime", "LogAppendTime")),
    ConfigKey("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", "0.5", "",
              "compact a log once this share of its bytes has not been compacted", _fraction),
    ConfigKey("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "0", "ms",
              "how long a record is safe from compaction", _whole(0, LONG_MAX)),
    ConfigKey("retention.bytes", "log.retention.bytes", "-1", "bytes",
              "size of a partition above which its oldest segments are deleted; -1 is no limit", _whole(-1, LONG_MAX)),
    ConfigKey("retention.ms", "log.retention.ms", "604800000", "ms",
              "age of records after which their segment is deleted; -1 is no limit", _whole(-1, LONG_MAX)),
    ConfigKey("schema.registry", "schema.registry", "", "",
              "where the schemas of key.format and value.format are: the URL of a registry, or a folder",
              _place_of_schemas),
    # Kafka 4 refuses less than 1 MiB; tests of rolling need far less, so its older bound is used here.
    ConfigKey("segment.bytes", "log.segment.bytes", "1073741824", "bytes",
              "size of a segment file", _whole(14, INT_MAX)),
    ConfigKey("segment.index.bytes", "log.index.size.max.bytes", "10485760", "bytes",
              "the largest size of an index file", _whole(12, INT_MAX)),
    ConfigKey("segment.jitter.ms", "log.roll.jitter.ms", "0", "ms",
              "how much segment.ms varies by segment, so that not all roll at once", _whole(0, LONG_MAX)),
    ConfigKey("segment.ms", "log.roll.ms", "604800000", "ms",
              "time span of records after which a segment is rolled", _whole(1, LONG_MAX)),
    ConfigKey("source.position.header", "source.position.header", "", "",
              "a header that says where a record comes from, as SOURCE/OFFSET/ORDINAL; a record that is not above the "
              "highest position of its source in the partition is left out", str),
    ConfigKey("value.format", "value.format", "bytes", "", "what values are, as key.format", _one_of(*VALUE_FORMATS)),
)  # fmt: skip

#: The configs of topics that Kafka does not have, so that no cluster's controllers know them.
OWN_TOPIC_CONFIGS = frozenset({"key.format", "schema.registry", "source.position.header", "value.format"})


def with_formats(
    settings: Mapping[str, str], configs: Mapping[str, str], parts: Collection[str] = ("key", "value")
) -> dict[str, str]:
    """Settings of typed topics, with what a topic's configs say of its keys and values where these leave it open.

    Here, as those that find none need not load what decodes.

    Args:
        settings: by their names in lower case, as schemas.settings has them.
        configs: the topic's, over those of its store.
        parts: of which the configs count.
    """
    merged = dict(settings)
    for part in parts:
        setting, word = f"{part}format", configs.get(f"{part}.format", "bytes")
        if setting not in settings and word != "bytes":
            merged[setting] = word
            # What a reader has for one registry, as a password, is for no other.
            if "schema.registry" in configs and not any(name.startswith("schemaregistry.") for name in settings):
                merged.setdefault("schemaregistry", configs["schema.registry"])
    return merged


STORE_CONFIGS: Mapping[str, ConfigKey] = _table(
    ConfigKey("auto.create.topics.enable", "auto.create.topics.enable", "true", "",
              "whether the first write to an unknown topic creates it", truth),
    # Kafka has no such config. Batches of more than one record are written so that they stay below it.
    ConfigKey("batch.max.memory.bytes", "batch.max.memory.bytes", str(MAX_BATCH_BYTES), "bytes",
              "the largest size of a record batch in memory when it is read; larger ones are refused",
              _whole(1 << 20, INT_MAX - 63)),
    ConfigKey("log.cleaner.dedupe.buffer.size", "log.cleaner.dedupe.buffer.size", str(128 << 20), "bytes",
              "memory of a cleaner for the keys of one round; 24 bytes a key", _whole(1 << 10, LONG_MAX)),
    ConfigKey("log.cleaner.io.max.bytes.per.second", "log.cleaner.io.max.bytes.per.second", str(LONG_MAX), "bytes/s",
              "the most bytes that a cleaner reads and writes in a second", _whole(1, LONG_MAX)),
    ConfigKey("log.dirs", "log.dirs", "data", "",
              "comma-separated folders that hold the partitions; `pylog log-dirs add` adds more", str),
    ConfigKey("max.incremental.fetch.session.cache.slots", "max.incremental.fetch.session.cache.slots", "1000", "",
              "how many fetch sessions a server remembers at most; 0: none", _whole(0, INT_MAX)),
    ConfigKey("num.partitions", "num.partitions", "1", "",
              "partitions of a topic that is created without a number", _whole(1, INT_MAX)),
    ConfigKey("offsets.retention.check.interval.ms", "offsets.retention.check.interval.ms", "600000", "ms",
              "how often a process that commits offsets checks for expired ones", _whole(1, LONG_MAX)),
    ConfigKey("offsets.retention.minutes", "offsets.retention.minutes", "10080", "minutes",
              "how long the committed offsets of an idle group are kept, unless their commit said otherwise",
              _whole(1, INT_MAX)),
    ConfigKey("offsets.topic.num.partitions", "offsets.topic.num.partitions", "50", "",
              "partitions of __consumer_offsets, fixed at its creation", _whole(1, INT_MAX)),
    ConfigKey("producer.id.expiration.ms", "producer.id.expiration.ms", "86400000", "ms",
              "how long the sequence numbers of a producer that is idle are remembered", _whole(1, INT_MAX)),
    ConfigKey("replica.lag.time.max.ms", "replica.lag.time.max.ms", "30000", "ms",
              "of a node: after how long without all records a follower is out of sync", _whole(1, LONG_MAX)),
    # Kafka has neither of these; they are named after transactional.id.expiration.ms.
    ConfigKey("staged.output.expiration.ms", "staged.output.expiration.ms", "604800000", "ms",
              "how long unpublished staged output is kept after its job last wrote any",
              _whole(1, LONG_MAX)),
    ConfigKey("staged.output.orphan.expiration.ms", "staged.output.orphan.expiration.ms", "600000", "ms",
              "the same, once the process that would publish it is known to be dead", _whole(1, LONG_MAX)),
    ConfigKey("transaction.max.timeout.ms", "transaction.max.timeout.ms", "900000", "ms",
              "for how long a transaction of a client of the server may last at most", _whole(1, INT_MAX)),
    ConfigKey("transaction.state.log.num.partitions", "transaction.state.log.num.partitions", "50", "",
              "partitions of __transaction_state, fixed at its creation", _whole(1, INT_MAX)),
    ConfigKey("transactional.id.expiration.ms", "transactional.id.expiration.ms", "604800000", "ms",
              "how long a transactional id is remembered that is not used", _whole(1, INT_MAX)),
)  # fmt: skip

_BY_STORE_NAME: Mapping[str, ConfigKey] = {**{key.store_name: key for key in TOPIC_CONFIGS.values()}, **STORE_CONFIGS}


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """Refuses unknown names and bad values. InvalidConfigError."""
    _check(configs, TOPIC_CONFIGS, "topic")


def check_store_configs(configs: Mapping[str, str]) -> None:
    """Refuses unknown names and bad values. InvalidConfigError."""
    _check(configs, _BY_STORE_NAME, "store")


def check_compression_type(name: str | None) -> None:
    """Refuses what is no codec that a writer can choose (None: it chooses none). InvalidConfigError."""
    if name not in (None, "none", *CODEC_NAMES[:-1]):
        raise InvalidConfigError(f"compression.type = {shortened(name)!r}: must be none, gzip, snappy, lz4 or zstd")


def _check(configs: Mapping[str, str], table: Mapping[str, ConfigKey], kind: str) -> None:
    for name, text in configs.items():
        key = table.get(name)
        if key is None:
            near = did_you_mean(name, table) or f"; `pylog configs {kind}` lists those that there are"
            raise InvalidConfigError(f"there is no {kind} config {shortened(name)!r}{near}")
        key.value(text)


def store_config(configs: Mapping[str, str], name: str) -> Value:
    """The value of a config of the store: as set, else the default."""
    key = STORE_CONFIGS[name]
    return key.value(configs.get(name, key.default))


def int_config(configs: Mapping[str, str], name: str) -> int:
    """The same, for an integer config."""
    value = store_config(configs, name)
    assert isinstance(value, int)
    return value


def _codec(compression: str, of_writer: str | None) -> str:
    """The codec that compression.type means for a writer, which may have one of its own; InvalidConfigError."""
    check_compression_type(of_writer)
    codec = (of_writer or "none") if compression == "producer" else compression
    return "none" if codec == "uncompressed" else codec


# Configs of topics that `resolve` reads by themselves, as they are neither whole numbers nor for readers of values.
_NOT_WHOLE = ("cleanup.policy", "compression.type", "min.cleanable.dirty.ratio", "source.position.header")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The resolved configs of a topic that the engine uses; units as in TOPIC_CONFIGS."""

    compact: bool
    deletes: bool
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    codec: str
    level: int | None
    log_append_time: bool
    keeps_codec: bool  # a record batch that a client has encoded keeps its compression
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_batch_bytes: int  # the most that a batch may take in memory
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    producer_id_expiration_ms: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    source_position_header: str

    @classmethod
    def resolve(
        cls, topic: Mapping[str, str], store: Mapping[str, str], compression_type: str | None = None
    ) -> TopicConfig:
        """Resolves the configs of a topic over those of its store over Kafka's defaults.

        Args:
            topic, store: their configs, by Kafka's names.
            compression_type: the writer's codec, which counts if compression.type is producer; None: none.

        Raises:
            InvalidConfigError: a bad value, or no such codec.
        """
        values = {
            name: key.value(topic.get(name, store.get(key.store_name, key.default)))
            for name, key in TOPIC_CONFIGS.items()
        }

        def whole(name: str) -> int:
            value = values[name]
            assert isinstance(value, int)
            return value

        policy, codec, ratio, source_header = (values[name] for name in _NOT_WHOLE)
        assert isinstance(policy, tuple)
        assert isinstance(codec, str)
        assert isinstance(ratio, float)
        assert isinstance(source_header, str)
        codec = _codec(codec, compression_type)
        compact = "compact" in policy
        # Compaction skips the active segment, so a segment must not stay active for longer than the lag.
        longest = whole("max.compaction.lag.ms") if compact else LONG_MAX
        return cls(
            compact=compact,
            deletes="delete" in policy,
            delete_retention_ms=whole("delete.retention.ms"),
            min_cleanable_dirty_ratio=ratio,
            min_compaction_lag_ms=whole("min.compaction.lag.ms"),
            max_compaction_lag_ms=whole("max.compaction.lag.ms"),
            codec=codec,
            level=None if codec in ("none", "snappy") else whole(f"compression.{codec}.level"),
            log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            keeps_codec=values["compression.type"] == "producer",
            file_delete_delay_ms=whole("file.delete.delay.ms"),
            flush_messages=whole("flush.messages"),
            flush_ms=whole("flush.ms"),
            index_interval_bytes=whole("index.interval.bytes"),
            max_batch_bytes=int_config(store, "batch.max.memory.bytes"),
            max_message_bytes=whole("max.message.bytes"),
            message_timestamp_after_max_ms=whole("message.timestamp.after.max.ms"),
            message_timestamp_before_max_ms=whole("message.timestamp.before.max.ms"),
            producer_id_expiration_ms=int_config(store, "producer.id.expiration.ms"),
            retention_bytes=whole("retention.bytes"),
            retention_ms=whole("retention.ms"),
            segment_bytes=whole("segment.bytes"),
            segment_index_bytes=whole("segment.index.bytes"),
            segment_jitter_ms=whole("segment.jitter.ms"),
            segment_ms=min(whole("segment.ms"), longest),
            source_position_header=source_header,
        )
