"""Compacts the due topics of a store, the dirtiest partition first.

Used by `pylog compact`, by a process that compacts in the background, and by a Spark job with a task for each
partition.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType

from pyspark_log.config import int_config
from pyspark_log.errors import InvalidConfigError, LockTimeoutError, PylogError, UnknownTopicError
from pyspark_log.storage.compaction import partition_cleaner
from pyspark_log.storage.compaction.build_offset_map import Throttle
from pyspark_log.storage.compaction.partition_cleaner import Cleaned
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

#: How long a background cleaner pauses when nothing is due, in seconds (Kafka's log.cleaner.backoff.ms).
BACKOFF = 15.0
# The most bytes of a log that a process compacts after its own commit or publish. One segment of `__consumer_offsets`
# as sized by earlier versions is smaller.
_HELP_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Due:
    """A partition that is to be compacted.

    Attributes:
        at: which one.
        ratio: the share of its bytes that are dirty.
        bytes: how many are read: those that are dirty, and those before them.
    """

    at: TopicPartition
    ratio: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one partition.

    Attributes:
        at: which one.
        rounds: the completed rounds; none if there was nothing to do, or another cleaner was running.
        seconds: how long it took.
        problem: why it failed or was not completed; "" if it succeeded.
    """

    at: TopicPartition
    rounds: tuple[Cleaned, ...]
    seconds: float
    problem: str = ""

    @property
    def total(self) -> Cleaned | None:
        """All rounds as one: the range of the last one, against the state before the first; None: there was none."""
        if not self.rounds:
            return None
        *earlier, last = self.rounds
        return replace(
            last,
            bytes_before=last.bytes_before + sum(one.bytes_before - one.bytes_after for one in earlier),
            records_before=last.records_before + sum(one.records_before - one.records_after for one in earlier),
        )


class IoRate:
    """Throttles a cleaner to log.cleaner.io.max.bytes.per.second of reads and writes."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._begun = time.monotonic()
        self._bytes = 0

    def __call__(self, size: int) -> None:
        """Counts `size` bytes as read or written; sleeps if that was too fast."""
        self._bytes += size
        early = self._bytes / self._rate - (time.monotonic() - self._begun)
        if early > 0:
            time.sleep(early)


def due(logs: LogManager, topic: str | None = None) -> list[Due]:
    """The partitions that are to be compacted now, those with the largest share of dirty bytes first.

    Args:
        logs: which store.
        topic: None: the due partitions of all topics (min.cleanable.dirty.ratio, max.compaction.lag.ms), except
            uncleanable ones. Otherwise those of this topic in which there is anything to compact.

    Raises:
        UnknownTopicError, InvalidTopicError: no such topic.
        InvalidConfigError: the topic's records are not compacted.
        ReadOnlyError: it is a folder of a Kafka broker.
    """
    logs.check_writable()
    found = []
    for at in _compacted(logs, topic):
        try:
            one = _find_due(logs, at, timeouts.CLEANING, asked=topic is not None)
        except (PylogError, OSError) as error:
            # Compacting it reports the error.
            log.info("%s: %s: %s", logs.path, at, error)
            one = Due(at, 1.0, 0)
        found += [] if one is None else [one]
    return sorted(found, key=lambda one: -one.ratio)


def uncleanable(logs: LogManager) -> dict[TopicPartition, str]:
    """The partitions that `due` leaves out, since they could not be compacted, and why. OSError."""
    found = {}
    for at in _compacted(logs, None):
        with contextlib.suppress(UnknownTopicError):
            if reason := cleaner_checkpoint.read(logs.place(at.topic, at.partition)).reason:
                found[at] = reason
    return found


def _compacted(logs: LogManager, topic: str | None) -> Iterator[TopicPartition]:
    """The partitions of a topic, or of all topics, that are compacted at all. Raises: as `due`."""
    for name in [topic] if topic is not None else logs.topics(internal=True):
        try:
            config, written = logs.topic_config(name), logs.written_partitions(name)
        except UnknownTopicError:
            if topic is not None:
                raise
            continue  # It was deleted since.
        if config.compact:
            yield from (TopicPartition(name, partition) for partition in written)
        elif topic is not None:
            raise InvalidConfigError(f"topic {topic!r} is not compacted: its cleanup.policy is delete")


def _find_due(logs: LogManager, at: TopicPartition, timeout: float, *, asked: bool) -> Due | None:
    reader = logs.recovered(at.topic, at.partition)
    known, state = cleaner_checkpoint.read(reader.place), reader.state()
    # Without a lock: most partitions have no new inactive segment.
    if state.active_base <= max(known.cleaned_to, state.log_start) or (known.reason and not asked):
        return None
    with logs.writer(at.topic, at.partition).hold(timeout) as writer:
        plan = partition_cleaner.plan_cleaning(writer.log, reader)
        if not (plan.is_due(writer.config) or (asked and plan.dirty_bytes)):
            return None
        return Due(at, plan.ratio, plan.clean_bytes + plan.dirty_bytes)


def compact_partition(logs: LogManager, at: TopicPartition, progress: Callable[[int], None] | None = None) -> Outcome:
    """Compacts one partition, in as many rounds as needed. Errors are part of the result.

    Args:
        logs: which store.
        at: the partition.
        progress: called with the number of bytes read or written since the last call.
    """
    rate = IoRate(int_config(logs.configs, "log.cleaner.io.max.bytes.per.second"))

    def throttle(size: int) -> None:
        if progress is not None:
            progress(size)
        rate(size)

    return _compact(logs, at, throttle, DEFAULT_TIMEOUT)


def _compact(logs: LogManager, at: TopicPartition, throttle: Throttle, timeout: float) -> Outcome:
    begun, rounds, problem = time.monotonic(), list[Cleaned](), ""
    try:
        memory = int_config(logs.configs, "log.cleaner.dedupe.buffer.size")
        writer, reader = logs.writer(at.topic, at.partition), logs.recovered(at.topic, at.partition)
        while (done := partition_cleaner.run(writer, reader, memory, throttle, timeout)) is not None:
            stuck = bool(rounds) and done.cleaned_to == rounds[-1].cleaned_to
            rounds.append(done)
            if done.finished or stuck:
                break
    except LockTimeoutError as error:
        log.info("%s: %s is not compacted now: %s", logs.path, at, error)
    except (PylogError, OSError) as error:
        log.warning("%s: %s could not be compacted: %s", logs.path, at, error)
        problem = str(error)
    return Outcome(at, tuple(rounds), time.monotonic() - begun, problem)


def compact_if_due(logs: LogManager, at: TopicPartition) -> Outcome | None:
    """Compacts a partition if it is due; None: it is not, or it is left to `compact`. Raises nothing.

    Called by a writer that has just rolled a segment and holds no lock. Costs one unthrottled round at most. It waits
    only for processes that are changing the partition at that moment, for half a second at most each time, and not for
    another cleaner. A log that is too large is skipped.
    """
    try:
        found = _find_due(logs, at, timeouts.HELP_COMPACT, asked=False)
    except LockTimeoutError as error:
        log.info("%s: %s is not compacted now: %s", logs.path, at, error)
        return None
    except (PylogError, OSError) as error:
        log.warning("%s: could not determine whether to compact %s: %s", logs.path, at, error)
        return None
    if found is None:
        return None
    if found.bytes > _HELP_BYTES:
        log.warning(
            "%s: %s is not compacted during writes, because that would read %d bytes: run `pylog compact`",
            logs.path,
            at,
            found.bytes,
        )
        return None
    return _compact(logs, at, lambda _: None, timeouts.HELP_COMPACT)


def compact(
    logs: LogManager, topic: str | None = None, progress: Callable[[int, int], None] | None = None
) -> Iterator[Outcome]:
    """Compacts what is due, partition by partition; see `due`. A failure does not stop it.

    Args:
        logs, topic: as for `due`.
        progress: called with the number of bytes read and written, and the approximate total.
    """
    waiting = due(logs, topic)
    # All that is read is also written, except removed records; the dirty part is read twice.
    total, done = 2 * sum(one.bytes for one in waiting), 0

    def add(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(min(done, total), total)

    for one in waiting:
        yield compact_partition(logs, one.at, add)


class LogCleaner:
    """Compacts a store in a background thread of this process until it is stopped.

    with LogCleaner(store):
        ...  # whatever the process is for
    """

    def __init__(self, logs: LogManager, backoff: float = BACKOFF, is_turn: Callable[[], bool] = lambda: True) -> None:
        """`backoff`: how long it pauses when nothing is due, in seconds; `is_turn`: whether it may compact now."""
        self._logs, self._backoff, self._is_turn = logs, backoff, is_turn
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread; a second call does nothing."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._work, name="pylog-cleaner", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stops the thread after the current partition."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> LogCleaner:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _work(self) -> None:
        while not self._stop.is_set():
            worked = False
            try:
                for outcome in compact(self._logs) if self._is_turn() else ():
                    worked |= bool(outcome.rounds)
                    if self._stop.is_set():
                        return
            except (PylogError, OSError) as error:
                log.warning("%s: the cleaner could not check which topics are due: %s", self._logs.path, error)
            if not worked:
                self._stop.wait(self._backoff)
