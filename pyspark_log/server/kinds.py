"""How a store is served, by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark_log.errors import InvalidConfigError
from pyspark_log.server.handlers import APIS, Api, apis_beside_others
from pyspark_log.server.member import Member, Parts, alone
from pyspark_log.server.network import Workers
from pyspark_log.server.served import ServedLogs
from pyspark_log.server.served.servers import OnlyServer
from pyspark_log.storage.abilities import Missing, refuse
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs.mounts import is_shared
from pyspark_log.storage.kinds import by_store
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    from pyspark_log.storage.object_store import ObjectStore


# How long a decision on records waits for more of them over an object store, in seconds.
_LINGER = 0.05
# The id of a server that has none, and is the only one.
_NODE_ID = 1


class Kind(NamedTuple):
    """How a store is served.

    Attributes:
        logs: its logs.
        join: makes the server a member of the store's servers, with the APIs that it has then.
    """

    logs: ServedLogs
    join: Callable[[Parts], tuple[Member, Mapping[int, Api]]]


def kind_of(
    store: Store, workers: Workers, linger: float | None, node_id: int | None, rack: str, *, shared: bool
) -> Kind:
    """How a store is served.

    Args:
        store: what is served.
        workers: append what has to wait.
        linger: how long records wait for others, in seconds; None: as long as is usual.
        node_id: Kafka's `broker.id`; None: 1, or any that no other server has, where there may be others.
        rack: Kafka's `broker.rack`; "": it has none.
        shared: whether other servers may serve a folder as well.

    Raises:
        InvalidConfigError: records in a folder do not wait for others, and its servers have no racks.
        And as PublishLog.follow.
    """

    def in_objects(store: ObjectStore) -> Kind:
        from pyspark_log.server.served.objects import ObjectLogs  # noqa: PLC0415  (a server of a folder loads none of it)
        from pyspark_log.server.several.over_objects import SeveralOverObjects  # noqa: PLC0415

        logs = ObjectLogs(store, workers, _LINGER if linger is None else linger, node_id, rack)

        def join(parts: Parts) -> tuple[Member, Mapping[int, Api]]:
            member = SeveralOverObjects(parts, logs.groups, logs.transactions)
            return member, apis_beside_others(member)

        return Kind(logs, join)

    def in_a_folder(store: FolderStore) -> Kind:
        from pyspark_log.server.served.folder import FolderLogs  # noqa: PLC0415  (nor the other one that)

        if linger is not None:
            raise InvalidConfigError(f"--linger is for a store in an object store; {store.path} is in a folder")
        if rack:
            raise InvalidConfigError(f"--rack is for nodes and stores in object stores; {store.path} is in a folder")
        if shared:
            return _shared_folder(store, workers, node_id)
        logs = FolderLogs(store, workers, OnlyServer(_NODE_ID if node_id is None else node_id))
        return Kind(logs, lambda parts: (alone(parts), APIS))

    return by_store(store, folder=in_a_folder, objects=in_objects)


def _shared_folder(store: FolderStore, workers: Workers, node_id: int | None) -> Kind:
    """A store in a folder beside other servers. UnsupportedByStoreError: it has one alone."""
    from pyspark_log.server.served.folder import SharedFolderLogs  # noqa: PLC0415  (one that is alone needs none of it)
    from pyspark_log.server.served.folder.servers import FolderServers  # noqa: PLC0415  (likewise)
    from pyspark_log.server.several.in_folder import SeveralInFolder  # noqa: PLC0415  (likewise)

    check_several(store)
    servers = FolderServers(store.path, node_id)
    logs = SharedFolderLogs(store, workers, servers)

    def join(parts: Parts) -> tuple[Member, Mapping[int, Api]]:
        member = SeveralInFolder(parts, logs, servers)
        return member, member.relay.apis(apis_beside_others(member))

    return Kind(logs, join)


def check_several(store: Store) -> None:
    """UnsupportedByStoreError: a store has one server alone."""

    def in_a_folder(store: FolderStore) -> None:
        if is_shared(store.path):
            refuse(Missing.SERVERS, store.path)

    by_store(store, folder=in_a_folder, objects=lambda _: None)


def in_folder(store: Store) -> FolderStore:
    """A store, which has to be in a folder. UnsupportedByStoreError: it is not."""
    return by_store(store, folder=lambda store: store, objects=lambda store: refuse(Missing.FILES, store.path))
