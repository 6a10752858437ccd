"""Cleans a whole store: expired segments, expired committed offsets, leftovers of dead writers."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from pyspark_log.config import int_config
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER, STATE_FOLDER, TOPICS_FOLDER
from pyspark_log.storage.catalog.topics import DELETED_FOLDER
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.log.appending.new_segment import is_prepared_name
from pyspark_log.storage.log_manager import cleaning, partition_move
from pyspark_log.storage.publish import DecisionLog
from pyspark_log.storage.publish.pending import tidy
from pyspark_log.storage.publish.publisher_admin import forget_one_offs
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.publish.staging.staged_file import Job, job_of

log = logging.getLogger(__name__)

#: A half-written file that was not written to for this long (ms) is a leftover of a dead process.
UNFINISHED_LIFETIME_MS = 7 * 24 * 60 * 60 * 1000

#: A copy that has not become a segment of a log for this long (ms) is a leftover of a dead process.
COPY_LIFETIME_MS = 24 * 60 * 60 * 1000

# Files renamed to this are not searched for any more.
_TRASH = ".trash"


def clean(store: FolderStore) -> int:
    """Cleans all topics, remains of deleted ones, committed offsets of idle groups, and the store's other folders.

    Returns:
        How many segments retention deleted.

    Raises:
        PylogError, OSError: the first error; a part was cleaned.
    """
    store.check_writable()
    try:
        return cleaning.clean(store.logs, store.topics(internal=True))
    finally:
        sweep(store)


def sweep(store: FolderStore) -> None:
    """Cleans all but the logs of topics: remains of deleted ones, committed offsets, the store's other folders.

    Raises:
        PylogError, OSError: the first error; a part was cleaned.
    """
    try:
        store.groups.log.expire(timeouts.CLEANING)
    finally:
        try:
            store.admin.remove_deleted()
            partition_move.sweep(store.logs)
        finally:
            sweep_staging(store)
            sweep_copies(store)
            forget_one_offs(store.decisions)
            for folder in ("", f"{TOPICS_FOLDER}/", f"{TOPICS_FOLDER}/{DELETED_FOLDER}/", f"{STATE_FOLDER}/"):
                for path in _old(f"{store.path}/{folder}", files.UNFINISHED, store.logs.clock()):
                    files.unlink(path)


def sweep_staging(store: FolderStore) -> int:
    """Removes staged output that was never published, and will not be; returns how many files.

    That is of a job which has written nothing for `staged.output.expiration.ms`; or, if the process that would publish
    it is dead, for `staged.output.orphan.expiration.ms`: tasks of a dead driver keep running for a while.

    Raises:
        StagedOutputError, FileNotFoundError: an undone decision's files are unknown; nothing was removed.
        LockTimeoutError, OSError: the decision log cannot be held.
    """
    folder = f"{store.path}/{STAGING_FOLDER}/"
    decisions = store.decisions
    decisions.follow()
    if decisions.undone:
        tidy(decisions)
    if _forgotten(store, folder):
        # A publisher checks its files under this lock, so none is deleted between the check and the decision.
        with decisions.hold():
            named = _named(store, decisions)
            for path in _forgotten(store, folder):
                if os.path.basename(path) not in named:
                    files.rename(path, path + _TRASH)
    trash = [path for path, _ in _written(folder) if path.endswith(_TRASH)]
    for path in trash:
        files.unlink(path)
    if trash:
        log.info("%s: %d files of staged output that was never published were removed", store.path, len(trash))
    return len(trash)


def sweep_copies(store: FolderStore) -> None:
    """Removes copies of staged output in log dirs which became no segment. OSError.

    Safe to delete: the staged files are authoritative, and a missing copy is created again.
    """
    now = store.logs.clock()
    for folder in store.logs.log_dirs:
        if not folder.problem():
            for path, time in _written(f"{folder.path}/"):
                if is_prepared_name(os.path.basename(path)) and now - time > COPY_LIFETIME_MS:
                    files.unlink(path)


def _named(store: FolderStore, decisions: DecisionLog) -> set[str]:
    """The names of all files that undone decisions need."""
    named = set()
    for decision in decisions.undone.values():
        if decision.manifest:
            named.add(decision.manifest)
            entries = manifest.read(f"{store.path}/{STAGING_FOLDER}", decision.manifest, decision.manifest_crc)
            named |= {os.path.basename(path) for path in manifest.paths(entries)}
    return named


def _forgotten(store: FolderStore, folder: str) -> list[str]:
    """The files in the staging folder of whose job none was written to for as long as it is kept."""
    newest: dict[Job | str, int] = {}
    written = {path: time for path, time in _written(folder) if not path.endswith(_TRASH)}
    jobs = {path: job_of(os.path.basename(path)) or path for path in written}
    for path, time in written.items():
        newest[jobs[path]] = max(time, newest.get(jobs[path], 0))
    lifetime = int_config(store.configs, "staged.output.expiration.ms")
    orphans = min(lifetime, int_config(store.configs, "staged.output.orphan.expiration.ms"))
    now = store.logs.clock()
    gone = {
        job
        for job, time in newest.items()
        if now - time > lifetime or (now - time > orphans and isinstance(job, Job) and job.owner.is_dead())
    }
    return [path for path in written if jobs[path] in gone]


def _old(folder: str, suffix: str, now: int) -> list[str]:
    """The files in a folder with that suffix that were not written to for UNFINISHED_LIFETIME_MS; `now` in ms."""
    return [path for path, time in _written(folder) if path.endswith(suffix) and now - time > UNFINISHED_LIFETIME_MS]


def _written(folder: str) -> Iterator[tuple[str, int]]:
    """The files in a folder, and when each was last written to (ms)."""
    try:
        names = files.list_folder(folder)
    except FileNotFoundError:
        return
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            yield folder + name, files.status_of(folder + name).st_mtime_ns // 1_000_000
