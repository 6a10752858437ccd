"""A server beside others over one store: which groups it coordinates follows from the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.member import Alone, Parts
from pyspark_log.server.served import SharedGroups, SharedTransactions
from pyspark_log.server.served.logs import GroupMembers
from pyspark_log.server.transactions import DecidedTransactions

_log = logging.getLogger(__name__)

# How long after a failure it tries again to load what it coordinates, in seconds.
_AGAIN = 1.0


class Several(Alone):
    """One of several servers. One of them coordinates all groups at a time."""

    def __init__(self, parts: Parts, take_over: Callable[[], tuple[int, GroupMembers]]) -> None:
        """Coordinates nothing yet; `take_over`: as of SharedGroups, but it may wait."""
        super().__init__(parts)
        self._servers, self._take_over, self._is_loading = parts.logs.servers, take_over, False
        # In which term it has loaded what it coordinates; None: in none.
        self._term: int | None = None

    # ---- which are coordinated here

    def of_group(self, group: str) -> ErrorCode:
        """Whether a group is coordinated here; else what its clients are answered."""
        if not self._servers.coordinates:
            return ErrorCode.NOT_COORDINATOR
        is_ready = self._term is not None and self._term == self._servers.term
        return ErrorCode.NONE if is_ready else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def has_group(self, group: str) -> bool:
        return self.of_group(group) == ErrorCode.NONE

    # ---- from the beginning to the end

    def load(self) -> None:
        """Nothing: it is loaded once this one coordinates."""

    def start(self) -> None:
        call = self._parts.loop.call_from_elsewhere
        self._servers.begin(partial(call, self._look), self._parts.fail)
        self._look()
        super().start()

    def _look(self) -> None:
        """Takes up what is coordinated here since now, or gives it up."""
        term = self._servers.term
        if self._term is not None and self._term != term:
            _log.info("another server coordinates, or has done so since")
            self._term = None
            self.groups.give_up(self.groups.names())
        if self._term is None and term is not None and not self._is_loading:
            self._is_loading = True
            self._parts.loop.start(self._load())

    async def _load(self) -> None:
        try:
            # After what was decided in an earlier term, which is refused.
            term, take_over = await self.read()
        except (PylogError, OSError) as error:
            _log.warning("cannot load what this server coordinates, trying again: %s", error)
            self._parts.loop.call_later(_AGAIN, self._look)
            return
        finally:
            self._is_loading = False
        if self._servers.term == term:
            take_over()
            self._term = term
            _log.info("node %d coordinates the groups", self._servers.node_id)
        else:
            self._look()

    async def read(self) -> tuple[int, Callable[[], object]]:
        """Reads what is coordinated; gives the term, and what takes it in. PylogError, OSError."""
        term, members = await self.groups.log.read(self._take_over)
        return term, partial(self.groups.take_over, *members)


class SeveralOverObjects(Several):
    """The same over an object store, where each decides on transactions."""

    def __init__(self, parts: Parts, groups: SharedGroups, transactions: SharedTransactions) -> None:
        """Coordinates nothing yet; `groups`, `transactions`: what the store has of them."""
        super().__init__(parts, groups.take_over)
        self._decided = DecidedTransactions(parts.loop, parts.logs, transactions, parts.producer_ids.next)
        self.transactions = self.gate = self._decided

    def of_transaction(self, transactional_id: str) -> ErrorCode:
        """Whether a transactional id is coordinated here: any is."""
        return ErrorCode.NONE

    def start(self) -> None:
        self._decided.watch()
        super().start()
