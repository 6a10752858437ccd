"""What a kind of store cannot do, why, and what to do instead: the one place that says it."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from pyspark_log.errors import UnsupportedByStoreError


class Missing(Enum):
    """What only a store of the other kind can do; the value says why, and the other way."""

    # ---- in an object store
    LOCKS = (
        "there are no locks in an object store, as nothing there ends with the process that has one: commit with "
        "`expected`, which one of several processes can do"
    )
    MEMBERS = (
        "a group in an object store has no members, as nothing there shows at once that one has died: give each "
        "consumer its own partitions (Consumer.assign)"
    )
    OFFSET_EXPIRY = "offsets in an object store have no time of their own at which they expire"
    OFFSETS_TOPIC = (
        "OffsetsLog is of a store in a folder: take `store.groups.log`, which has its calls for each kind of store"
    )
    SOURCE_POSITIONS = (
        "source.position.header is for what clients of a server send again, and none looks at it over an object store: "
        "write with format('pylog'), whose output is exactly once without it"
    )
    PUBLISHER_DELETION = (
        "a publisher cannot be deleted in an object store: its last decision stays, in some hundred bytes; a query "
        "that is to begin again takes a new checkpoint, and another publishId if it has one"
    )
    FILES = (
        "this works on the files of a store in a folder, and that one is in an object store, where `pylog compact`, "
        "`clean`, `merge`, `verify` and `backup` need no files"
    )
    # ---- in a folder
    SERVERS = (
        "other machines may have its file system as well, where a lock does not always show that its server lives: "
        "start one server alone"
    )
    OBJECTS = "this works on a store in an object store, and that one is in a folder"
    MERGE = "it is in a folder, where the pieces of a partition are in one file already"


def refuse(missing: Missing, where: str) -> NoReturn:
    """Refuses a call; `where` names the store, group or publisher. UnsupportedByStoreError."""
    raise UnsupportedByStoreError(f"{where}: {missing.value}")
