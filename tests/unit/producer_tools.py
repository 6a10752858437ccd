"""Numbered producers' batches and markers: headers without the bytes after them, and whole batches."""

from __future__ import annotations

import struct

from record_tools import Record, build

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.record.layout import BatchHeader

NOW = 1_700_000_000_000
COMMIT, ABORT = EndTxnMarker(True, 0), EndTxnMarker(False, 0)


def data(offset, sequence, count=1, *, producer=1, epoch=0, transactional=False, timestamp=NOW):
    """The header of `count` records from `offset` on, the first with that sequence number."""
    attributes = layout.TRANSACTIONAL if transactional else 0
    return BatchHeader(
        0, offset, 100, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer, epoch, sequence, count
    )


def marker(offset, *, producer=1, epoch=0, timestamp=NOW):
    """The header of a batch that ends the producer's transaction."""
    attributes = layout.TRANSACTIONAL | layout.CONTROL
    return BatchHeader(0, offset, 78, 0, 2, 0, attributes, 0, timestamp, timestamp, producer, epoch, -1, 1)


def ready(sequence, *values, producer=1, epoch=0, transactional=False, codec="none", timestamp=NOW):
    """A batch as a client sends it: a record for each value, the first with that sequence number."""
    records = [Record(b"k", value, timestamp) for value in values]
    return build(
        records, codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def ending(commit, *, producer=1, epoch=0, coordinator=0, timestamp=NOW):
    """The batch with which a coordinator ends a producer's transaction."""
    record = Record(struct.pack(">hh", 0, commit), struct.pack(">hi", 0, coordinator), timestamp)
    return build([record], producer_id=producer, producer_epoch=epoch, transactional=True, control=True)


def end_transaction(store, commit, topic="t", partition=0, **fields):
    """Ends a producer's transaction in a partition; what the append returns."""
    with store.logs.writer(topic, partition).hold() as held:
        return held.append(bytearray(ending(commit, **fields)), sync=False)
