"""The servers of a store in a folder, all on one machine: each holds a lock while it lives; see `servers`.

So one that was killed is dead at once, and no clock is asked. One that is stopped (SIGSTOP) lives, and is waited for,
as a partition's lock is that it has. Which of them coordinates is one more lock: the first that finds it free has it,
to the end of its process.

Each has a file, named by its id, with its address. The files stay, as a lock on a file that is deleted keeps none away.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from pyspark_log.errors import StoreError
from pyspark_log.server.served.servers import Server, Servers, check_reachable, leader_of
from pyspark_log.storage.catalog.store_json import SERVERS_FOLDER, STATE_FOLDER
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking import life_locks

_log = logging.getLogger(__name__)

# How often it is looked whether the coordinator lives, and whether all others do, in seconds.
_LOOK, _LOOK_AT_ALL = 0.1, 1.0
# How long an id is tried for that may be free: one that looks whether its server lives has it locked for a moment.
_PATIENCE = 0.5
_COORDINATOR = "coordinator"
# What the files have, all of them with as many bytes: so a reader never finds a part of what is written at once.
_SIZE = 512
_ONLY_OWNER = 0o700


class FolderServers(Servers):
    """Registers this one, and follows the others, in a thread.

    Attributes:
        node_id: Kafka's `broker.id` of this one; -1: not registered yet.
    """

    def __init__(self, path: str, node_id: int | None) -> None:
        """Of the store in a folder; `node_id`: an id of its own; None: any that is free, once it registers."""
        self._folder, self._wanted = f"{path}/{STATE_FOLDER}/{SERVERS_FOLDER}", node_id
        self.node_id = -1
        self._own: files.File | None = None
        self._coordination: files.File | None = None
        self._term: int | None = None
        self._alive: tuple[Server, ...] = ()
        self._coordinator = -1
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pylog-servers", daemon=True)

    def socket_of(self, node_id: int) -> str:
        """Where one of them listens for the others."""
        return f"{self._folder}/{node_id}.socket"

    def alive(self) -> Sequence[Server]:
        return self._alive

    def leader(self, topic_id: str, partition: int, rack: str) -> Server:
        return leader_of(self._alive, topic_id, partition)

    def nearer(self, topic_id: str, partition: int, rack: str) -> int | None:
        """All are on one machine."""

    def coordinator(self) -> Server | None:
        return next((server for server in self._alive if server.node_id == self._coordinator), None)

    def of_transactions(self, transactional_id: str) -> Server | None:
        return self.coordinator()

    @property
    def coordinates(self) -> bool:
        return self._term is not None

    @property
    def term(self) -> int | None:
        return self._term

    def register(self, address: tuple[str, int]) -> None:
        check_reachable(address)
        files.make_folder(self._folder)
        # What the others pass on is not for other users.
        os.chmod(self._folder, _ONLY_OWNER)
        for node_id in count(1) if self._wanted is None else [self._wanted]:
            self._own = self._locked(node_id)
            if self._own is not None:
                self.node_id = node_id
                break
        else:
            raise StoreError(f"another server of this store has node id {self._wanted}")
        _write(self._own, {"host": address[0], "port": address[1]})
        self._judge()
        self._coordinator = _content(self._coordination_path).get("node_id", -1)

    def _locked(self, node_id: int) -> files.File | None:
        end = time.monotonic() + _PATIENCE
        while True:
            file = life_locks.hold(f"{self._folder}/{node_id}")
            if file is not None or time.monotonic() > end:
                return file
            time.sleep(_LOOK / 10)

    def begin(self, on_change: Callable[[], object], fail: Callable[[Exception], object]) -> None:
        self._on_change = on_change
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()
        for file in (self._coordination, self._own):
            if file is not None:
                file.close()
        self._coordination = self._own = self._term = None

    @property
    def _coordination_path(self) -> str:
        return f"{self._folder}/{_COORDINATOR}"

    def _work(self) -> None:
        judged = 0.0
        while not self._is_over.wait(_LOOK):
            try:
                before = self._coordinator
                self._look_at_coordinator()
                if before != self._coordinator or time.monotonic() - judged >= _LOOK_AT_ALL:
                    self._judge()
                    judged = time.monotonic()
            except OSError as error:
                _log.warning("node %d cannot look after the other servers: %s", self.node_id, error)

    def _look_at_coordinator(self) -> None:
        """Coordinates, if none does; else finds which one does."""
        if self._term is not None:
            return
        self._coordination = life_locks.hold(self._coordination_path)
        before = _content(self._coordination_path)
        if self._coordination is None:
            self._coordinator = before.get("node_id", -1)
            return
        term = before.get("term", 0) + 1
        _write(self._coordination, {"node_id": self.node_id, "term": term})
        self._coordinator, self._term = self.node_id, term
        self._on_change()

    def _judge(self) -> None:
        """Finds which servers live."""
        alive = [server for node_id in self._ids() if (server := self._living(node_id)) is not None]
        # One that is alone is where its clients have found it.
        self._alive = tuple(alive) if len(alive) > 1 else (Server(self.node_id, "", 0),)

    def _ids(self) -> Iterable[int]:
        return sorted(int(name) for name in files.list_folder(self._folder) if name.isdecimal())

    def _living(self, node_id: int) -> Server | None:
        path = f"{self._folder}/{node_id}"
        if node_id != self.node_id and not life_locks.is_held(path):
            return None
        content = _content(path)
        return Server(node_id, content["host"], content["port"]) if "port" in content else None


def _content(path: str) -> Mapping[str, Any]:
    """What a file has; nothing, if its server has just begun, or there is none."""
    try:
        content = files.read_whole(path, _SIZE)
    except FileNotFoundError:
        return {}
    return json.loads(content) if content.strip() else {}


def _write(file: files.File, content: Mapping[str, Any]) -> None:
    file.pwrite(json.dumps(content).encode().ljust(_SIZE), 0)
