"""Opens the store: on the driver, where paths are resolved, and in tasks, which may run elsewhere."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark_log.errors import StoreNotFoundError
from pyspark_log.spark_connector.errors import ConnectorError, conditions_shown
from pyspark_log.spark_connector.options import StorePlace
from pyspark_log.storage.store import Store
from pyspark_log.units import plural

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoreRef:
    """A store as the driver knows it; sent to the tasks.

    Attributes:
        place: where it is; a folder's path is absolute.
        cluster_id: its identity.
    """

    place: StorePlace
    cluster_id: str

    @classmethod
    def to(cls, store: Store, options: Mapping[str, str] | None = None) -> StoreRef:
        """A reference to an open store, which was opened with the options."""
        return cls(StorePlace(store.path, options or {}), store.cluster_id)

    def reopen(self) -> Store:
        """Opens the same store in this process: in a task, or at the commit.

        Raises:
            ConnectorError: this machine finds no store there, or another one.
        """
        host, path = socket.gethostname(), self.place.path
        try:
            store = Store.shared(path, options=self.place.options)
        except StoreNotFoundError as error:
            raise ConnectorError(
                error.condition,
                f"the store {path}, which the driver sees, is not visible on host {host}: mount it there at "
                f"the same path ({error})",
            ) from error
        if store.cluster_id != self.cluster_id:
            raise ConnectorError(
                "PYLOG_STORE_DIFFERS",
                f"{path} on host {host} is another store (cluster id {store.cluster_id}) than the one the "
                f"driver sees there ({self.cluster_id}): mount the same folder on both",
            )
        return store


@contextmanager
def looking_at(place: StorePlace, age: float = 0.0) -> Iterator[Store]:
    """The store in a place, to plan what is read of it: `age` as for Partitions.looking.

    Raises:
        ConnectorError: for each error of the engine, also of the block.
    """
    with conditions_shown():
        store = Store.shared(place.path, options=place.options)
        with store.partitions.looking(age):
            yield store


def open_for_write(place: StorePlace) -> Store:
    """Opens the store in a place; creates one if that is missing or empty, and warns. On the driver only."""
    try:
        return Store.shared(place.path, options=place.options)
    except StoreNotFoundError:
        store = Store.open_or_create(place.path, options=place.options)
        log.warning("created a new store in %s (cluster id %s), as there was none", store.path, store.cluster_id)
        return Store.shared(place.path, options=place.options)


_warned_of: set[str] = set()


def warn_of_options(messages: list[str]) -> None:
    """Warns of options without effect; of each once in this process."""
    for message in messages:
        if message not in _warned_of:
            _warned_of.add(message)
            log.warning("%s", message)


def warn_of_new_topic(store: Store, topic: str) -> None:
    """Warns that a write has created a topic, whose name may be a mistake."""
    partitions = plural(store.describe_topic(topic).partitions, "partition")
    log.warning("%s: created the missing topic %s, with %s", store.path, topic, partitions)
