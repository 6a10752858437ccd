"""The note that says which store a log dir outside of the store's own folder belongs to.

A copy of a store has the cluster id, the directory ids and the absolute paths of the original. If it wrote to the same
log dirs, each of the two would overwrite and truncate what the other one has acknowledged, as they have separate state
files, and so separate locks. So such a log dir has a note with the path of the one store that uses it.
"""

from __future__ import annotations

import json
import os

from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.json_fields import Fields

#: The name of the note. A broker ignores files in its log dirs that it does not know.
OWNER_FILE = "pylog-store.json"

# More than the note, and than store.json, can have.
_MOST_BYTES = 64 * 1024
_MOST_STORE_BYTES = 16 * 1024 * 1024
_VERSION = 1


def is_outside(folder: str, store_file: str) -> bool:
    """Whether a log dir is outside of the store of that store.json; a copy of the store does not contain it then.

    A symbolic link inside the store counts as outside, too.
    """
    store = files.real_path(os.path.dirname(store_file))
    return os.path.commonpath([files.real_path(folder), store]) != store


def note(folder: str, store_file: str) -> None:
    """Writes the current paths of log dir and store to the note, durably, if the log dir is outside. OSError."""
    if is_outside(folder, store_file):
        now = files.real_path(folder), files.real_path(store_file)
        if _read(folder) != now:
            content = {"version": _VERSION, "log_dir": now[0], "store_file": now[1]}
            files.replace_whole(f"{folder}/{OWNER_FILE}", json.dumps(content, indent=2).encode() + b"\n")


def problem(folder: str, store_file: str, cluster_id: str) -> str:
    """Returns why the store may not use a log dir, if the store that it is a copy of uses it; "" if it may.

    A log dir that is not where it was when the note was written is a copy, too, and belongs to no store yet. A note
    whose store is missing does not count either: the store was moved.
    """
    if not is_outside(folder, store_file):
        return ""
    noted = _read(folder)
    if noted is None or noted[0] != files.real_path(folder) or noted[1] == files.real_path(store_file):
        return ""
    owner = os.path.dirname(noted[1])
    try:
        # Perhaps it is the same one, mounted at two places.
        if files.are_same(owner, os.path.dirname(store_file)):
            return ""
        other = Fields.parse(files.read_whole(noted[1], _MOST_STORE_BYTES)).text("cluster_id")
    except (OSError, ValueError):
        return ""
    if other != cluster_id:
        return ""
    return (
        f"it belongs to the store in {owner}, and this store is a copy of that one: copy the logs to a folder of "
        f"their own, and put its path into {store_file}; or, if that store is never to be used again, remove "
        f"{folder}/{OWNER_FILE}"
    )


def _read(folder: str) -> tuple[str, str] | None:
    """The paths of log dir and store.json in the note; None if there is none, or it is damaged."""
    try:
        content = Fields.parse(files.read_whole(f"{folder}/{OWNER_FILE}", _MOST_BYTES))
        return content.text("log_dir"), content.text("store_file")
    except (FileNotFoundError, ValueError):
        return None
