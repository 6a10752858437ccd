"""Groups whose members share the files of a store, without a server: what each change makes of a group.

All of a group is in one record, as Kafka's coordinator writes it. There is no coordinator: any member changes the
record, with the partition of the log locked, so changes come one after another. Of each member it says

- what it is to have: `assigned`. Each change of members or topics computes it again, in a new generation;
- what it has: `owned`. Only the member itself changes that: it gives up what it is to have no more, and takes of what
  it is to have what no other member owns. So no partition ever has two owners, whatever is assigned.

Offsets are committed by the owner alone, in the same partition of the log and under the same lock. So the next owner
finds all that the one before has committed, and a member that was removed commits nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark_log.errors import FencedMemberError
from pyspark_log.storage.groups.log.metadata import (
    CONSUMER,
    GroupMember,
    GroupMetadataValue,
    assigned_partitions,
    encode_assignment,
    encode_subscription,
    owned_partitions,
    subscribed_topics,
)
from pyspark_log.storage.groups.members.assignors import Subscriber
from pyspark_log.types import TopicPartition

#: Which partitions each member is to have, by its id.
Assign = Callable[[Sequence[Subscriber]], Mapping[str, Collection[TopicPartition]]]

_NOTHING = frozenset[TopicPartition]()


@dataclass(frozen=True, slots=True)
class FileMember:
    """A member of such a group.

    Attributes:
        member_id, instance_id, client_id, host: as of GroupMember.
        topics: what it subscribes to, sorted.
        max_poll_interval: how long it may be silent, in ms, until others remove it.
        session_timeout: how long others wait for it to come back once it has ended, in ms, if it has an instance id.
        owned, assigned: what it has, and what it is to have.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    max_poll_interval: int
    session_timeout: int
    owned: frozenset[TopicPartition] = _NOTHING
    assigned: frozenset[TopicPartition] = _NOTHING


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Such a group.

    Attributes:
        generation: how often it was assigned.
        assignor: the name of what assigns.
        members: by their ids.
    """

    generation: int
    assignor: str
    members: Mapping[str, FileMember]

    # ---- its record

    @classmethod
    def decode(cls, value: GroupMetadataValue) -> FileGroup:
        """A group as its record has it. ValueError: a member's bytes are malformed."""
        members = [
            FileMember(
                one.member_id, one.instance_id, one.client_id, one.client_host, subscribed_topics(one.subscription),
                one.rebalance_timeout, one.session_timeout, frozenset(owned_partitions(one.subscription)),
                frozenset(assigned_partitions(one.assignment)),
            )
            for one in value.members
        ]  # fmt: skip
        return cls(value.generation, value.protocol or "", {one.member_id: one for one in members})

    def encode(self, now: int) -> GroupMetadataValue:
        """Its record; `now` in ms. ValueError: a text is too long."""
        members = tuple(
            GroupMember(
                one.member_id, one.instance_id, one.client_id, one.host, encode_subscription(one.topics, one.owned),
                encode_assignment(one.assigned), rebalance_timeout=one.max_poll_interval,
                session_timeout=one.session_timeout,
            )
            for one in self.members.values()
        )  # fmt: skip
        return GroupMetadataValue(CONSUMER, self.generation, self.assignor if members else None, None, now, members)

    # ---- changes

    def join(self, member: FileMember, assign: Assign) -> FileGroup:
        """With a new member. If one of its instance id is there, it takes that one's place, and nothing moves."""
        for known in self.members.values():
            if known.instance_id is not None and known.instance_id == member.instance_id:
                others = {name: one for name, one in self.members.items() if one is not known}
                heir = replace(member, owned=known.owned, assigned=known.assigned)
                found = replace(self, members={**others, member.member_id: heir})
                return found if known.topics == member.topics else found.assign(assign)
        return replace(self, members={**self.members, member.member_id: member}).assign(assign)

    def leave(self, members: Collection[str], assign: Assign) -> FileGroup:
        """Without some members."""
        left = {name: one for name, one in self.members.items() if name not in members}
        return self if len(left) == len(self.members) else replace(self, members=left).assign(assign)

    def subscribe(self, member_id: str, topics: Sequence[str], assign: Assign) -> FileGroup:
        """With other topics of a member. FencedMemberError: it was removed."""
        member = replace(self.member(member_id), topics=tuple(sorted(topics)))
        return replace(self, members={**self.members, member_id: member}).assign(assign)

    def assign(self, assign: Assign) -> FileGroup:
        """Assigned again, in the next generation."""
        found = assign(
            [Subscriber(one.member_id, one.instance_id, one.topics, one.owned) for one in self.members.values()]
        )
        members = {name: replace(one, assigned=frozenset(found.get(name, ()))) for name, one in self.members.items()}
        return replace(self, generation=self.generation + 1, members=members)

    def settle(self, member_id: str, gives_up: Collection[TopicPartition]) -> FileGroup:
        """With what a member has now: without what it gives up, and with what it is to have and is free.

        Args:
            member_id: it.
            gives_up: what it has ended its work for. What it is to have no more since a moment ago is not among it.

        Raises:
            FencedMemberError: it was removed.
        """
        member = self.member(member_id)
        left = replace(self, members={**self.members, member_id: replace(member, owned=member.owned - set(gives_up))})
        owned = left.members[member_id].owned | left.free(member_id)
        return replace(self, members={**self.members, member_id: replace(member, owned=owned)})

    # ---- questions

    def member(self, member_id: str) -> FileMember:
        """A member. FencedMemberError: it was removed."""
        try:
            return self.members[member_id]
        except KeyError:
            raise FencedMemberError(
                f"the group has no member {member_id} any more: others have removed it as it was silent for too long "
                "(max_poll_interval_ms), or another consumer has its group_instance_id"
            ) from None

    def free(self, member_id: str) -> frozenset[TopicPartition]:
        """What a member is to have and does not own, nor any other. FencedMemberError: it was removed."""
        member = self.member(member_id)
        wanted = member.assigned - member.owned
        return wanted.difference(*(one.owned for one in self.members.values())) if wanted else wanted

    def check_owned(self, member_id: str, partitions: Collection[TopicPartition]) -> None:
        """Refuses a commit of a member for partitions that it does not own. FencedMemberError."""
        foreign = sorted(set(partitions) - self.member(member_id).owned)
        if foreign:
            raise FencedMemberError(f"member {member_id} does not own {foreign[0]}, so it may not commit for it")

    @property
    def is_settled(self) -> bool:
        """Whether each member has what it is to have."""
        return all(one.owned == one.assigned for one in self.members.values())
