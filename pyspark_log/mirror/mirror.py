"""Mirrors topics into a store, byte for byte, until now or until it is stopped.

A thread for each broker, or one for files, fetches what that leads. The thread that runs the mirror looks for topics,
leaders, configs and groups, and answers what the others ask.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark_log.errors import PylogError
from pyspark_log.kafka.cluster import ClusterTopic
from pyspark_log.kafka.errors import ClusterError, LoginError
from pyspark_log.mirror.groups import follow_groups
from pyspark_log.mirror.sources import Source
from pyspark_log.replication import CopiedPartition, CopiedTopics, Copies, ReplicationError, Rules
from pyspark_log.storage.catalog import INTERNAL_TOPICS
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

# In seconds: how often the source is asked for topics and leaders; and for configs and groups.
_METADATA_INTERVAL: Final = 5.0
_OTHERS_INTERVAL: Final = 10.0
# How often the run looks whether a thread needs anything.
_ROUND: Final = 0.1
# The least time between two requests for leaders that have moved.
_RETRY: Final = 0.5
# A mirror until now ends if nothing comes for so long.
_PATIENCE: Final = 60.0
_NO_ANSWER: Final = "the source does not answer, and is asked again: %s"


@dataclass(frozen=True)
class MirrorPlan:
    """What is to be mirrored.

    Attributes:
        topics: patterns for whole names.
        groups: a pattern for names of groups, in which a match is found; None: no group's offsets.
        until_now: whether it ends at what the source has when it begins; else it runs until it is stopped.
        rules: what is done where the source's log does not continue the copy.
    """

    topics: Sequence[re.Pattern[str]]
    groups: re.Pattern[str] | None = None
    until_now: bool = False
    rules: Rules = field(default_factory=Rules)


class MirrorResult(NamedTuple):
    """What a run has done for one partition.

    Attributes:
        at: which one.
        begun_at, end: the log end before and after.
        log_start: of the copy.
        bytes: how many were copied.
        missing: offsets among them that the source has no batches of.
        error: why it has ended early; None: it has not.
    """

    at: TopicPartition
    begun_at: int
    end: int
    log_start: int
    bytes: int
    missing: int
    error: Exception | None


class Mirror(Copies):
    """A run, which ends once `stopping` is set."""

    def __init__(
        self, store: FolderStore, source: Source, plan: MirrorPlan, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Does nothing yet; `progress`: called with how many records of a mirror until now are there, of how many."""
        super().__init__()
        self._store, self._source, self._plan, self._progress = store, source, plan, progress
        self._topics = CopiedTopics(store, store.admin, keep=plan.rules.keep)
        # What follows is shared between the threads.
        self._targets: dict[TopicPartition, int] = {}
        self._failed: dict[TopicPartition, Exception] = {}
        self._crash: BaseException | None = None
        # That is not.
        self._refused: dict[str, Exception] = {}
        self._missing_since: dict[str, float] = {}

    def run(self) -> list[MirrorResult]:
        """Mirrors, and returns what was done for each partition.

        Raises:
            ClusterError, OSError: it is a mirror until now, and no broker answers at the start, or it refuses.
            LoginError: the cluster refuses the login.
            ReplicationError: the source has no such topic.
            PylogError, OSError: the store cannot be written.
        """
        self._store.check_writable()
        self._begin()
        if self.stopping.is_set():
            return self._results()
        if not self._partitions and not self._refused:
            raise ReplicationError("the source has no topic of such a name that this user may see")
        if self._plan.until_now:
            self._find_targets()
        metadata_at = others_at = time.monotonic()
        self._follow_others()
        progress, progressed_at = -1, time.monotonic()
        try:
            while not self.stopping.wait(_ROUND) and not self._is_done():
                if self._crash is not None:
                    raise self._crash
                now = time.monotonic()
                wait = _RETRY if self._needs_leaders() else _METADATA_INTERVAL
                if now - metadata_at >= wait:
                    metadata_at = now
                    self._try(self._find_topics)
                if now - others_at >= _OTHERS_INTERVAL:
                    others_at = now
                    self._follow_others()
                total = sum(partition.end for partition in self._partitions.values())
                if total != progress:
                    progress, progressed_at = total, now
                    self._show_progress()
                elif self._plan.until_now and now - progressed_at > _PATIENCE:
                    self._give_up()
            is_told = self.stopping.is_set()
        finally:
            self.close()
        # A user that stops it while a broker hangs has waited for that once.
        if not (is_told and self._lost):
            self._follow_others()
        return self._results()

    def _show_progress(self) -> None:
        if self._progress is None or not self._plan.until_now:
            return
        todo = {at: max(end - self._partitions[at].begun_at, 0) for at, end in self._targets.items()}
        copied = sum(min(self._partitions[at].end - self._partitions[at].begun_at, most) for at, most in todo.items())
        self._progress(copied, sum(todo.values()))

    def _begin(self) -> None:
        """Finds the topics; unless it is a mirror until now, it waits for a broker that answers."""
        while not self.stopping.is_set():
            try:
                self._find_topics(first=True)
            except LoginError:
                raise
            except (ClusterError, OSError) as error:
                if self._plan.until_now:
                    raise
                log.warning(_NO_ANSWER, error)
                self.stopping.wait(_METADATA_INTERVAL)
            else:
                return

    def _results(self) -> list[MirrorResult]:
        results = [
            MirrorResult(
                at, partition.begun_at, partition.end, partition.log_start, partition.bytes, partition.missing,
                self._failed.get(at),
            )
            for at, partition in sorted(self._partitions.items())
        ]  # fmt: skip
        return results + [
            MirrorResult(TopicPartition(name, -1), 0, 0, 0, 0, 0, error) for name, error in self._refused.items()
        ]

    # ---- what threads ask (see replication.Copies)

    def _may_fetch(self, at: TopicPartition, partition: CopiedPartition) -> bool:
        return not partition.needs_leader and self._wants_more(at, partition)

    def fail(self, at: TopicPartition, error: Exception) -> None:
        """Ends the mirror of one partition."""
        log.error("%s", error)
        with self._mutex:
            self._failed[at] = error

    def crash(self, error: BaseException) -> None:
        """Ends the run with an error that no thread expects."""
        self._crash = error

    # ---- what is done

    def _wants_more(self, at: TopicPartition, partition: CopiedPartition) -> bool:
        if at in self._failed:
            return False
        target = self._targets.get(at)
        return target is None or not partition.is_checked or max(partition.end, partition.nothing_until) < target

    def _unfinished(self) -> list[TopicPartition]:
        with self._mutex:
            return [at for at, partition in self._partitions.items() if self._wants_more(at, partition)]

    def _give_up(self) -> None:
        """Ends what is not done of a mirror until now."""
        for at in self._unfinished():
            self.fail(at, ReplicationError(f"{at}: nothing has come for {_PATIENCE:.0f} s; is there no leader?"))

    def _is_done(self) -> bool:
        if self._plan.until_now:
            return not self._unfinished()
        return len(self._failed) == len(self._partitions) and not any(map(self._may_come, self._plan.topics))

    @staticmethod
    def _may_come(pattern: re.Pattern[str]) -> bool:
        """Whether a pattern is more than a name, so that topics may come that match it."""
        return re.fullmatch(r"[A-Za-z0-9._-]+", pattern.pattern) is None

    # ---- topics and leaders

    def _try(self, action: Callable[[], None]) -> None:
        """Calls an action; if the source does not answer, or the store refuses it, the next round tries again."""
        try:
            action()
        except LoginError:
            raise
        except (ClusterError, OSError) as error:
            log.warning(_NO_ANSWER, error)
        except PylogError as error:
            log.warning("the store refuses what the source has, which is tried again: %s", error)

    def _needs_leaders(self) -> bool:
        with self._mutex:
            return bool(self._lost) or any(partition.needs_leader for partition in self._partitions.values())

    def _find_topics(self, *, first: bool = False) -> None:
        """Looks for topics that are to be mirrored, and for the leaders of all partitions."""
        topics = [topic for topic in self._source.topics() if self._is_chosen(topic.name)]
        new = [topic.name for topic in topics if topic.name not in self._known_topics()]
        configs = self._source.configs(new) if new else {}
        for topic in topics:
            if topic.name not in self._refused:
                self._follow(topic, configs.get(topic.name), first=first)
        # Before their records, as segments begin by them.
        self._configure(configs)
        self._note_missing({topic.name for topic in topics})
        with self._mutex:
            self._lost.clear()
            for partition in self._partitions.values():
                partition.needs_leader = False
        self._fetch_from((node for node, _ in self._leaders.values()), self._source.fetcher)

    def _is_chosen(self, topic: str) -> bool:
        return topic not in INTERNAL_TOPICS and any(pattern.fullmatch(topic) for pattern in self._plan.topics)

    def _note_missing(self, names: set[str]) -> None:
        """Ends the mirror of topics that the source has no more; one answer may be a broker's that lags."""
        now = time.monotonic()
        self._missing_since = {name: self._missing_since.get(name, now) for name in self._known_topics() - names}
        for name, since in self._missing_since.items():
            if now - since > 2 * _METADATA_INTERVAL and name not in self._refused:
                self._refuse(
                    name, ReplicationError(f"the source has no topic {name!r} any more; the copy stays as it is")
                )

    def _refuse(self, name: str, error: Exception) -> None:
        """Ends the mirror of a topic, or does not begin it."""
        log.error("%s", error)
        self._refused[name] = error
        with self._mutex:
            for at in self._partitions:
                if at.topic == name:
                    self._failed.setdefault(at, error)

    def _known_topics(self) -> set[str]:
        return {at.topic for at in self._partitions}

    def _follow(self, topic: ClusterTopic, configs: Mapping[str, str] | None, *, first: bool) -> None:
        try:
            self._topics.ensure(topic.name, topic.topic_id, len(topic.leaders), configs)
            for number, leader in enumerate(topic.leaders):
                at = TopicPartition(topic.name, number)
                if at not in self._partitions:
                    copy = CopiedPartition(self._store, at, topic.topic_id, self._plan.rules)
                    with self._mutex:
                        self._partitions[at], self._leaders[at] = copy, leader
                    if self._plan.until_now and not first:
                        self._targets[at] = 0  # It is newer than now.
                with self._mutex:
                    self._leaders[at] = leader
        except (PylogError, OSError) as error:
            self._refuse(topic.name, error)

    def _find_targets(self) -> None:
        """Notes where the partitions end now."""
        deadline = time.monotonic() + _PATIENCE
        while missing := [at for at in self._partitions if at not in self._targets and at not in self._failed]:
            ends = self._source.ends({at: self._leaders[at][0] for at in missing})
            self._targets |= ends
            if len(ends) < len(missing):
                if time.monotonic() > deadline:
                    for at in missing:
                        self.fail(at, ReplicationError(f"{at}: no leader answers"))
                if self.stopping.wait(_RETRY):
                    return
                self._try(self._find_topics)

    # ---- configs and groups

    def _follow_others(self) -> None:
        self._try(self._follow_configs)
        if self._plan.groups is not None:
            self._try(self._follow_groups)

    def _follow_configs(self) -> None:
        self._configure(self._source.configs(sorted(self._known_topics())))

    def _configure(self, configs_of: Mapping[str, Mapping[str, str]]) -> None:
        for name, configs in configs_of.items():
            if name in self._refused:
                continue
            try:
                self._topics.configure(name, configs)
            except (PylogError, OSError) as error:
                log.warning("%s: it does not get the configs of the source, which is tried again: %s", name, error)

    def _follow_groups(self) -> None:
        assert self._plan.groups is not None
        ends = {at: partition.end for at, partition in self._partitions.items()}
        follow_groups(self._store, self._source, self._plan.groups, ends)
