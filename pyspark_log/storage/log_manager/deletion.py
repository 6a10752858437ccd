"""What is left of a deleted topic's partitions, and how it is deleted.

A topic is deleted by moving its description away. Then, partition by partition: the state file is marked
dead under its lock, so that a writer that waited for the lock notices; and the folder is renamed as
Kafka renames a deleted one, so that its name is free. Readers that have files open keep reading. Finally all of it is
deleted.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re

from pyspark_log.errors import LogDamagedError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files, lock_for
from pyspark_log.storage.log.state import EMPTY, Flags, Loaded, state_file
from pyspark_log.storage.log.state.state_file import SLOT_COUNT

#: The suffix of a partition's folder that is being deleted, or is being moved from another log dir.
ASIDE = DELETE, FUTURE = "delete", "future"
#: Such a name: the topic's id in hex, and the suffix.
ASIDE_NAME = re.compile(r".*-[0-9]+\.([0-9a-f]{32})-(delete|future)")
# The longest file name on the file systems that a store is created on (and Kafka's limit).
_MAX_NAME = 255


def schedule_delete(place: PartitionPath) -> None:
    """Marks a partition of a deleted topic as dead and frees its folder's name. Can be repeated.

    There must be no topic of that name, or it would lose the folder that it is about to create.

    Raises:
        LockTimeoutError, OSError: nothing, or only the first half, was done.
    """
    mark_dead(place)
    owner = place.owner()
    # Without an owner, and with another folder renamed already, it is that of a newer topic, whose writer was killed
    # before it wrote the owner into the folder.
    if owner == place.topic_id or (not owner and not files.is_folder(tombstone_path(place))):
        set_aside(place)


def set_aside(place: PartitionPath) -> None:
    """Renames the folder of a partition to that of a deleted one. Not durable by itself. OSError."""
    grave = tombstone_path(place)
    if files.is_folder(place.folder):
        # Left by a partition that was moved twice; or the store is a copy that has the folder by both names.
        files.remove_folder(grave)
        files.rename(place.folder, grave)


def remove(place: PartitionPath) -> None:
    """Deletes what is left of a dead partition, except folders.

    Its state file may be deleted even if a writer waits for its lock: that writer finds that the name is gone, and a
    new state file of that name is created only while there is a topic of that id.
    """
    files.unlink(place.segments_path)
    files.unlink(place.cleaner_path)
    files.unlink(place.cleaner_path + ".turn")
    files.unlink(place.state_path)
    files.unlink(place.state_path + ".turn")


def mark_dead(place: PartitionPath) -> None:
    """Marks a partition as dead, for its writers. LockTimeoutError, OSError."""
    # Without the file nothing was ever written to it.
    with contextlib.suppress(FileNotFoundError), lock_for(place.state_path).held() as lock:
        try:
            before = state_file.load(lock.file)
        except LogDamagedError:
            before = Loaded(EMPTY, 0, (0,) * SLOT_COUNT)
        if not before.state.flags & Flags.DEAD:
            dead = before.state._replace(flags=before.state.flags | Flags.DEAD)
            state_file.store(lock.file, before, dead, durable=True)


def tombstone_path(place: PartitionPath) -> str:
    """The path of a partition's folder while it is being deleted (LocalLog.logDeleteDirName)."""
    return aside(place, DELETE)


def aside(place: PartitionPath, ending: str) -> str:
    """The path of a partition's folder that does not count."""
    return f"{os.path.dirname(place.folder)}/{aside_name(place.topic, place.topic_id, place.partition, ending)}"


def aside_name(topic: str, topic_id: str, partition: int, ending: str) -> str:
    """Kafka's name for a folder of a partition that does not count (LocalLog.logDirNameWithSuffix)."""
    suffix = f"-{partition}.{hex_id(topic_id)}-{ending}"
    return topic[: _MAX_NAME - len(suffix)] + suffix


def hex_id(topic_id: str) -> str:
    """A topic's id as it is written in these names."""
    return base64.urlsafe_b64decode(topic_id + "==").hex()
