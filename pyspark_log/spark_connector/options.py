"""The options of the data source, with the names, values and rules of Spark's Kafka connector.

An option that this version cannot honour is refused, never ignored. Only options that mean nothing without brokers
are accepted without effect: `kafka.*` configs of Kafka's clients and the poll time-out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark_log.connector_options import KNOWN_OPTIONS, READ_OPTIONS, WRITE_OPTIONS, concerns_brokers, meant_by
from pyspark_log.errors import InvalidConfigError, shortened
from pyspark_log.near_names import one_edit_apart
from pyspark_log.spark_connector.corruption import OnCorruption
from pyspark_log.spark_connector.errors import option_error
from pyspark_log.spark_connector.planning.offsets import (
    AT_EARLIEST,
    AT_LATEST,
    AtCommitted,
    AtTimestamp,
    AtTimestamps,
    Position,
    Specific,
    check_bounds,
    parse_option,
    parse_timestamps,
)
from pyspark_log.spark_connector.planning.ranges import Splitting, TriggerLimits
from pyspark_log.spark_connector.planning.subscription import Subscription, parse_subscription
from pyspark_log.storage.catalog import local_path
from pyspark_log.types import EARLIEST, LATEST, READ_UNCOMMITTED, check_isolation
from pyspark_log.units import SPARK_SIZES, SPARK_TIMES_US, truth, with_unit

#: Options as Spark passes them, with their names in lower case.
Options = Mapping[str, str]

_LONG = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1

_REFUSED_FOR_READS = {
    "auto.offset.reset": "Instead set the source option 'startingOffsets' to 'earliest' or 'latest' to specify "
    "where to start; a query that is restarted resumes where it left off.",
    "key.deserializer": "Keys are read as byte arrays; use DataFrame operations to deserialize them.",
    "value.deserializer": "Values are read as byte arrays; use DataFrame operations to deserialize them.",
    "enable.auto.commit": "A streaming query keeps its position in its checkpoint and commits it for others to see.",
    "interceptor.classes": "Interceptors could change what is read.",
}
_REFUSED_FOR_WRITES = {
    "key.serializer": "Keys are strings or byte arrays; use DataFrame operations to serialize them.",
    "value.serializer": "Values are strings or byte arrays; use DataFrame operations to serialize them.",
}

#: Without one of them keys and values are bytes; in lower case.
TYPED_OPTIONS = {"valueformat", "keyformat", "schemaregistry", "flatten", "onbadrecord", "deadlettertopic"}
_OF_STORE, _HIDDEN = "storage.", "secret."
# Ends of the names of secrets that Spark takes for other options.
_SECRETS = ("_key", "_key_base64")
# What Spark adds for a table in its catalog.
_OF_TABLES = ("owner", "provider", "location", "option.")
# Checked where they are used.
_OF_REGISTRY = "schemaregistry."


def lower_names(options: Mapping[str, str]) -> dict[str, str]:
    """The options with their names in lower case: names are case-insensitive, values are not."""
    return {name.lower(): value for name, value in options.items()}


@dataclass(frozen=True)
class StorePlace:
    """Where a store is, and how it is reached.

    Attributes:
        path: its folder, or its URL.
        options: as for `Store.open`. They may be secrets.
    """

    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def split_storage(options: Options) -> tuple[dict[str, str], dict[str, str]]:
    """The options `storage.*` and `storage.secret.*`, as `Store.open` takes them, and all others.

    Raises:
        ConnectorError: one is a secret that Spark would show, as its name does not say so.
    """
    of_store, others = dict[str, str](), dict[str, str]()
    for given, value in options.items():
        name = given.removeprefix(_OF_STORE)
        if name == given:
            others[given] = value
            continue
        if name.endswith(_SECRETS) and "secret" not in name:
            raise option_error(
                f"{given}: Spark shows options in the plans of streaming queries, except those whose names have the "
                f"word secret: name it {_OF_STORE}{_HIDDEN}{name}"
            )
        of_store[name.removeprefix(_HIDDEN)] = value
    return of_store, others


def store_path(options: Options) -> str:
    """The option `path` as the user gave it.

    Raises:
        ConnectorError: the option is missing.
    """
    path = options.get("path", "").strip()
    if not path:
        if not options:
            raise option_error(
                "Option 'path' must be specified. Spark does not pass on the options of a table in its catalog: name "
                "them in the statement, FROM t WITH (path = '...', subscribe = '...'), or use a temporary view"
            )
        instead = " in place of kafka.bootstrap.servers" if "kafka.bootstrap.servers" in options else ""
        raise option_error(
            f"Option 'path' must be specified{instead}: the folder of the store, or load(path), save(path), start(path)"
        )
    return path


@dataclass(frozen=True)
class ReadOptions:
    """The options of a batch or streaming read.

    Attributes:
        subscription: which partitions to read.
        start: where to begin; None: the default.
        end: where a batch read ends; None: the default.
        include_headers: whether rows have the column `headers`.
        isolation_level: read_uncommitted or read_committed.
        given: the options as Spark passes them.
        fail_on_data_loss: whether a read ends with an error where records that it had to read are missing.
        on_corruption: what to do where records are damaged.
        transform: the user's function over the rows of a task, as text; None: there is none.
        transformed: the columns that it gets; empty: all.
        splitting: into how many ranges it is split.
        partitions_per_task: how many of them one task reads; None: small ones share a task, by their bytes.
        group_id: the group under which a stream commits its offsets, if the user names one.
        group_id_prefix: otherwise, the prefix of the group's name.
        query_name: the name that is shown at the group; "": none.
        retries: how often the log ends are looked up again while they are below a query's position.
        retry_interval_ms: how long to wait in between.
    """

    subscription: Subscription
    start: Position | None
    end: Position | None
    include_headers: bool
    isolation_level: str
    given: Options
    fail_on_data_loss: bool
    on_corruption: OnCorruption
    transform: str | None
    transformed: tuple[str, ...]
    splitting: Splitting
    partitions_per_task: int | None
    group_id: str | None
    group_id_prefix: str
    query_name: str
    retries: int
    retry_interval_ms: int

    @classmethod
    def parse(cls, options: Options) -> ReadOptions:
        """Parses the options that batch and streaming reads share.

        Args:
            options: as returned by `lower_names`.

        Raises:
            ConnectorError: with the Kafka connector's message where it has one.
        """
        _refuse_misspelled(options)
        subscription = parse_subscription(options)
        if {"minoffsetspertrigger", "maxoffsetspertrigger"} <= options.keys():
            _check_limits(options)  # As in the Kafka connector, also for a batch read, which ignores them.
        _refuse_client_configs(options, _REFUSED_FOR_READS)
        return cls(
            subscription=subscription,
            start=_start(options),
            end=_bound(options, "ending", or_latest=True),
            include_headers=truth_of(options, "includeHeaders"),
            isolation_level=_isolation_level(options),
            given=options,
            fail_on_data_loss=truth_of(options, "failOnDataLoss", default=True),
            on_corruption=_on_corruption(options),
            transform=options.get("arrowtransform"),
            transformed=tuple(name.strip() for name in options.get("arrowcolumns", "").split(",") if name.strip()),
            splitting=Splitting(
                _positive(options, "minPartitions", _INT_MAX), _positive(options, "maxRecordsPerPartition", _LONG_MAX)
            ),
            partitions_per_task=_partitions_per_task(options),
            group_id=options.get("kafka.group.id"),
            group_id_prefix=options.get("groupidprefix", "spark-kafka-source"),
            query_name=options.get("queryname", ""),
            retries=_whole(options, "fetchOffset.numRetries", 3),
            retry_interval_ms=_whole(options, "fetchOffset.retryIntervalMs", 1000),
        )

    def stream_start(self) -> Position:
        """Where a new streaming query begins.

        Raises:
            ConnectorError: an option is for batch reads only.
        """
        if "endingoffsets" in self.given:
            raise option_error("ending offset not valid in streaming queries")
        if "endingoffsetsbytimestamp" in self.given:
            raise option_error("ending timestamp not valid in streaming queries")
        return AT_LATEST if self.start is None else self.start

    def trigger_limits(self) -> TriggerLimits:
        """How large the micro-batches of a stream are; batch reads ignore these options.

        Raises:
            ConnectorError: one of them is malformed, or they contradict each other.
        """
        least, most = _check_limits(self.given)
        return TriggerLimits(
            least, most, _bytes(self.given, "maxBytesPerTrigger"), _duration(self.given, "maxTriggerDelay", "15m")
        )

    def batch_bounds(self) -> tuple[Position, Position]:
        """Where a batch read begins and ends.

        Raises:
            ConnectorError: it would begin at the latest or end at the earliest offset, or they contradict each other.
        """
        start = AT_EARLIEST if self.start is None else self.start
        end = AT_LATEST if self.end is None else self.end
        if start == AT_LATEST:
            raise option_error("starting offset can't be latest for batch queries on pylog")
        if end == AT_EARLIEST:
            raise option_error("ending offset can't be earliest for batch queries on pylog")
        if isinstance(start, Specific):
            for at, offset in start.offsets.items():
                if offset == LATEST:
                    raise option_error(f"startingOffsets for {at} can't be latest for batch queries on pylog")
        if isinstance(end, Specific):
            for at, offset in end.offsets.items():
                if offset == EARLIEST:
                    raise option_error(f"ending offset for {at} can't be earliest for batch queries on pylog")
        if isinstance(start, Specific) and isinstance(end, Specific):
            check_bounds(start, end)
        return start, end


@dataclass(frozen=True)
class WriteOptions:
    """The options of a batch or streaming write.

    Attributes:
        topic: the topic of all rows; None: the column `topic` names it.
        publish_id: the id under which a write is published exactly once; None: a streaming query's own.
        publish_number: the number of this publish under that id, of a batch write.
        publish_take_over: whether an id that belongs to another query becomes that of this one.
        publish_offsets: whether the offsets that a streaming query has read are committed with its output.
        compression_type: the codec for topics that leave it to the writer, or None.
        timestamp_column: the column with the records' times; None: the time of the write.
    """

    topic: str | None
    publish_id: str | None
    publish_number: int | None
    publish_take_over: bool
    publish_offsets: bool
    compression_type: str | None
    timestamp_column: str | None

    @classmethod
    def parse(cls, options: Options) -> WriteOptions:
        """Parses the options of a write.

        Raises:
            ConnectorError: with the Kafka connector's message where it has one.
        """
        _refuse_misspelled(options)
        _refuse_client_configs(options, _REFUSED_FOR_WRITES)
        publish_id = options.get("publishid")
        if publish_id == "":
            raise option_error("publishId is empty: it names a series of writes")
        return cls(
            topic=options["topic"].strip() if "topic" in options else None,
            publish_id=publish_id,
            publish_number=_whole(options, "publishNumber", 0) if "publishnumber" in options else None,
            publish_take_over=truth_of(options, "publishTakeOver"),
            publish_offsets=truth_of(options, "publishOffsets"),
            compression_type=options.get("kafka.compression.type"),
            timestamp_column=options.get("timestampcolumn"),
        )

    def check_batch(self) -> None:
        """Refuses options that a batch write cannot have. ConnectorError."""
        if (self.publish_id is None) != (self.publish_number is None):
            raise option_error(
                "publishId and publishNumber go together: the id names a series of writes, and the number counts them"
            )
        if self.publish_take_over or self.publish_offsets:
            raise option_error("publishTakeOver and publishOffsets are for streaming queries")

    def check_stream(self) -> None:
        """Refuses options that a streaming write cannot have. ConnectorError."""
        if self.publish_number is not None:
            raise option_error("publishNumber is for batch writes: the micro-batches of a query have their own numbers")
        if self.publish_take_over and self.publish_id is None:
            raise option_error("publishTakeOver needs publishId: the id that this query takes over")


def _refuse_client_configs(options: Options, refused: Mapping[str, str]) -> None:
    for name, instead in refused.items():
        if f"kafka.{name}" in options:
            raise option_error(f"Kafka option '{name}' is not supported. {instead}")


# An option that another one overrides is not parsed: the order is that of the Kafka connector.


def _start(options: Options) -> Position | None:
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise option_error(f"startingOffsetsByTimestampStrategy must be error or latest, got {shortened(strategy)}")
    by_time = options.keys() & {"startingtimestamp", "startingoffsetsbytimestamp"}
    if not by_time and options.get("startingoffsets", "").strip().lower() == "group":
        if "kafka.group.id" not in options:
            raise option_error("startingOffsets=group needs kafka.group.id: the group at whose offsets to start")
        return AtCommitted(options["kafka.group.id"])
    return _bound(options, "starting", or_latest=strategy == "latest")


def _bound(options: Options, side: str, *, or_latest: bool) -> Position | None:
    """Where a read begins or ends, by the options whose names begin with `side`; None: none of them is given."""
    if f"{side}timestamp" in options:
        text = options[f"{side}timestamp"].strip()
        timestamp = _long(text)
        if timestamp is None:
            raise option_error(f"{side}Timestamp: Expected a single long value, got {shortened(text)}: ms since 1970")
        return AtTimestamp(timestamp, or_latest)
    if f"{side}offsetsbytimestamp" in options:
        name = f"{side}OffsetsByTimestamp"
        return AtTimestamps(parse_timestamps(name, options[name.lower()].strip()), or_latest)
    return _position(f"{side}Offsets", options[f"{side}offsets"]) if f"{side}offsets" in options else None


def _position(option: str, text: str) -> Position:
    text = text.strip()
    words = {"earliest": AT_EARLIEST, "latest": AT_LATEST}
    word = words.get(text.lower())
    return Specific(parse_option(option, text)) if word is None else word


def _isolation_level(options: Options) -> str:
    level = options.get("kafka.isolation.level", READ_UNCOMMITTED).strip()
    try:
        check_isolation(level)
    except InvalidConfigError as error:
        raise option_error(f"kafka.{error}") from None
    return level


def _on_corruption(options: Options) -> OnCorruption:
    word = options.get("oncorruption", "fail").strip().lower()
    folder = options.get("quarantinepath", "").strip()
    if word not in ("fail", "skip", "quarantine"):
        raise option_error(f"onCorruption must be fail, skip or quarantine, got {shortened(word)}")
    if (word == "quarantine") != bool(folder):
        raise option_error(
            "onCorruption=quarantine and quarantinePath go together: the folder gets the damaged bytes and a report"
        )
    return OnCorruption(word != "fail", local_path(folder) if folder else "")


def _check_limits(options: Options) -> tuple[int | None, int | None]:
    least, most = (_positive(options, f"{side}OffsetsPerTrigger", _LONG_MAX) for side in ("min", "max"))
    if least is not None and most is not None and least > most:
        raise option_error(
            f"The value of minOffsetsPerTrigger ({least}) is higher than the maxOffsetsPerTrigger ({most})."
        )
    return least, most


def _duration(options: Options, name: str, default: str) -> int:
    """A time in ms, written as Spark has them: 500ms, 30s, 15m, 2h, 1d; a number alone is ms."""
    text = options.get(name.lower(), default).strip().lower()
    try:
        return with_unit(text, SPARK_TIMES_US) // 1000
    except ValueError:
        raise option_error(f"{name} must be a time such as 500ms, 30s, 15m or 2h, got {shortened(text)}") from None


def _bytes(options: Options, name: str) -> int | None:
    """A number of bytes, written as Spark has them: 1000, 64k, 128m, 1g, with or without a b at the end."""
    text = options.get(name.lower())
    if text is None:
        return None
    with suppress(ValueError):
        if 0 < (size := with_unit(text.strip().lower(), SPARK_SIZES)) <= _LONG_MAX:
            return size
    raise option_error(f"{name} must be a number of bytes such as 64k, 128m or 1g, got {shortened(text)}")


def _positive(options: Options, name: str, largest: int) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    value = _long(text.strip())
    if value is None or value > largest:
        raise option_error(f'{name} must be a whole number. For input string: "{shortened(text)}"')
    if value <= 0:
        raise option_error(f"{name} must be positive")
    return value


def _partitions_per_task(options: Options) -> int | None:
    if options.get("partitionspertask", "").strip().lower() == "auto":
        return None
    return _positive(options, "partitionsPerTask", _INT_MAX) or 1


def _long(text: str) -> int | None:
    if not _LONG.fullmatch(text):
        return None
    value = int(text)
    return value if -_LONG_MAX <= value <= _LONG_MAX else None


def _whole(options: Options, name: str, default: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    value = _long(text.strip())
    if value is None or value < 0:
        raise option_error(f"{name} must be a whole number, 0 or more, got {shortened(text)}")
    return value


def truth_of(options: Options, name: str, *, default: bool = False) -> bool:
    """An option that is true or false. ConnectorError: it is neither."""
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        return truth(text)
    except ValueError as error:
        raise option_error(f"{name} {error}, got {shortened(text)}") from None


def _refuse_misspelled(names: Iterable[str]) -> None:
    """Refuses a name that is one letter from a known one: without it the job would do something else.

    Args:
        names: in lower case.

    Raises:
        ConnectorError: with the name that is meant.
    """
    for name in _others(names):
        meant = next((known for lower, known in KNOWN_OPTIONS.items() if one_edit_apart(name, lower)), None)
        if meant is not None:
            raise option_error(f"there is no option {name}: is {meant} meant?")


def without_effect(names: Iterable[str], *, write: bool = False) -> list[str]:
    """What to warn of, in one line: the options that have no effect, and which ones may be meant. Else nothing.

    Args:
        names: in lower case.
        write: whether they are those of a write.
    """
    known = {name.lower(): name for name in (WRITE_OPTIONS if write else READ_OPTIONS)}
    said = []
    for name in _others(names):
        meant = meant_by(name, known)
        said.append(name if meant is None else f"{name} (is {meant} meant?)")
    return [f"without effect here: {', '.join(said)}"] if said else []


def _others(names: Iterable[str]) -> list[str]:
    return sorted(
        name
        for name in names
        if name not in KNOWN_OPTIONS and not concerns_brokers(name) and not name.startswith((*_OF_TABLES, _OF_REGISTRY))
    )
