"""Compares the files that Kafka keeps beside its logs (checkpoints, `meta.properties`) with the partitions' states.

The engine does not use them, but a Kafka broker that is given the folder does. A checkpoint may be late, for it
is written now and then; what it must not say is more than there is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from pyspark_log.errors import PylogError, SideFileError
from pyspark_log.storage.catalog.kafka_files import (
    CLEANER,
    HIGH_WATERMARK,
    LOG_START,
    META_PROPERTIES,
    RECOVERY_POINT,
    read_meta_properties,
    read_offsets,
)
from pyspark_log.storage.catalog.log_dirs import INTERVAL
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.appending.new_segment import is_prepared_name
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding
from pyspark_log.types import TopicPartition

# How long (s) the writers of a store have to write what they know; they do so once a second. On a busy machine one may
# be later: only what remains after this many pauses is a fault.
_PAUSE = 1.2 * INTERVAL
_PAUSES = 5
# What a broker does that believes an offset which is too large.
_CHECKPOINTS = {
    RECOVERY_POINT: "would leave out a part of its recovery",
    HIGH_WATERMARK: "would show more than there is",
    LOG_START: "would hide records",
    CLEANER: "would leave records uncompacted",
}
_ADVICE = (
    "none for this engine: the process that next begins a segment or flushes rewrites it. "
    "Remove it before a Kafka broker gets the folder"
)


def log_dir_faults(store: FolderStore) -> Iterator[Finding]:
    """What is wrong with these files, in each log dir; and which of the folders have failed."""
    for folder in store.logs.log_dirs:
        if not folder.directory_id and not files.exists(folder.path):
            continue  # The first record creates it; each partition reports a lost one.
        problem = folder.problem()
        try:
            yield from () if problem else list(_find_damage(store, folder.path))
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}"
        if problem:
            advice = "repair or mount it, or restore it from a copy"
            yield Finder(store.path).damage(folder.path, f"the log dir has failed: {problem}", advice)


def _find_damage(store: FolderStore, folder: str) -> Iterator[Finding]:
    """Checks all files of a log dir that has not failed. OSError."""
    for name, consequence in _CHECKPOINTS.items():
        yield from _checkpoint(store, f"{folder}/{name}", consequence)
    yield from _properties(store, f"{folder}/{META_PROPERTIES}")
    yield from _copies(Finder(store.path), folder)


def _checkpoint(store: FolderStore, path: str, consequence: str) -> Iterator[Finding]:
    finding = Finder(store.path)
    try:
        beyond = _beyond(store, path)
        for _ in range(_PAUSES):
            if not beyond:
                return
            # The log was truncated, or the topic recreated, by a process that has yet to write the file.
            time.sleep(_PAUSE)
            known = {entry[:2] for entry in beyond}
            beyond = [entry for entry in _beyond(store, path) if entry[:2] in known]
    except SideFileError as error:
        yield finding.index(path, str(error), _ADVICE)
        return
    for at, offset, state in beyond[:1]:
        others = f" (and {len(beyond) - 1} more)" if len(beyond) > 1 else ""
        what = (
            f"it says offset {offset} for {at}{others}, whose log starts at {state.log_start} and ends at "
            f"{state.next_offset}: a broker {consequence}"
        )
        yield finding.at(at.topic, at.partition).index(path, what, _ADVICE, first=offset)


def _beyond(store: FolderStore, path: str) -> list[tuple[TopicPartition, int, PartitionState]]:
    """The entries of a checkpoint that say more than there is. SideFileError."""
    found = []
    for at, offset in read_offsets(path).items():
        # Read after the checkpoint. If it is damaged, that is reported there.
        with contextlib.suppress(PylogError, OSError):
            state = store.logs.reader(at.topic, at.partition).state()
            if offset > (state.log_start if path.endswith(f"/{LOG_START}") else state.next_offset):
                found.append((at, offset, state))
    return found


def _properties(store: FolderStore, path: str) -> Iterator[Finding]:
    try:
        found = read_meta_properties(path)
    except SideFileError as error:
        yield Finder(store.path).index(path, str(error), _ADVICE)
        return
    if found is not None and store.cluster_id and found.cluster_id != store.cluster_id:
        what = f"it is of cluster {found.cluster_id!r}, and the store's id is {store.cluster_id!r}"
        yield Finder(store.path).index(path, what, _ADVICE)


def _copies(finding: Finder, folder: str) -> Iterator[Finding]:
    """Staged output that was copied here to become segments, and has not."""
    names = sorted(filter(is_prepared_name, files.list_folder(folder)))
    size = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            size += files.size_of(f"{folder}/{name}")
    if names:
        what = (
            f"{len(names)} files of {size} bytes that were to become segments, this is the first: the process that "
            "made them is at it, or was stopped"
        )
        advice = "none: what was decided is staged elsewhere. `pylog clean` removes them when they are a day old"
        yield finding.note(f"{folder}/{names[0]}", what, advice)
