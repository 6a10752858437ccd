"""Which store a log dir outside of the store's own folder belongs to.

A copy of a store has the cluster id, the directory ids and the absolute paths of the original. If it wrote to the same
log dirs, each of the two would overwrite and cut what the other one has acknowledged, as they have state files, and
so locks, of their own. So such a folder has a note of the one store that uses it, by its place.
"""

from __future__ import annotations

import json
import os

from pyspark_log.storage.fs import Fields, files

#: The name of the note. A broker passes over files in its log dirs that it does not know.
OWNER_FILE = "pylog-store.json"

_MOST_BYTES = 64 * 1024
# More than a store's description can have.
_MOST_STORE_BYTES = 16 * 1024 * 1024
_VERSION = 1


def is_outside(folder: str, store_file: str) -> bool:
    """Whether a log dir lies outside of the store whose store.json that is; a copy of the store has none of it then.

    It does too if its name in the store is a symbolic link.
    """
    store = files.real_path(os.path.dirname(store_file))
    return os.path.commonpath([files.real_path(folder), store]) != store


def note(folder: str, store_file: str) -> None:
    """Has the note say where folder and store are now, durably, if the folder is outside of the store. OSError."""
    if is_outside(folder, store_file):
        now = files.real_path(folder), files.real_path(store_file)
        if _read(folder) != now:
            content = {"version": _VERSION, "log_dir": now[0], "store_file": now[1]}
            files.replace_whole(f"{folder}/{OWNER_FILE}", json.dumps(content, indent=2).encode() + b"\n")


def problem(folder: str, store_file: str, cluster_id: str) -> str:
    """Why the store may not use a log dir, if the one that it is a copy of does; "" if it may.

    A folder that is not where it was when the note was made is a copy, too, and belongs to nobody yet. Nor does one
    count whose store is not there any more: it was moved.
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
        f"it belongs to the store in {owner}, and this one is a copy of that: bring the logs along to a folder of "
        f"their own, and put its path into {store_file}; or, if that store is never to be used again, remove "
        f"{folder}/{OWNER_FILE}"
    )


def _read(folder: str) -> tuple[str, str] | None:
    """Where folder and store.json were, by the note; None if there is none, or it is damaged."""
    try:
        content = Fields.parse(files.read_whole(f"{folder}/{OWNER_FILE}", _MOST_BYTES))
        return content.text("log_dir"), content.text("store_file")
    except (FileNotFoundError, ValueError):
        return None
