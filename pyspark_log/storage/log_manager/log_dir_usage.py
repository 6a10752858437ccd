"""The contents of each log dir of a store: its partitions, their sizes, and the free space."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_log.storage.fs import files
from pyspark_log.storage.log_manager.manager import LogManager
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path
from pyspark_log.types import TopicPartition

#: A size that cannot be determined.
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log dir (as in Kafka's DescribeLogDirs).

    Attributes:
        path: its absolute path.
        problem: why it cannot be used; "" if it can.
        partitions: the bytes of the `.log` files of each partition in it; UNKNOWN if the log dir has failed.
        free, total: bytes of its file system; UNKNOWN if the system does not report them.
    """

    path: str
    problem: str
    partitions: Mapping[TopicPartition, int]
    free: int
    total: int

    @property
    def size(self) -> int:
        """Bytes of the `.log` files of all its partitions, as far as they are known."""
        return sum(max(size, 0) for size in self.partitions.values())


def describe_log_dirs(logs: LogManager) -> list[LogDirDescription]:
    """The log dirs, in the order of store.json. ReadOnlyError; DescriptionError, OSError: of the store itself."""
    logs.check_writable()
    folders = logs.log_dirs
    folders.refresh()
    # A process that may only read gets no warning about folders that it may not write to.
    writes = files.may(logs.path, os.W_OK)
    problems = {folder.path: folder.write_problem() if writes else folder.problem() for folder in folders}
    found: dict[str, dict[TopicPartition, int]] = {path: {} for path in problems}
    for topic in logs.catalog.names():
        for place in logs.topic(topic).places():
            path = os.path.dirname(place.folder)
            if path in found:
                found[path][TopicPartition(topic, place.partition)] = _size(place.folder, problems[path])
    return [LogDirDescription(path, problem, found[path], *_room(path)) for path, problem in problems.items()]


def _size(folder: str, problem: str) -> int:
    try:
        bases = list_segments(folder)
        size = sum(files.size_of(segment_path(folder, base, LOG)) for base in bases)
    except OSError:
        return UNKNOWN
    return UNKNOWN if problem and not bases else size


def _room(path: str) -> tuple[int, int]:
    try:
        status = files.room_at(path)
    except OSError:
        return UNKNOWN, UNKNOWN
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
