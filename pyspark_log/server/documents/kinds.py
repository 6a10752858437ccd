"""Where the users, rights and quotas of a store's servers are, by the kind of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.errors import ReadOnlyError
from pyspark_log.server.documents import Documents
from pyspark_log.server.documents.in_folder import FolderDocuments
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.kinds import by_store
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    from pyspark_log.storage.object_store import ObjectStore


def documents_of(store: Store) -> Documents:
    """The documents of a store, for a process that does not serve it: it looks each time.

    ReadOnlyError: the store cannot be written to, and so has none.
    """

    def in_a_folder(store: FolderStore) -> Documents:
        if not store.writable:
            raise ReadOnlyError(f"{store.path} cannot be written to, and so has no users, ACLs and quotas")
        return FolderDocuments(store.path)

    def in_objects(store: ObjectStore) -> Documents:
        from pyspark_log.server.documents.in_objects import ObjectDocuments  # noqa: PLC0415  (a store in a folder needs none of it)
        from pyspark_log.storage.publish_log.serving.documents import Documents as Stored  # noqa: PLC0415

        stored = Stored(store.log)
        return ObjectDocuments(stored, stored.look)

    return by_store(store, folder=in_a_folder, objects=in_objects)
