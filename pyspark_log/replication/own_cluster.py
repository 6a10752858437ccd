"""Where the cluster is of which a store is a node: a file that the node writes, for programs on the same files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from pyspark_log.errors import StoreError
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.json_fields import Fields
from pyspark_log.storage.store import Store

_FILE = "cluster.json"
_MOST_BYTES = 1 << 20


class OwnCluster(NamedTuple):
    """A cluster.

    Attributes:
        brokers: hosts and ports.
        client_config: the path of the file that says how to log in; "": that is not needed.
    """

    brokers: Sequence[tuple[str, int]]
    client_config: str


def note(path: str, cluster: OwnCluster) -> None:
    """Writes where the cluster is of the store in the folder `path`. OSError."""
    content = {"brokers": [f"{host}:{port}" for host, port in cluster.brokers], "client_config": cluster.client_config}
    files.replace_whole(f"{path}/{STATE_FOLDER}/{_FILE}", json.dumps(content).encode())


def of(store: Store) -> OwnCluster | None:
    """The cluster of which a store is a node; None: of none. StoreError, OSError."""
    return read(store.path) if isinstance(store, FolderStore) else None


def read(path: str) -> OwnCluster | None:
    """What a node has noted in the store in the folder `path`; None: it is no node's. StoreError, OSError."""
    place = f"{path}/{STATE_FOLDER}/{_FILE}"
    try:
        fields = Fields.parse(files.read_whole(place, _MOST_BYTES))
        brokers = [str(one).rpartition(":") for one in fields.list("brokers")]
        return OwnCluster([(host, int(port)) for host, _, port in brokers], fields.text("client_config"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"{place} is damaged, start the node again, which writes it: {error}") from None
