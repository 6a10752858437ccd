"""A consumer's membership in a group, without a server: the members share the files of the store.

`storage/groups/members/file_group.py` has the rules. There is no thread and no heartbeat: the system frees the lock of
a process that has died, which the others see at their next look; and one that is silent, as it is stopped or hangs,
has not touched its file for as long as the others watch it.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark_log.arguments import check_text, check_whole
from pyspark_log.config import INT_MAX
from pyspark_log.errors import InvalidConfigError, UnknownTopicError
from pyspark_log.storage.groups.members.assignors import ASSIGNORS, Assignor, Subscriber
from pyspark_log.storage.groups.members.file_group import FileGroup, FileMember
from pyspark_log.storage.groups.members.member_files import MemberFile
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

# Of a text in the record of a group; a member's id has 33 more.
_MOST_BYTES: Final = 0x7FFF - 64
# How often it looks which members live, and how many partitions there are, in seconds.
_LOOK: Final = 0.25
# How often it shows that it is at work, in seconds.
_BEAT: Final = 1.0
# A member that is found silent gets as long, in seconds: it may have slept with the member that watches it.
_GRACE: Final = 1.0


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """What a consumer is in its group.

    Attributes:
        group: its name.
        client_id: the first part of the member's id.
        instance_id: Kafka's group.instance.id: a consumer with the same one takes this one's place, and while there is
            none, its partitions wait for the session time-out; None: it has no such id.
        assignor: one of Kafka's by its name, or a function; its name is the function's then. All members have the same.
        max_poll_interval_ms: how long it may be silent until others remove it.
        session_timeout_ms: how long others wait for one with its instance id, once it has ended.
    """

    group: str
    client_id: str = "pylog"
    instance_id: str | None = None
    assignor: str | Assignor = "range"
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000


class Membership:
    """A member of a group from `join` to `leave`. Not thread-safe.

    The consumer calls `look` before it hands out records, at least as often as `LOOK`. Then it ends its work for
    `to_give_up`, if there is any, and calls `settle`, if there is something to give up or to take. All methods raise
    FencedMemberError once others have removed the member; it may join again, as a new one.

    Attributes:
        member_id: its id; "": it is no member.
        owned: what it owns.
    """

    #: Seconds.
    LOOK: Final = _LOOK

    def __init__(self, store: Store, config: MemberConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """Not joined yet.

        Args:
            store: where.
            config: see there.
            clock: the time in seconds, which never goes back.

        Raises:
            InvalidConfigError: no assignor has that name; a number or text is refused; or groups of such a store have
                no members.
        """
        check_whole("max_poll_interval_ms", config.max_poll_interval_ms, low=1, high=INT_MAX)
        check_whole("session_timeout_ms", config.session_timeout_ms, high=INT_MAX)
        check_text("client_id", config.client_id, _MOST_BYTES)
        if config.instance_id is not None:
            check_text("group_instance_id", config.instance_id, _MOST_BYTES)
            if not config.instance_id:
                raise InvalidConfigError("group_instance_id: it is empty; leave it out for a member that has none")
        self._store, self._config, self._clock = store, config, clock
        self._log = store.groups.log.membership
        self._files = self._log.member_files
        if isinstance(config.assignor, str):
            if config.assignor not in ASSIGNORS:
                names = ", ".join(ASSIGNORS)
                raise InvalidConfigError(f"there is no assignor {config.assignor!r}; there are {names}")
            self._assignor_name, self._assignor = config.assignor, ASSIGNORS[config.assignor]
        else:
            self._assignor_name, self._assignor = config.assignor.__name__, config.assignor
        self.member_id = ""
        self._file: MemberFile | None = None
        self._group = FileGroup(0, "", {})
        self._next_look = self._next_beat = 0.0
        # Of the other members: what their files showed, and since when; and since when they were found silent.
        self._seen: dict[str, tuple[int, float]] = {}
        self._silent: dict[str, float] = {}

    # ---- joining and leaving

    def prepare(self) -> TopicPartition:
        """Returns the partition that has the group's records, and changes with the group.

        Raises:
            ReadOnlyError: the store is a Kafka broker's folder. Others: as seam.Membership.partition_of.
        """
        self._store.publishes.check_writable()
        return self._log.partition_of(self._config.group)

    @property
    def has_heir(self) -> bool:
        """Whether another consumer has this one's instance id, as of now."""
        instance, group = self._config.instance_id, self._log.file_group(self._config.group)
        return instance is not None and any(
            member.instance_id == instance and name != self.member_id
            for name, member in (group.members.items() if group is not None else ())
        )

    def join(self, topics: Collection[str]) -> None:
        """Becomes a member; it owns nothing before `settle`, unless it takes the place of one with its instance id.

        Raises:
            InvalidConfigError: the group's members have another assignor, or a text does not fit into the format.
            GroupNotEmptyError: the group has members of a server.
            ReadOnlyError, PartitionOwnedError, others: as seam.Membership.change_members.
        """
        config, files = self._config, self._files
        member = FileMember(
            f"{config.client_id}-{uuid.uuid4().hex}", config.instance_id, config.client_id, socket.gethostname(),
            tuple(sorted(topics)), config.max_poll_interval_ms, config.session_timeout_ms,
        )  # fmt: skip
        gone: Collection[str] = ()

        def join(group: FileGroup) -> FileGroup:
            nonlocal gone
            counted = {name: other for name, other in group.members.items() if files.counts(other)}
            others = {other.instance_id or name for name, other in counted.items()} - {config.instance_id}
            if others and group.assignor != self._assignor_name:
                raise InvalidConfigError(
                    f"the members of group {config.group!r} have the assignor {group.assignor!r}, this one has "
                    f"{self._assignor_name!r}: all must have the same"
                )
            joined = replace(group, assignor=self._assignor_name, members=counted).join(member, self._assign)
            gone = group.members.keys() - joined.members.keys()
            return joined

        file = files.create(member.member_id)
        try:
            self._group = self._log.change_members(config.group, join)
        except BaseException:
            files.delete(member.member_id)
            file.close()
            raise
        self._file, self.member_id = file, member.member_id
        self._next_look = self._next_beat = 0.0
        self._forget(gone)

    def leave(self) -> None:
        """Ends the membership, and with it the process's right to the partitions. A member with an instance id stays
        in the group, until its session is over.
        """
        member_id, file = self.member_id, self._file
        self.member_id, self._file = "", None
        if file is None:
            return
        try:
            if self._config.instance_id is None:
                self._log.change_members(self._config.group, lambda group: group.leave([member_id], self._assign))
                self._files.delete(member_id)
            else:
                file.beat()
        finally:
            file.close()

    def subscribe(self, topics: Collection[str]) -> None:
        """Has other topics from now on."""
        if tuple(sorted(topics)) != self._group.member(self.member_id).topics:
            self._change(lambda group: group.subscribe(self.member_id, list(topics), self._assign))

    # ---- at work

    def look(self) -> None:
        """Looks how the group is now; removes members that have died or are silent, and has topics that have changed
        assigned again.
        """
        now = self._clock()
        if now >= self._next_beat and self._file is not None:
            self._next_beat = now + min(_BEAT, self._config.max_poll_interval_ms / 4000)
            self._file.beat()
        self._group = self._log.file_group(self._config.group) or replace(self._group, members={})
        member = self._group.member(self.member_id)
        if now < self._next_look:
            return
        self._next_look = now + _LOOK
        gone = [
            name for name, other in self._group.members.items() if other is not member and self._is_gone(other, now)
        ]
        if gone:
            self._change(lambda group: group.leave(gone, self._assign))
            self._forget(gone)
        elif self._topics_differ(member.topics):
            self._change(lambda group: group.assign(self._assign))

    def look_again(self) -> None:
        """Has the next `look` find how topics and members are now."""
        self._next_look = 0.0

    @property
    def to_give_up(self) -> frozenset[TopicPartition]:
        """What the member owns and is to have no more."""
        member = self._group.member(self.member_id)
        return member.owned - member.assigned

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What it owns."""
        return self._group.member(self.member_id).owned

    @property
    def is_settled(self) -> bool:
        """Whether `settle` would change nothing."""
        return not self.to_give_up and not self._group.free(self.member_id)

    @property
    def generation(self) -> int:
        """Of the group, as the last look found it."""
        return self._group.generation

    def settle(self) -> frozenset[TopicPartition]:
        """Gives up what it is to have no more, as the last look found, and takes what it is to have and is free.

        Returns:
            What it has taken.
        """
        gives_up = self.to_give_up
        kept = self.owned - gives_up
        self._change(lambda group: group.settle(self.member_id, gives_up))
        return self.owned - kept

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets of partitions that it owns. Raises: as Offsets.commit."""
        self._store.groups.log.commit(self._config.group, offsets, member=self.member_id)

    # ---- parts

    def _change(self, change: Callable[[FileGroup], FileGroup]) -> None:
        def checked(group: FileGroup) -> FileGroup:
            group.member(self.member_id)
            return change(group)

        self._group = self._log.change_members(self._config.group, checked)

    def _is_gone(self, member: FileMember, now: float) -> bool:
        """Whether a member has died, or was silent for too long."""
        name, beat = member.member_id, self._files.beat(member.member_id)
        lives = self._files.lives(name)
        if not lives and member.instance_id is None:
            return True
        last_seen = self._seen.get(name)
        if last_seen is None or last_seen[0] != beat:
            self._seen[name] = beat, now
            self._silent.pop(name, None)
            return False
        limit = (member.max_poll_interval if lives else member.session_timeout) / 1000
        return now - last_seen[1] > limit and now - self._silent.setdefault(name, now) >= _GRACE

    def _forget(self, members: Collection[str]) -> None:
        for name in members:
            self._files.delete(name)
            self._seen.pop(name, None)
            self._silent.pop(name, None)

    def _topics_differ(self, topics: Sequence[str]) -> bool:
        """Whether not exactly the partitions that topics have are assigned to members."""
        counts, assigned = self._counts(topics), dict.fromkeys(topics, 0)
        for member in self._group.members.values():
            for at in member.assigned:
                if at.topic in assigned:
                    assigned[at.topic] += 1
        return any(assigned[topic] != counts.get(topic, 0) for topic in topics)

    def _counts(self, topics: Collection[str]) -> dict[str, int]:
        counts = dict[str, int]()
        for topic in topics:
            try:
                counts[topic] = self._store.describe_topic(topic).partitions
            except UnknownTopicError:
                continue  # It may come.
        return counts

    def _assign(self, members: Sequence[Subscriber]) -> Mapping[str, Collection[TopicPartition]]:
        counts = self._counts({topic for subscriber in members for topic in subscriber.topics})
        assigned = self._assignor(counts, members)
        partitions = {TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)}
        pairs = [(subscriber, at) for subscriber in members for at in assigned.get(subscriber.member_id, ())]
        if (
            len(pairs) != len(partitions)
            or {at for subscriber, at in pairs if at.topic in subscriber.topics} != partitions
        ):
            raise InvalidConfigError(
                f"the assignor {self._assignor_name!r} has not given each partition to one member that subscribes to it"
            )
        return assigned
