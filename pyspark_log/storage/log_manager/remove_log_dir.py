"""Takes a log dir off a store's list: one durable write of store.json, when no partition is in it.

No partition can be placed there meanwhile. A process that places one holds the lock of all topics, or that of moves,
and reads store.json under it; both are held here. The log dir's number is not used again, so that a number in a
state file never names another log dir.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Sequence

from pyspark_log.errors import InvalidConfigError, LockTimeoutError, LogDamagedError, PylogError
from pyspark_log.storage.catalog import LogDir, store_json
from pyspark_log.storage.catalog.log_dirs import PARTITION_FOLDER
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs import files, lock_for
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log.state import Flags, read_slots, state_file
from pyspark_log.storage.log_manager.deletion import ASIDE_NAME
from pyspark_log.storage.log_manager.manager import LogManager
from pyspark_log.storage.log_manager.partition_move import moving, sweep_held
from pyspark_log.units import plural

log = logging.getLogger(__name__)

_STATE_NAME = re.compile(r"([A-Za-z0-9_-]{22})-(0|[1-9]\d{0,9})")
# At most this many obstacles are named.
_NAMED = 10


def remove(logs: LogManager, name: str) -> str:
    """Takes a log dir off the list; returns what is left in it. See `Store.remove_log_dir`."""
    logs.check_writable()
    with moving(logs, DEFAULT_TIMEOUT):
        number = logs.log_dirs.find(name)
        folder = logs.log_dirs.at(number)
        sweep_held(logs)
        with logs.catalog.changing():
            if len(logs.log_dirs) == 1:
                raise InvalidConfigError(f"{folder.path} is the only log dir; add another one first")
            problem = folder.write_problem()
            _check_states(logs, number, problem)
            problem = problem or _content_problem(folder)
            store_json.remove_log_dir(logs.path, number)
        logs.log_dirs.refresh()
        log.info("%s: log dir %d, %s, was removed from the list", logs.path, number, folder.path)
        return problem or _leave(logs, folder)


def _check_states(logs: LogManager, number: int, problem: str) -> None:
    """Refuses if the state of a partition names the log dir, or could do so again after a power loss."""
    names = {}
    for topic in logs.catalog.names():
        try:
            names[logs.catalog.describe(topic).topic_id] = topic
        except PylogError as error:
            log.debug("%s: %s", topic, error)
    inside: list[str] = []
    left: list[str] = []
    for name in sorted(files.list_folder(f"{logs.path}/{STATE_FOLDER}")):
        match = _STATE_NAME.fullmatch(name)
        if match is None:
            continue
        path = f"{logs.path}/{STATE_FOLDER}/{name}"
        slots = read_slots(path)
        if slots.size < 0:
            continue  # That of a deleted topic, which was just removed.
        shown = f"{names.get(match[1], match[1])}-{match[2]}"
        if slots.state is None:
            raise LogDamagedError(
                f"{shown}: its log dir is unknown, because its state {path} cannot be read; "
                "`pylog verify` says more. Nothing was changed"
            )
        # What a deleted topic has there is deleted, or lost, with the log dir.
        if number in slots.log_dirs and not slots.state.flags & Flags.DEAD:
            if slots.state.log_dir == number:
                inside.append(shown)
            else:
                left.append(path)
    if inside:
        where = logs.log_dirs.at(number).path
        advice = "move them to others first (`pylog log-dirs move TOPIC PARTITION FOLDER`)"
        if problem:
            advice = (
                f"as it has failed ({problem}), repair or mount it and move them to others; or, if their records are "
                "lost, delete their topics, or make a copy without them (`pylog repair`)"
            )
        raise InvalidConfigError(f"log dir {where} holds {plural(len(inside), 'partition')}: {_some(inside)}; {advice}")
    for path in left:
        _sync_state(path)


def _sync_state(path: str) -> None:
    """Syncs a state that names another log dir than an older one. LockTimeoutError, LogDamagedError, OSError.

    The process that moved the partition may have been killed before its sync, and the older state must not count again.
    """
    # Without the file the topic is deleted, and its delay is over.
    with contextlib.suppress(FileNotFoundError), lock_for(path).held() as lock:
        loaded = state_file.load(lock.file)
        state_file.store(lock.file, loaded, loaded.state, durable=True)


def _content_problem(folder: LogDir) -> str:
    """Refuses if a log dir holds logs, or leftovers of some; returns why that is not known, if it has failed."""
    try:
        names = sorted(files.list_folder(folder.path))
    except OSError as error:
        return str(error)
    found = [
        name
        for name in names
        if (PARTITION_FOLDER.fullmatch(name) or ASIDE_NAME.fullmatch(name)) and files.is_folder(f"{folder.path}/{name}")
    ]
    if found:
        raise InvalidConfigError(
            f"log dir {folder.path} still has {_some(found)}. `pylog clean` removes leftovers of moves and deleted "
            "topics after file.delete.delay.ms; `-future` folders disappear when their import ends; `pylog verify` "
            "explains the rest"
        )
    return ""


def _leave(logs: LogManager, folder: LogDir) -> str:
    """Removes the store's marks from a log dir, and an empty one inside the store; returns why something is left."""
    try:
        folder.leave()
        names = files.list_folder(folder.path)
        if names:
            return f"it has {_some(sorted(names))}"
        if os.path.dirname(folder.path) == logs.path:
            files.remove_empty_folder(folder.path)
    except (LockTimeoutError, OSError) as error:
        log.warning("%s: its files that mark it as a log dir remain: %s", folder.path, error)
        return str(error)
    return ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
