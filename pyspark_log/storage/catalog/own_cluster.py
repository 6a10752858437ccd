"""Where the cluster is of which a store is a node's: a file that the node writes, for programs on the same files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyspark_log.errors import PartitionOwnedError, StoreError
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.json_fields import Fields
from pyspark_log.storage.objects import by_kind

#: The file, in the store's folder for state.
CLUSTER_FILE: Final = "cluster.json"
_MOST_BYTES = 1 << 20


class OwnCluster(NamedTuple):
    """A cluster.

    Attributes:
        brokers: hosts and ports.
        client_config: the path of the file that says how to log in; "": that is not needed.
    """

    brokers: Sequence[tuple[str, int]]
    client_config: str


def note_cluster(path: str, cluster: OwnCluster) -> None:
    """Writes where the cluster is of the store in the folder `path`. OSError."""
    content = {"brokers": [f"{host}:{port}" for host, port in cluster.brokers], "client_config": cluster.client_config}
    files.replace_whole(f"{path}/{STATE_FOLDER}/{CLUSTER_FILE}", json.dumps(content).encode())


def read_cluster(path: str) -> OwnCluster | None:
    """What a node has noted in the store at `path`; None: it is no node's. StoreError, OSError."""
    read: Callable[[str], OwnCluster | None] = by_kind(path, folder=_read, objects=lambda _path: None)
    return read(path)


def _read(path: str) -> OwnCluster | None:
    place = f"{path}/{STATE_FOLDER}/{CLUSTER_FILE}"
    try:
        fields = Fields.parse(files.read_whole(place, _MOST_BYTES))
        brokers = [str(one).rpartition(":") for one in fields.list("brokers")]
        return OwnCluster([(host, int(port)) for host, _, port in brokers], fields.text("client_config"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"{place} is damaged, start the node again, which writes it: {error}") from None


def check_free(path: str, what: str) -> None:
    """Refuses a change that the cluster has to make whose node the store is. PartitionOwnedError, StoreError, OSError.

    Args:
        path: the folder of the store.
        what: is to be changed.
    """
    cluster = read_cluster(path)
    if cluster is not None:
        at = ",".join(sorted(f"{host}:{port}" for host, port in cluster.brokers))
        raise PartitionOwnedError(
            f"{what}: the store {path} is that of a node of a Kafka cluster: topics, groups, ACLs and quotas are "
            f"changed in the cluster, with Kafka's tools (--bootstrap-server {at})"
        )
