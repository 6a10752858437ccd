"""The options of `format("pylog")`: their names, defaults and meaning. docs/reference/spark.md has each in full."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import NamedTuple


class ConnectorOption(NamedTuple):
    """One option.

    Attributes:
        name: as documents write it; Spark takes it in any case.
        default: the value that applies without it, as text; "" if there is none.
        unit: the unit of its number ("bytes", "ms"), or "".
        meaning: what it does, in a sentence.
    """

    name: str
    default: str
    unit: str
    meaning: str


def _table(*options: ConnectorOption) -> dict[str, ConnectorOption]:
    return {option.name: option for option in options}


#: Of batch and streaming reads.
READ_OPTIONS = _table(
    ConnectorOption("path", "", "", "the folder of the store, or of a broker's logs; or the argument of load"),
    ConnectorOption("subscribe", "", "", "topics, separated by commas; this or one of the next two"),
    ConnectorOption("subscribePattern", "", "", "a regular expression, found anywhere in a topic's name"),
    ConnectorOption("assign", "", "", 'partitions, as {"topic":[0,2]}'),
    ConnectorOption("startingTimestamp", "", "ms", "begin at the first record of this time or later"),
    ConnectorOption("startingOffsetsByTimestamp", "", "ms", 'the same for each partition, as {"topic":{"0":time}}'),
    ConnectorOption(
        "startingOffsets",
        "",
        "",
        "earliest (the default of batch reads), latest (the default of new "
        'streaming queries), group (the committed offsets of kafka.group.id), or {"topic":{"0":offset}}',
    ),
    ConnectorOption("startingOffsetsByTimestampStrategy", "error", "", "if no record is that new: error or latest"),
    ConnectorOption("endingTimestamp", "", "ms", "batch reads: end before the first record of this time or later"),
    ConnectorOption("endingOffsetsByTimestamp", "", "ms", "batch reads: the same for each partition"),
    ConnectorOption("endingOffsets", "latest", "", 'batch reads: latest, or {"topic":{"0":offset}}'),
    ConnectorOption("failOnDataLoss", "true", "", "whether missing records are an error or are skipped"),
    ConnectorOption("onCorruption", "fail", "", "damaged records: fail, skip, or quarantine them"),
    ConnectorOption("quarantinePath", "", "", "the folder for quarantined records"),
    ConnectorOption("includeHeaders", "false", "", "whether rows have the column headers"),
    ConnectorOption("arrowTransform", "", "", "a function over Arrow batches (pyspark_log.spark.arrow_transform)"),
    ConnectorOption("arrowColumns", "", "", "the columns that it gets; all by default"),
    ConnectorOption(
        "valueFormat", "", "", "values become columns: avro, protobuf, json, or confluent (five bytes first)"
    ),
    ConnectorOption("keyFormat", "", "", "the same for keys"),
    ConnectorOption("schemaRegistry", "", "", "where schemas are: URLs of a registry, or a folder"),
    ConnectorOption("schemaRegistry.NAME", "", "", "its user, password, token, caFile, certFile, keyFile, cache"),
    ConnectorOption("valueSchema", "", "", "the schema of the columns; by default the subject's newest"),
    ConnectorOption("keySchema", "", "", "the same for keys"),
    ConnectorOption("valueSubject", "", "", "the subject in the registry; by default the topic's name and -value"),
    ConnectorOption("keySubject", "", "", "the same for keys, with -key"),
    ConnectorOption("valueFraming", "", "", "before a value: none, confluent (at a URL the default) or single-object"),
    ConnectorOption("keyFraming", "", "", "the same for keys"),
    ConnectorOption("valueMessage", "", "", "of Protobuf: the message; by default the first one of its file"),
    ConnectorOption("keyMessage", "", "", "the same for keys"),
    ConnectorOption("flatten", "false", "", "whether the fields of values are columns, in place of the column value"),
    ConnectorOption(
        "onBadRecord", "fail", "", "what does not fit its schema: fail, null with its bytes kept, or (streams) topic"
    ),
    ConnectorOption("deadLetterTopic", "", "", "streams: the topic that such records go to, each once"),
    ConnectorOption("minPartitions", "", "", "split large ranges into at least this many tasks"),
    ConnectorOption("maxRecordsPerPartition", "", "records", "split ranges that have more offsets than this"),
    ConnectorOption("partitionsPerTask", "1", "", "how many ranges a task reads; auto lets small ones share a task"),
    ConnectorOption("minOffsetsPerTrigger", "", "records", "streams: wait until this many are available"),
    ConnectorOption("maxOffsetsPerTrigger", "", "records", "streams: the most in a micro-batch"),
    ConnectorOption("maxBytesPerTrigger", "", "bytes", "streams: the approximate size of a micro-batch, as stored"),
    ConnectorOption("maxTriggerDelay", "15m", "", "streams: the longest wait for minOffsetsPerTrigger"),
    ConnectorOption("groupIdPrefix", "spark-kafka-source", "", "the start of the name of a stream's group"),
    ConnectorOption("fetchOffset.numRetries", "3", "", "streams: retries when a log ends below the position"),
    ConnectorOption("fetchOffset.retryIntervalMs", "1000", "ms", "how long to wait between these retries"),
    ConnectorOption("kafka.group.id", "", "", "the group under which a stream commits its offsets, for others to see"),
    ConnectorOption("queryName", "", "", "streams: the query's name, which is shown at its group"),
    ConnectorOption("storage.NAME", "", "", "object stores: a setting or a credential, such as storage.region"),
    ConnectorOption("kafka.isolation.level", "read_uncommitted", "", "or read_committed: no aborted transactions"),
)

#: Of batch and streaming writes; Spark itself adds the last two to those of a stream.
WRITE_OPTIONS = _table(
    ConnectorOption("path", "", "", "the folder of the store; or the argument of save and start"),
    ConnectorOption("topic", "", "", "the topic of all rows; by default the column topic names it"),
    ConnectorOption("publishId", "", "", "the name of a series of writes that may be repeated, or of a query's output"),
    ConnectorOption("publishNumber", "", "", "batch writes: the number of this write in the series, 0, 1, 2 ..."),
    ConnectorOption("publishTakeOver", "false", "", "streams: take over the publishId of another query"),
    ConnectorOption("publishOffsets", "false", "", "streams: commit the offsets read atomically with the output"),
    ConnectorOption("timestampColumn", "", "", "the column with the records' times; by default the time of the write"),
    ConnectorOption("valueFormat", "", "", "columns become values: avro, protobuf, json, or confluent"),
    ConnectorOption("keyFormat", "", "", "the same for keys"),
    ConnectorOption("schemaRegistry", "", "", "where schemas are: URLs of a registry, or a folder"),
    ConnectorOption("schemaRegistry.NAME", "", "", "its user, password, token, caFile, certFile, keyFile, cache"),
    ConnectorOption("valueSchema", "", "", "the schema of values; by default the subject's newest"),
    ConnectorOption("keySchema", "", "", "the same for keys"),
    ConnectorOption(
        "registerSchemas",
        "false",
        "",
        "whether a schema that is given, or for a new subject that of the columns, is added",
    ),
    ConnectorOption("valueSubject", "", "", "the subject in the registry; by default the topic's name and -value"),
    ConnectorOption("keySubject", "", "", "the same for keys, with -key"),
    ConnectorOption("valueFraming", "", "", "before a value: none, confluent (at a URL the default) or single-object"),
    ConnectorOption("keyFraming", "", "", "the same for keys"),
    ConnectorOption("valueMessage", "", "", "of Protobuf: the message; by default the first one of its file"),
    ConnectorOption("keyMessage", "", "", "the same for keys"),
    ConnectorOption("flatten", "false", "", "whether columns are the fields of values, in place of the column value"),
    ConnectorOption("includeHeaders", "false", "", "no effect: a column headers is always written"),
    ConnectorOption("kafka.compression.type", "none", "", "the codec for topics that leave it to the writer"),
    ConnectorOption("storage.NAME", "", "", "object stores: a setting or a credential, such as storage.region"),
    ConnectorOption("checkpointLocation", "", "", "streams: Spark's folder of the query"),
    ConnectorOption("queryName", "", "", "streams: its name in Spark"),
)

#: Those of reads and writes by their names in lower case. A temporary view has both, so either is known to both.
KNOWN_OPTIONS = {name.lower(): name for name in (*READ_OPTIONS, *WRITE_OPTIONS)}

# They concern the way to a broker, and every job that is moved here has some.
_OF_BROKERS = ("kafka.bootstrap.servers", "kafkaconsumer.polltimeoutms")
_OF_CONNECTIONS = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
# What Kafka's own clients call it, and what is found in jobs that others wrote.
_MEANT = {
    "auto.offset.reset": "startingOffsets",
    "group.id": "kafka.group.id",
    "kafka.consumer.commit.groupid": "kafka.group.id",
    "kafka.consumer.group.id": "kafka.group.id",
}


def concerns_brokers(name: str) -> bool:
    """Whether an option, in lower case, is only about the way to a broker, and so has no effect here."""
    return name in _OF_BROKERS or name.startswith(_OF_CONNECTIONS)


def meant_by(name: str, candidates: Mapping[str, str] = KNOWN_OPTIONS) -> str | None:
    """The option that an unknown name in lower case may be meant for; None: there is none.

    Args:
        name: it.
        candidates: those that may be, by their names in lower case.
    """
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.8)
    return _MEANT.get(name) or (candidates[near[0]] if near else None)
