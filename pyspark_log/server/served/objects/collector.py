"""Collects batches of clients, and decides on many at once, as each decision is a request to the object store.

A round begins with the first batch that comes, and ends some time later, once it is large, or with a change of a
coordinator. What of it is too large for an entry of the log is put into an object, beside the decision on the rounds
before. The rounds are decided in their order, several at once if they are ready.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark_log.errors import ObjectStoreError
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.publish_log import naming
from pyspark_log.storage.publish_log.entries.entry import Entry
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.parts.staging import MOST_INLINE
from pyspark_log.storage.publish_log.proposals import Proposal, together
from pyspark_log.storage.publish_log.serving.incoming import Incoming, take_in
from pyspark_log.storage.publish_log.state import State

# How large a round becomes, in bytes.
_ROUND_BYTES = 4 * 1024 * 1024
# How many bytes of records wait at most, in all rounds.
_MOST_BYTES = 256 * 1024 * 1024
# By what a round lasts longer after a lost race, and shorter after none; and how many times as long at most.
_SLOWER, _FASTER, _SLOWEST = 1.25, 0.8, 4.0
# How many objects are written at the same time.
_WRITES = 4


#: Gives what is to be decided in a state, if anything is, and what becomes of it then.
Change: TypeAlias = Callable[[State], tuple[Proposal | None, list[Any]]]


@dataclass
class Request:
    """What is to be decided.

    Attributes:
        report: called with what has become of each batch, or of the change; in the collector's thread.
        batches: batches of a client.
        change: a change of a coordinator; None: there is none. Those of one decision do not see each other.
    """

    report: Callable[[list[Any]], object]
    batches: list[Incoming] = field(default_factory=list)
    change: Change | None = None


@dataclass
class _Round:
    """Batches that are decided together.

    Attributes:
        began: when the first of them came, in seconds.
        requests: what they belong to, in the order in which they came.
        size: their bytes.
        written: when their object is written, with its name and bytes; None: they go into the entry.
    """

    began: float
    requests: list[Request] = field(default_factory=list)
    size: int = 0
    written: Future[tuple[str, memoryview]] | None = None

    @property
    def inline(self) -> int:
        """How many bytes go into the entry."""
        return self.size if self.written is None else 0

    @property
    def batches(self) -> list[Incoming]:
        """All of them."""
        return [batch for request in self.requests for batch in request.batches]


class Collector:
    """Makes the decisions, in a thread of its own. Safe to use from several threads."""

    def __init__(self, log: PublishLog, keep: Callable[[str, memoryview], object], linger: float) -> None:
        """Decides nothing yet.

        Args:
            log: where it is decided.
            keep: called with the name and the bytes of each object, before it is decided.
            linger: how long a round lasts, in seconds.
        """
        self._log, self._keep, self._linger = log, keep, linger
        self._changed = threading.Condition()
        self._open: _Round | None = None
        self._ended = deque[_Round]()
        self._stops, self._waiting_bytes = False, 0
        self._pace = 1.0  # how many times as long as it need be a round lasts, as others are faster
        self._pool = ThreadPoolExecutor(_WRITES, thread_name_prefix="pylog-put")
        self._thread = threading.Thread(target=self._run, name="pylog-collector", daemon=True)

    def start(self) -> None:
        """Begins to decide."""
        self._thread.start()

    def stop(self) -> None:
        """Ends, after all that was added."""
        with self._changed:
            self._stops = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._pool.shutdown()

    def add(self, request: Request) -> None:
        """Has something decided."""
        size = sum(len(batch.records) for batch in request.batches)
        with self._changed:
            is_refused = size > 0 and self._waiting_bytes + size > _MOST_BYTES
            if not is_refused:
                self._waiting_bytes += size
                if self._open is None:
                    self._open = _Round(time.monotonic())
                    self._changed.notify()
                self._open.requests.append(request)
                self._open.size += size
                if self._open.size >= _ROUND_BYTES or request.change is not None:
                    self._end_round()
        if is_refused:
            # Clients that have given up send again what waits here, for as long as the object store does not answer.
            why = f"{_MOST_BYTES >> 20} MiB of records wait for {self._log.objects.address}, which does not answer"
            request.report([ObjectStoreError(why, retriable=True) for _ in request.batches])

    def decide(self, change: Change) -> list[Any]:
        """Waits for what becomes of a change. Raises what has failed."""
        outcome: Future[list[Any]] = Future()
        self.add(Request(outcome.set_result, change=change))
        [*outcomes] = outcome.result()
        if len(outcomes) == 1 and isinstance(outcomes[0], Failure):
            raise outcomes[0].error
        return outcomes

    def decide_alone(self, propose: Callable[[State], Proposal | None]) -> Entry | None:
        """Decides on what depends on all that is decided before it. As PublishLog.decide."""
        return self._log.decide(propose)

    def _end_round(self) -> None:
        """Ends the round that is open; the lock is held."""
        ended, self._open = self._open, None
        assert ended is not None
        if ended.size > MOST_INLINE:
            ended.written = self._pool.submit(self._write, ended.batches)
        self._ended.append(ended)
        self._changed.notify()

    def _write(self, batches: list[Incoming]) -> tuple[str, memoryview]:
        """Puts batches into an object, those of a partition one after the other."""
        name, position = naming.new(naming.STAGED, now_ms()), 0
        ordered = sorted(batches, key=lambda batch: (batch.topic.topic_id, batch.partition))
        for batch in ordered:
            batch.object, batch.position = name, position
            position += len(batch.records)
        data = b"".join(batch.records for batch in ordered)
        self._log.objects.put(name, data)
        return name, memoryview(data)

    def _run(self) -> None:
        while rounds := self._next():
            ready = list[_Round]()
            for waiting in rounds:
                try:
                    if waiting.written is not None:
                        self._keep(*waiting.written.result())
                except Exception as error:  # noqa: BLE001  (it is what is answered)
                    self._fail(waiting, error)
                else:
                    ready.append(waiting)
            try:
                outcomes = self._decide([request for waiting in ready for request in waiting.requests])
            except Exception as error:  # noqa: BLE001  (likewise)
                for waiting in ready:
                    self._fail(waiting, error)
            else:
                for request, became in outcomes:
                    request.report(became)
            with self._changed:
                self._waiting_bytes -= sum(waiting.size for waiting in rounds)

    def _fail(self, failed: _Round, error: Exception) -> None:
        for request in failed.requests:
            request.report([error for _ in request.batches] if request.change is None else [Failure(error)])

    def _next(self) -> list[_Round]:
        """The next rounds to decide on, once they are ready; none: it ends."""
        with self._changed:
            while not self._ended:
                if self._open is None:
                    if self._stops:
                        return []
                    self._changed.wait()
                elif self._stops or (seconds := self._open.began + self._linger * self._pace - time.monotonic()) <= 0:
                    self._end_round()
                else:
                    self._changed.wait(seconds)
            rounds, inline = [self._ended.popleft()], 0
            while self._ended:
                inline += rounds[-1].inline
                following = self._ended[0]
                if inline + following.inline > MOST_INLINE or (following.written and not following.written.done()):
                    break
                rounds.append(self._ended.popleft())
            return rounds

    def _decide(self, requests: list[Request]) -> list[tuple[Request, list[Any]]]:
        batches, outcomes = [batch for request in requests for batch in request.batches], list[list[Any]]()

        def propose(state: State) -> Proposal | None:
            proposal, became = take_in(state, batches)
            proposals, of_batches = [proposal], iter(became)
            outcomes.clear()
            for request in requests:
                if request.change is None:
                    outcomes.append([next(of_batches) for _ in request.batches])
                else:
                    try:
                        changed, of_change = request.change(state)
                    except Exception as error:  # noqa: BLE001  (likewise; others in the decision are not concerned)
                        changed, of_change = None, [Failure(error)]
                    proposals.append(changed)
                    outcomes.append(of_change)
            return together([part for part in proposals if part is not None])

        lost = self._log.lost
        self._log.decide(propose)
        # Several servers that decide at the same time each lose some races: each then decides less often, on more.
        self._pace = min(max(self._pace * (_SLOWER if self._log.lost > lost else _FASTER), 1.0), _SLOWEST)
        return list(zip(requests, outcomes, strict=True))


@dataclass
class Failure:
    """A change was not decided."""

    error: Exception
