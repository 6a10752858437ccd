"""The folder in which a copy of a store is made."""

from __future__ import annotations

import os

from pyspark_log.errors import StoreExistsError
from pyspark_log.storage.catalog import local_path
from pyspark_log.storage.catalog.store_json import list_made_folder
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files


def new_folder(source: FolderStore, into: str | os.PathLike[str]) -> str:
    """Makes sure that a copy of `source` can be made in a folder; returns its path.

    Args:
        source: the store.
        into: a folder that is missing or empty, outside of the store and its log dirs; the folder above it exists.

    Raises:
        StoreNotFoundError: the folder above it does not exist.
        StoreExistsError: it is not empty, or lies in the store or in one of its log dirs.
    """
    folder = local_path(into)
    real = files.real_path(folder)
    for path in (source.path, *(log_dir.path for log_dir in source.logs.log_dirs)):
        other = files.real_path(path)
        if os.path.commonpath([real, other]) in (real, other):
            what = "the store" if path == source.path else "its log dir"
            raise StoreExistsError(f"{folder}: the copy must be outside of {what} {path}")
    return new_folder_at(into)


def new_folder_at(into: str | os.PathLike[str]) -> str:
    """The same for a store that is in no folder."""
    folder = local_path(into)
    if list_made_folder(folder):
        raise StoreExistsError(f"{folder} is not empty: a copy is made only in a new or empty folder")
    return folder
