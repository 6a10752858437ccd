"""The examination of a folder, from this host alone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

from pyspark_log.storage.catalog.store_json import STORE_FILE
from pyspark_log.storage.maintenance.doctor import environment
from pyspark_log.storage.maintenance.doctor.check import Bench, Check, conduct
from pyspark_log.storage.maintenance.doctor.checks import ONE_HOST
from pyspark_log.storage.maintenance.doctor.findings import Finding, Verdict
from pyspark_log.storage.maintenance.doctor.mount_options import examine_mount
from pyspark_log.storage.maintenance.doctor.operations import Operations
from pyspark_log.storage.maintenance.doctor.second_process import SecondProcess


def examine(folder: str) -> Iterator[Finding]:
    """Checks what the engine runs on, and tests a folder's file system.

    All files are made in a temporary sub-folder, which is removed.

    Args:
        folder: an existing folder: a store, or where one is to be.

    Yields:
        The findings, as they are made.
    """
    folder = os.path.abspath(folder)
    yield from environment.versions()
    yield examine_mount(folder)
    yield environment.free_space(folder)
    yield environment.store(folder)
    yield from environment.log_dirs(folder)
    try:
        scratch = tempfile.mkdtemp(prefix=".pylog-doctor-", dir=folder)
    except OSError as error:
        yield _not_writable(error, readable=os.access(f"{folder}/{STORE_FILE}", os.R_OK))
        return
    try:
        yield Finding("write permission", Verdict.OK, "a folder could be made", "a store can be written here")
        for check in ONE_HOST:
            yield _conduct(check, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _conduct(check: Check, scratch: str) -> Finding:
    """Each check has a folder and a second process of its own, so that a check that hangs spoils no other."""
    folder = tempfile.mkdtemp(dir=scratch)
    mine = Operations(folder)
    try:
        with SecondProcess(folder) as other:
            return conduct(check, Bench(folder, mine, other))
    finally:
        mine.close()


def _not_writable(error: OSError, *, readable: bool) -> Finding:
    measured = error.strerror or str(error)
    if readable:
        meaning = "the store here can be read, without locks; appending and publishing cannot work"
        return Finding("write permission", Verdict.WARNING, measured, meaning)
    return Finding("write permission", Verdict.FAILED, measured, "no store can be made here, and there is none to read")
