"""Chooses what to do by the kind of an open store, as `objects.by_kind` does by its path; nothing else asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    from pyspark_log.storage.object_store import ObjectStore

_T = TypeVar("_T")


def by_store(store: Store, *, folder: Callable[[FolderStore], _T], objects: Callable[[ObjectStore], _T]) -> _T:
    """What `folder` returns for a store in a folder, and `objects` for one in an object store."""
    if isinstance(store, FolderStore):
        return folder(store)
    from pyspark_log.storage.object_store import ObjectStore  # noqa: PLC0415  (a server of a folder does not load it)

    assert isinstance(store, ObjectStore)
    return objects(store)
