"""The record batches of a log of a cluster's metadata, and of its snapshots: bytes to records."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log.kafka.records import MetadataRecord, decode_record
from pyspark_log.storage.record import scan
from pyspark_log.storage.record.walk import read_pairs


class Batch(NamedTuple):
    """A batch.

    Attributes:
        base_offset, last_offset: of its records, which have all offsets between them.
        epoch: of the controllers' leader that wrote it.
        records: none if they are for the controllers (control records of Raft) and not of the metadata.
    """

    base_offset: int
    last_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...]


def read_batches(data: bytes | bytearray | memoryview, first: int, end: int) -> tuple[list[Batch], int]:
    """Reads the whole batches with offsets from `first` up to `end`, which it does not include.

    Records with offsets below `first` are left out, as is all from the first batch on that has an offset from `end` on:
    it may yet be replaced in the log.

    Returns:
        The batches, and how many bytes they and those that were left out before them take.

    Raises:
        CorruptRecordError: the bytes are no batches.
        MessageError: a record of the metadata is none, or (UnknownRecordError) is of a kind that is not known.
    """
    found, size = [], 0
    for header in scan(data, 0, len(data), check_crcs=True):
        if header.last_offset >= end:
            break
        size = header.end
        if header.last_offset < first:
            continue
        # Pairs are there only of records of users; a control batch has none.
        read = read_pairs(data, header.position, header.end, from_offset=first, until_offset=end)
        records = tuple(decode_record(value or b"") for _, value, _ in read.pairs)
        found.append(Batch(max(header.base_offset, first), header.last_offset, header.leader_epoch, records))
    return found, size
