"""The files that are to be imported, and what was imported before."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark_log.jobs.support import JobError
from pyspark_log.storage.fs import files
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.types import OffsetStep, TopicPartition

_READABLE = 180


@dataclass(frozen=True)
class SourceFile:
    """A file that was not imported yet.

    Attributes:
        path: its absolute path, which every executor sees.
        size: bytes.
        changed: when it was changed last, in ns.
        topic: the topic that gets it.
    """

    path: str
    size: int
    changed: int
    topic: str

    @property
    def at(self) -> TopicPartition:
        """The name under which a group's committed offsets have it; the offset is its size in bytes."""
        return place_of("file", self.path, self.topic)

    def step(self, group: str) -> OffsetStep:
        """The move of the committed offset that says that it was imported."""
        return OffsetStep(group, self.at, None, self.size)


def place_of(kind: str, name: str, topic: str) -> TopicPartition:
    """A name for the offset of a source for a topic: it says what it is, and a digest makes it unique."""
    digest = hashlib.sha256(f"{name}\0{topic}".encode(errors="surrogateescape")).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("_")[-_READABLE:]
    return TopicPartition(f"{kind}-{readable}-{digest}", 0)


def new_files(
    patterns: Sequence[str], topic: str, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> Iterator[SourceFile]:
    """The files that were not imported before, by their paths.

    Files and folders whose names begin with `.` or `_` are passed over, as Spark does: they are not complete.

    Args:
        patterns: files, folders (all files in them and below), or patterns with `*`, `?` and `**`.
        topic: the topic that gets them.
        committed: the group's committed offsets.

    Raises:
        JobError: a pattern matches nothing, or a file has another size than when it was imported.
    """
    for path in sorted({path for pattern in patterns for path in _files(pattern)}):
        status = files.status_of(path)
        one = SourceFile(path, status.st_size, status.st_mtime_ns, topic)
        before = committed.get(one.at)
        if before is None:
            yield one
        elif before.offset != one.size:
            raise JobError(
                f"{path} had {before.offset} bytes when it was imported, and has {one.size} now: a file is imported "
                "once, when it is complete. Put new records into a new file; or import the whole file again, with "
                "another --group",
                "PYLOG_SOURCE_CHANGED",
            )


def _files(pattern: str) -> Iterator[str]:
    found = [pattern]
    if not files.exists(pattern):
        fixed = pattern[: re.search(r"[*?\[]|$", pattern).start()].rpartition("/")[0]  # type: ignore[union-attr]
        found = [
            path
            for path in glob.glob(pattern, recursive=True)
            if not any(map(_is_hidden, filter(None, path[len(fixed) :].split("/"))))
        ]
    if not found:
        raise JobError(f"{pattern}: there is no such file or folder", "PYLOG_SOURCE_MISSING")
    for path in map(os.path.abspath, found):
        if not files.is_folder(path):
            yield path
            continue
        for folder, folders, names in os.walk(path, onerror=_raise):
            folders[:] = [name for name in folders if not _is_hidden(name)]
            yield from (os.path.join(folder, name) for name in names if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _raise(error: OSError) -> None:
    raise error
