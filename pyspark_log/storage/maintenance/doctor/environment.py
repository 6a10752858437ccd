"""Checks the environment: versions, native engines, free space, and the store."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import zlib
from collections.abc import Iterator

import crc32c
import lz4
import pyarrow as pa
import zstandard

from pyspark_log import __version__
from pyspark_log.config import TopicConfig
from pyspark_log.errors import DescriptionError, StoreError, StoreNotFoundError
from pyspark_log.storage.catalog.store_json import STORE_FILE
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.maintenance.doctor.findings import Finding, Verdict

_GIB = 1 << 30


def versions() -> Iterator[Finding]:
    """Versions of everything that reads or writes records, and whether its fast form is in use."""
    yield Finding("pyspark-log", Verdict.OK, __version__, "the engine")
    yield Finding("python", Verdict.OK, f"{platform.python_implementation()} {platform.python_version()}", "")
    yield Finding("operating system", Verdict.OK, platform.platform(), "")
    yield _pyarrow()
    yield Finding("gzip", Verdict.OK, f"zlib {zlib.ZLIB_RUNTIME_VERSION}", "gzip records are read and written")
    yield Finding(
        "lz4",
        Verdict.OK,
        f"{_version('lz4')}, library {lz4.library_version_string()}",
        "lz4 records are read and written",
    )
    yield _zstandard()
    yield _checksum()
    yield _pyspark()


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _pyarrow() -> Finding:
    if pa.Codec.is_available("snappy"):
        return Finding("pyarrow", Verdict.OK, f"{pa.__version__}, with snappy", "snappy records are read and written")
    return Finding("pyarrow", Verdict.WARNING, f"{pa.__version__}, without snappy", "snappy records cannot be read")


def _zstandard() -> Finding:
    library = ".".join(map(str, zstandard.ZSTD_VERSION))
    measured = f"{zstandard.__version__}, library {library}, {zstandard.backend}"
    if zstandard.backend == "cffi":
        return Finding("zstandard", Verdict.WARNING, measured, "a slower binding: install the compiled one")
    return Finding("zstandard", Verdict.OK, measured, "zstd records are read and written")


def _checksum() -> Finding:
    if crc32c.hardware_based:
        return Finding("crc32c", Verdict.OK, f"{_version('crc32c')}, hardware", "checksums cost next to nothing")
    return Finding(
        "crc32c",
        Verdict.WARNING,
        f"{_version('crc32c')}, software",
        "this processor, or this build, has no CRC-32C instruction: reading and writing are slower",
    )


def _pyspark() -> Finding:
    # Not imported: that takes a second, and only the version is needed.
    try:
        return Finding("pyspark", Verdict.OK, _version("pyspark"), "Spark can read and write stores from here")
    except importlib.metadata.PackageNotFoundError:
        return Finding("pyspark", Verdict.OK, "not installed", "the command line and Python work without it")


def free_space(folder: str) -> Finding:
    """Whether there is space for records."""
    name, segment = "free space", TopicConfig.resolve({}, {}).segment_bytes
    status = os.statvfs(folder)
    if status.f_blocks == 0:
        return Finding(name, Verdict.OK, "unknown", "this file system does not say how much room it has")
    free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    measured = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB"
    if free < segment:
        return Finding(name, Verdict.WARNING, measured, "less than one full segment of a partition (segment.bytes)")
    return Finding(name, Verdict.OK, measured, "room for records")


def log_dirs(folder: str) -> Iterator[Finding]:
    """The log dirs of the store in a folder, if it has others than its first one."""
    try:
        found = FolderStore.open(folder).describe_log_dirs()
    except (StoreError, OSError):
        return  # `store` reports it.
    if len(found) < 2:
        return
    for one in found:
        name, measured = "log dir", f"{one.path}, {len(one.partitions)} partition(s)"
        if one.problem:
            yield Finding(name, Verdict.FAILED, f"{measured}: {one.problem}", "its partitions cannot be used")
            continue
        room = free_space(one.path)
        yield Finding(name, room.verdict, f"{measured}, free: {room.measured}", room.meaning)


def store(folder: str) -> Finding:
    """The store in a folder, if there is one."""
    try:
        found = FolderStore.open(folder)
        count = len(found.topics(internal=True))
    except StoreNotFoundError:
        return Finding("store", Verdict.OK, "none", "a store can be made here if the folder is empty")
    except DescriptionError as error:
        return Finding("store", Verdict.FAILED, str(error), f"{STORE_FILE} is damaged: restore it from a copy")
    except (StoreError, OSError) as error:
        return Finding("store", Verdict.FAILED, str(error), "this pyspark-log cannot open the store")
    with open(f"{folder}/{STORE_FILE}", "rb") as file:
        version = json.load(file)["version"]
    return Finding(
        "store",
        Verdict.OK,
        f"format version {version}, cluster id {found.cluster_id}, {count} topic(s)",
        "this pyspark-log can read it",
    )
