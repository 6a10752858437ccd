"""What the coordinator takes and gives beside messages: clients, answers, and what must be stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark_log.group_records import RecordKey, Value
from pyspark_log.kafka.schemas import Struct

#: What a request that may wait is known by: any object but None.
Token: TypeAlias = object


@dataclass(frozen=True, slots=True)
class Client:
    """Where a request comes from: the client id of its header, and its host as "/ADDRESS", Kafka's form."""

    id: str
    host: str


@dataclass(frozen=True, slots=True, eq=False)
class WaitingJoin:
    """A JoinGroup request that has yet to be answered, in the version that it has."""

    token: Token
    version: int


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member as it is stored: the fields of MemberMetadata in Kafka's GroupMetadataValue. Times are in ms.

    Attributes:
        rebalance_timeout: -1 if the record does not say, as versions before 1 do not.
        subscription, assignment: bytes in the protocol of the group's type.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group as it is stored: the fields of Kafka's GroupMetadataValue.

    Attributes:
        protocol_type: "" if the group never had members.
        protocol: the protocol that the members agreed on; None: there are none.
        leader: a member id, or None.
        state_timestamp: when the group entered its state, in ms, or -1.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    members: tuple[MemberRecord, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """What must be written to the log of groups.

    Attributes:
        ticket: what `Coordinator.stored` is called with when it is written, or cannot be.
        record: the value; None: a tombstone.
    """

    ticket: int
    group_id: str
    record: GroupRecord | None


@dataclass(frozen=True, slots=True)
class ModernStore:
    """What must be written of a group of KIP-848, all or nothing.

    Attributes:
        ticket: as in Store.
        records: the values; None: a tombstone.
        ends_classic: a tombstone for the record of the classic group too, which it replaces.
        deletes: with it, the group's committed offsets are deleted.
    """

    ticket: int
    group_id: str
    records: Mapping[RecordKey, Value | None]
    ends_classic: bool = False
    deletes: bool = False


@dataclass(slots=True)
class Effects:
    """What follows from a call.

    Attributes:
        answers: tokens of waiting requests, each with its response. It may be the token of the call itself. A token is
            answered once. The caller drops the answers to clients that are gone.
        stores: to be written in this order; those of a group in the order of the calls that gave them.
    """

    answers: list[tuple[Token, Struct]] = field(default_factory=list)
    stores: list[Store | ModernStore] = field(default_factory=list)
