"""Batches of a producer that numbers its records; and a check of the index of its aborted transactions."""

import struct
import time
from pathlib import Path

import pyarrow as pa

from pyspark_log.storage.log.producers.state import ProducerStates
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.end_txn_marker import decode_end_txn_marker
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.segment.txn_index import read_entries


def batch(sequence, values, producer, transactional=False, keys=None):
    """A batch as a client sends it."""
    return _seal(keys, values, producer, sequence, transactional=transactional)


def ending(producer, commit):
    """The batch that ends the producer's transaction."""
    key, value = struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0)
    return bytearray(_seal([key], [value], producer, -1, transactional=True, control=True))


def _seal(keys, values, producer, sequence, **kind):
    columns = RecordColumns(keys and pa.array(keys), pa.array(values), None, None, time.time_ns() // 1_000_000)
    builder = BatchBuilder(1 << 20, 1 << 20)
    builder.append(columns, None, 0, len(values))
    return builder.seal(producer_id=producer, producer_epoch=0, base_sequence=sequence, **kind)


def end_transaction(store, topic, partition, producer, *, commit=False):
    """Aborts or commits the producer's transaction, as a coordinator does."""
    with store.logs.writer(topic, partition).hold() as writer:
        writer.append(ending(producer, commit), sync=False)


def check_index(store, topic, partition):
    """The index of aborted transactions says what the log says."""
    states, told, found = ProducerStates(), [], []
    for path in map(Path, store.segment_files(topic, partition)):
        found += read_entries(str(path.with_suffix(".txnindex")), int(path.stem))
        log = path.read_bytes()
        for header in scan(log, 0, len(log), check_crcs=True):
            if header.producer_id >= 0:
                marker = decode_end_txn_marker(log[header.position : header.end], header) if header.is_control else None
                told += [states.aborted_by(header, marker)] if marker else []
                states.enter(header, marker)
    assert found == [entry for entry in told if entry is not None]
    return found
