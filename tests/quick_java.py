"""Options with which Java starts quickly, and an archive of the classes that it loads then."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

#: Options with which a JVM that runs for seconds costs less than half: it compiles quickly, not well.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def quick_start(archive: Path) -> tuple[str, ...]:
    """Options of Java for a quick start, with the archive if it is there.

    Java reads classes in the usual way if its version or the jars are not those that the archive was made of.
    """
    if not archive.exists():
        return QUICK_START
    return (*QUICK_START, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")


@contextlib.contextmanager
def made_at_exit(archive: Path) -> Iterator[tuple[str, ...]]:
    """Options with which one JVM, that must start and end in the block, makes the archive."""
    written = archive.with_suffix(".new")
    yield (*QUICK_START, f"-XX:ArchiveClassesAtExit={written}", "-Xlog:disable")
    written.rename(archive)
