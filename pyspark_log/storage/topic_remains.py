"""What is left of a deleted topic's partitions, and how it goes.

A topic is deleted when its description is moved away. Then, partition by partition: the state file is marked
dead under its lock, so that a writer that waited for it learns of it; and the folder gets the name that Kafka gives to
one that is being deleted, so that its name is free. Readers that have files open go on. At last all of it is removed.
"""

from __future__ import annotations

import base64
import os

from pyspark_log.storage import files, state_file
from pyspark_log.storage.errors import LogDamagedError
from pyspark_log.storage.locks import lock_for
from pyspark_log.storage.place import PartitionPlace
from pyspark_log.storage.state_file import EMPTY, SLOT_COUNT, Flags, Loaded

# The longest name of a file on the file systems that a store is made on (and Kafka's limit).
_MAX_NAME = 255


def bury(place: PartitionPlace) -> None:
    """Ends a partition of a deleted topic for its writers and frees its folder's name. May be done again.

    There is no topic of that name, or it would lose the folder that it is about to make.

    Raises:
        LockTimeoutError, OSError: nothing, or the first half, was done.
    """
    _mark_dead(place)
    owner = place.owner()
    if owner not in ("", place.topic_id) or not os.path.isdir(place.folder):
        return
    if not os.path.isdir(_grave(place)):
        files.rename(place.folder, _grave(place))
    elif owner:
        # The store is a copy that was taken meanwhile, and has the folder by both names.
        files.remove_folder(place.folder)
    # Else it is that of a newer topic, whose writer was killed before the folder could say so.


def remove(place: PartitionPlace) -> None:
    """Removes what is left of a buried partition.

    Its state file may go even if somebody waits for its lock: a waiter finds that the name is gone, and a new
    state file of that name is made only while there is a topic of that id.
    """
    files.remove_folder(_grave(place))
    files.unlink(place.segments_path)
    files.unlink(place.cleaner_path)
    files.unlink(place.cleaner_path + ".turn")
    files.unlink(place.state_path)
    files.unlink(place.state_path + ".turn")


def _mark_dead(place: PartitionPlace) -> None:
    lock = lock_for(place.state_path)
    try:
        lock.acquire()
    except FileNotFoundError:
        return  # Nothing was ever written to it.
    try:
        try:
            before = state_file.load(lock.file)
        except LogDamagedError:
            before = Loaded(EMPTY, 0, (0,) * SLOT_COUNT)
        if not before.state.flags & Flags.DEAD:
            dead = before.state._replace(flags=before.state.flags | Flags.DEAD)
            state_file.store(lock.file, before, dead, durable=True)
    finally:
        lock.release()


def _grave(place: PartitionPlace) -> str:
    """Where the folder of a partition is that is being deleted (LocalLog.logDeleteDirName)."""
    return f"{os.path.dirname(place.folder)}/{aside_name(place.topic, place.topic_id, place.partition, 'delete')}"


def aside_name(topic: str, topic_id: str, partition: int, ending: str) -> str:
    """A name of Kafka's for a folder of a partition that does not count (LocalLog.logDirNameWithSuffix)."""
    unique = base64.urlsafe_b64decode(topic_id + "==").hex()
    suffix = f"-{partition}.{unique}-{ending}"
    return topic[: _MAX_NAME - len(suffix)] + suffix
