"""What serves a store, by its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.server.network import Workers
from pyspark_log.server.served.logs import ServedLogs
from pyspark_log.storage.abilities import Missing, refuse
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.maintenance.kinds import by_store
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    from pyspark_log.storage.object_store import ObjectStore


def logs_of(store: Store, workers: Workers) -> ServedLogs:
    """The logs of a store; `workers` append what has to wait. Errors as PublishLog.follow."""

    def in_objects(store: ObjectStore) -> ServedLogs:
        from pyspark_log.server.served.objects import ObjectLogs  # noqa: PLC0415  (a server of a folder does not load it)

        return ObjectLogs(store)

    def in_a_folder(store: FolderStore) -> ServedLogs:
        from pyspark_log.server.served.folder import FolderLogs  # noqa: PLC0415  (nor the other one that)

        return FolderLogs(store, workers)

    return by_store(store, folder=in_a_folder, objects=in_objects)


def check_keeps_users(store: Store) -> None:
    """UnsupportedByStoreError: a store has no place for users and ACLs."""
    by_store(store, folder=lambda _: None, objects=lambda store: refuse(Missing.USERS, store.path))


def in_folder(store: Store) -> FolderStore:
    """A store, which has to be in a folder. UnsupportedByStoreError: it is not."""
    return by_store(store, folder=lambda store: store, objects=lambda store: refuse(Missing.FILES, store.path))
