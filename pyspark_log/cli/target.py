"""The store that a command works on, opened when it is needed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import warn
from pyspark_log.errors import StoreNotFoundError

if TYPE_CHECKING:
    from pyspark_log.server.documents import Documents
    from pyspark_log.storage.folder_store import FolderStore
    from pyspark_log.storage.store import Store

_S = TypeVar("_S", bound="Store")


@dataclass(frozen=True)
class Target:
    """Where the store is; None if the user has not said."""

    path: str | None

    def open(self) -> Store:
        """The store, for commands that only read: never creates one.

        Applies pending decisions of dead publishers first, if this user may write: otherwise a store that is
        only read would never show them.
        """
        path = self.store_path()
        with interrupts.fatal():  # It takes long, and help needs none.
            from pyspark_log.storage import folder_store, store  # noqa: F401, PLC0415
        with _delays_said():
            return _with_all_visible(store.Store.open(path))

    def open_folder(self, instead: str = "") -> FolderStore:
        """The same for tools, which work on the files of a store; `instead` as in folder_path."""
        path = self.folder_path(instead)
        with interrupts.fatal():
            from pyspark_log.storage.folder_store import FolderStore  # noqa: PLC0415
        return _with_all_visible(FolderStore.open(path))

    def documents(self, *, create: bool = False, is_clusters: str = "") -> Documents:
        """Where the users, ACLs and quotas of the store's servers are.

        Args:
            create: makes a missing store, as the server does.
            is_clusters: what of them is about to be changed, and is the cluster's where the store is a node's.

        Raises:
            ReadOnlyError: the store cannot be written to.
            PartitionOwnedError: it is a node's.
        """
        store = self.open_served() if create else self.open()
        from pyspark_log.server.documents.kinds import documents_of  # noqa: PLC0415
        from pyspark_log.storage.catalog.store_json import check_free  # noqa: PLC0415

        if is_clusters:
            check_free(store.path, is_clusters)
        return documents_of(store)

    def open_or_create(self) -> Store:
        """The store, for commands that write: creates one in a missing or empty folder, and says so."""
        path = self.store_path()
        with interrupts.fatal():
            from pyspark_log.storage import folder_store, store  # noqa: F401, PLC0415
        with _delays_said():
            try:
                return store.Store.open(path)
            except StoreNotFoundError:
                made = store.Store.open_or_create(path)
        if not logging.getLogger().isEnabledFor(logging.INFO):  # The log of a server says it.
            click.echo(f"Created a new store in {made.path}", err=True)
        return made

    def open_served(self) -> Store:
        """The store that a server serves; a missing one is created."""
        return _with_all_visible(self.open_or_create())

    def open_folder_or_create(self, instead: str = "") -> FolderStore:
        """The same for tools; `instead` as in folder_path."""
        self.folder_path(instead)
        self.open_or_create()
        return self.open_folder()

    def open_node_folder(self, cluster_id: str) -> FolderStore:
        """The store of a node of a Kafka cluster, which has the cluster's id; a missing one is created.

        click.UsageError: the store is there, and has another id.
        """
        path = self.folder_path()
        try:
            store = self.open_folder()
        except StoreNotFoundError:
            from pyspark_log.storage.catalog import store_json  # noqa: PLC0415

            store_json.make(path, {}, cluster_id)
            store = self.open_folder()
            click.echo(f"Created a new store in {store.path}, with the cluster's id {cluster_id}", err=True)
        if store.cluster_id != cluster_id:
            why = f"{store.path} has the id {store.cluster_id}, the cluster {cluster_id}: take another store."
            raise click.UsageError(why)
        return store

    def folder_path(self, instead: str = "") -> str:
        """The folder of the store, unopened. click.UsageError: the user has not said it, or it is in no folder.

        Args:
            instead: what to do for a store in an object store.
        """
        path = self.store_path()
        with interrupts.fatal():
            from pyspark_log.storage.objects import by_kind  # noqa: PLC0415
        if by_kind(path, folder=False, objects=True):
            what = f"This works on the files of a store in a folder; {path} is in an object store."
            raise click.UsageError(f"{what} {instead}".rstrip())
        return path

    def store_path(self) -> str:
        """The path or URL of the store, unopened. click.UsageError if the user has not said it."""
        if not self.path:
            raise click.UsageError("Which store? Give --store PATH, or set PYLOG_STORE.")
        return self.path


@contextlib.contextmanager
def _delays_said() -> Iterator[None]:
    """What takes long with an object store is said in the block."""
    log, shown = logging.getLogger("pyspark_log.storage.object_store"), logging.StreamHandler()
    log.setLevel(logging.INFO)
    if not logging.getLogger().handlers:  # The log of a server says it.
        log.addHandler(shown)
    try:
        yield
    finally:
        log.setLevel(logging.NOTSET)
        log.removeHandler(shown)


def _with_all_visible(store: _S) -> _S:
    if problem := store.publishes.apply_pending():
        warn(f"published output could not be made visible: {problem}")
    return store
