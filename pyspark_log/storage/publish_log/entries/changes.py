"""What an entry of the publish log changes."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from pyspark_log.types import TopicPartition


class Region(NamedTuple):
    """Record batches, back to back, in an object.

    Attributes:
        object: the object's name; "": they are in the entry itself.
        position, size: where they are in it, in bytes; in the entry: after its head.
        records: how many offsets they take.
        max_timestamp: the largest time of their records (ms), or NO_TIMESTAMP.
        crc: CRC-32C of the checksums of the batches, one after the other. It identifies them.
    """

    object: str
    position: int
    size: int
    records: int
    max_timestamp: int
    crc: int


class Addition(NamedTuple):
    """Records that a partition gets.

    Attributes:
        topic_id, partition: which partition.
        base_offset: the offset of the first of them, which is where the partition ended before.
        regions: where they are, in their order.
    """

    topic_id: str
    partition: int
    base_offset: int
    regions: tuple[Region, ...]

    @property
    def next_offset(self) -> int:
        """The offset after the last of them."""
        return self.base_offset + sum(region.records for region in self.regions)


class Numbered(NamedTuple):
    """A record batch of an idempotent producer (KIP-98) among the records that a partition gets.

    Attributes:
        topic_id, partition: which partition.
        producer_id, epoch: the producer.
        base_sequence: the sequence number of its first record.
        base_offset: the offset of that; -1: it is in an open transaction.
        records: how many offsets it takes.
    """

    topic_id: str
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    base_offset: int
    records: int


class OffsetMove(NamedTuple):
    """A move of a group's committed offset.

    Attributes:
        group, at: whose, and of which partition.
        before: the committed offset from which it starts; None: there is none.
        offset: the new one; None: it is deleted.
        metadata: the committer's text.
    """

    group: str
    at: TopicPartition
    before: int | None
    offset: int | None
    metadata: str = ""


class GroupRecord(NamedTuple):
    """A record of a group's members, as Kafka's coordinator writes it to `__consumer_offsets`.

    Attributes:
        group: whose.
        key, value: as there; None: it is deleted.
    """

    group: str
    key: bytes
    value: bytes | None


class Place(NamedTuple):
    """Where a server is: where clients find it, and Kafka's `broker.rack`; "": it has none."""

    host: str
    port: int
    rack: str = ""


class ServerNote(NamedTuple):
    """What a server of the store says of itself.

    Attributes:
        node_id: Kafka's `broker.id`.
        run: 22 characters that no other start of a server has.
        place: where it is.
        coordinates: whether it coordinates groups and transactions from then on.
        leaves: whether it ends.
    """

    node_id: int
    run: str
    place: Place
    coordinates: bool
    leaves: bool


class Document(NamedTuple):
    """A document of the store's servers, such as their list of users, as it is from then on.

    Attributes:
        name: which one.
        object: the name of the object that it is in.
        crc: CRC-32C of its bytes.
    """

    name: str
    object: str
    crc: int


class LogStart(NamedTuple):
    """The first offset that a partition keeps."""

    topic_id: str
    partition: int
    offset: int


class Merge(NamedTuple):
    """Records that move to another object; those that are compacted away are not in it.

    Attributes:
        topic_id, partition: which partition.
        base_offset, next_offset: the offsets that they have: [base, next).
        regions: where they are from then on, in their order; together they take these offsets.
        cleaned_to: up to which offset the partition is compacted from then on; -1: as before.
    """

    topic_id: str
    partition: int
    base_offset: int
    next_offset: int
    regions: tuple[Region, ...]
    cleaned_to: int = -1


# ---- transactions of Kafka's clients: nothing of them is visible before they are committed


class Staged(NamedTuple):
    """Records of an open transaction.

    Attributes:
        producer_id: whose.
        topic_id, partition: for which partition.
        regions: where they are, in their order.
    """

    producer_id: int
    topic_id: str
    partition: int
    regions: tuple[Region, ...]


class StagedOffset(NamedTuple):
    """An offset that an open transaction commits.

    Attributes:
        producer_id: whose.
        group, at: of which group, for which partition.
        offset, metadata: what is committed, and the committer's text; offset -1: it is deleted.
    """

    producer_id: int
    group: str
    at: TopicPartition
    offset: int
    metadata: str


class Step(StrEnum):
    """What becomes of a producer's transaction."""

    NONE = ""
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"


class TransactionStep(NamedTuple):
    """What is known of a transactional id from then on, and what becomes of its transaction.

    Attributes:
        transactional_id: the id.
        value: what is known of it, as Kafka's coordinator writes it to `__transaction_state`; None: nothing any more.
        last_epoch: the epoch that a client may have whose last answer was lost; -1: none.
        producer_id, epoch: whose transaction begins or ends.
        step: what becomes of it.
    """

    transactional_id: str
    value: bytes | None
    last_epoch: int
    producer_id: int
    epoch: int
    step: Step
