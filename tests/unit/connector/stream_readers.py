"""What tests of streaming readers share, whichever way Spark asks these for the end of a micro-batch."""

import json

import pyarrow as pa

from pyspark_log import DefaultSource


def append(store, partition, count):
    store.append("t", values(count), partition=partition)


def values(count):
    return pa.record_batch({"value": [b"v"] * count})


def reader_of(store, **options):
    """A new reader, as after a start of the query."""
    given = {"path": store.path, "subscribe": "t", "startingOffsets": "earliest", **options}
    source = DefaultSource({name.replace("__", "."): value for name, value in given.items()})
    return source.streamReader(source.schema())


def through_json(offset):
    """Offsets cross to Spark and back as text."""
    return json.loads(json.dumps(offset))


def plan(reader, start, end):
    ranges = [work.range for work in reader.partitions(through_json(start), through_json(end))]
    return [(one.at.partition, one.start, one.end) for one in ranges]
