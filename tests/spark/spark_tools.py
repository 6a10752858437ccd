"""What the tests of the connector have in common."""

import json

import pyarrow as pa
import pytest

from tests.query_offsets import of_topics


def fill(store, topic, *partitions):
    """Appends values to partitions 0, 1, ... of a topic, which is made if it is missing."""
    if topic not in store.topics():
        store.create_topic(topic, len(partitions))
    for number, values in enumerate(partitions):
        if values:
            store.append(topic, pa.record_batch({"value": [str(value) for value in values]}), partition=number)


def values_in(store, topic):
    """The values of each partition of a topic, as the engine reads them."""
    return [
        [value.decode() for batch in store.read(topic, number) for value in batch.column("value").to_pylist()]
        for number in range(store.describe_topic(topic).partitions)
    ]


def all_values_in(store, topic):
    """The values of all partitions of a topic, sorted."""
    return sorted(value for values in values_in(store, topic) for value in values)


def read(spark, store, topic, **options):
    """A batch read."""
    return spark.read.format("pylog").options(subscribe=topic, **options).load(store.path)


def read_stream(spark, store, topic, columns=("value",), **options):
    """A streaming read, from the earliest offset unless the options say otherwise.

    Only the values, as a rule: when written, the column `partition` would choose a row's partition.
    """
    options = {"startingOffsets": "earliest", **options}
    return spark.readStream.format("pylog").options(subscribe=topic, **options).load(store.path).selectExpr(*columns)


def write(df, store, **options):
    """A batch write."""
    df.write.format("pylog").mode("append").options(**options).save(store.path)


def write_stream(df, store, checkpoint, mode="append", **options):
    """A streaming write of all there is; returns the finished query."""
    writer = df.writeStream.format("pylog").outputMode(mode)
    return run_to_the_end(writer, checkpoint, path=store.path, **options)


def run_to_the_end(writer, checkpoint, **options):
    """A query of all there is, of which a `DataStreamWriter` is given; returns the finished query."""
    writer = writer.options(checkpointLocation=str(checkpoint), **options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def values_of(df):
    """The values that a DataFrame holds, sorted."""
    return sorted(row.value for row in df.selectExpr("cast(value as string) value").collect())


def batch_sizes(query):
    """The rows of each micro-batch that read any."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def end_offset(query):
    """The offset JSON that the query's last progress shows, without our own key."""
    return of_topics(json.loads(query.lastProgress.json)["sources"][0]["endOffset"])


def fails(*parts):
    """Expects an error whose text holds `parts` in this order; its type is Spark's choice."""
    return pytest.raises(Exception, match="(?s)" + ".*".join(parts))
