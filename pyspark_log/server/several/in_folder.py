"""A server beside others over one store in a folder."""

from __future__ import annotations

from collections.abc import Callable

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.member import Parts
from pyspark_log.server.served.folder import SharedFolderLogs
from pyspark_log.server.served.folder.servers import FolderServers
from pyspark_log.server.several.over_objects import Several
from pyspark_log.server.several.relay import Relay


class SeveralInFolder(Several):
    """One of several servers. One of them coordinates all groups and transactions at a time, to the end of its process.

    Attributes:
        relay: passes on what is appended in transactions.
    """

    def __init__(self, parts: Parts, logs: SharedFolderLogs, servers: FolderServers) -> None:
        """Coordinates nothing yet. `logs`: the parts'; `servers`: the logs'."""
        super().__init__(parts, logs.take_over)
        self.relay = Relay(parts.loop, servers, parts.broker, self.of_transaction)

    def of_transaction(self, transactional_id: str) -> ErrorCode:
        return self.of_group(transactional_id)

    def start(self) -> None:
        self.relay.start()
        self._transactions.watch()
        super().start()

    async def read(self) -> tuple[int, Callable[[], object]]:
        term, take_over_groups = await super().read()
        transactions = await self._parts.workers.run(self._transactions.log.load)

        def take_over() -> None:
            take_over_groups()
            self._transactions.take_over(transactions)

        return term, take_over

    def stop(self) -> None:
        self.relay.stop()

    def close(self) -> None:
        self.relay.close()
