"""The folder of a store: its layout, store.json, which describes it, and where its cluster is, if a node has it."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark_log.arguments import check_path
from pyspark_log.config import check_store_configs
from pyspark_log.errors import (
    DescriptionError,
    InvalidConfigError,
    PartitionOwnedError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    shortened,
)
from pyspark_log.storage.catalog import log_dir_list, log_dir_owner
from pyspark_log.storage.catalog.kafka_files import META_PROPERTIES
from pyspark_log.storage.catalog.log_dir_list import MOST_FOLDERS, ListedLogDir
from pyspark_log.storage.catalog.topics import MAX_DESCRIPTION_BYTES, check_id, new_id
from pyspark_log.storage.fs import files, lock_for
from pyspark_log.storage.fs.json_fields import Fields
from pyspark_log.storage.objects import ObjectAddress, by_kind

log = logging.getLogger(__name__)

VERSION = 2
STORE_FILE = "store.json"
STAGING_FOLDER = "staging"
STATE_FOLDER = "state"
TOPICS_FOLDER = "topics"
#: Where a repaired copy keeps the bytes that were left out of it, and a store the files that were set aside.
CUT_FOLDER = "cut"
TOPICS_LOCK = "topics.lock"
#: In the folder of states: the users of a server, what they may do, and how much (server/security, server/quotas).
USERS_FILE, ACLS_FILE, QUOTAS_FILE = "users.json", "acls.json", "quotas.json"
#: Likewise: the servers that live, where several serve the store (server/served/folder/servers.py).
SERVERS_FOLDER = "servers"
SERVERS_FILES = (USERS_FILE, ACLS_FILE, QUOTAS_FILE, SERVERS_FOLDER)
#: Likewise, where the store is a node's: where the cluster is, which the node writes for programs on the same files.
CLUSTER_FILE: Final = "cluster.json"
LOG_DIRS = "log.dirs"

# What a process that was killed while it created a store may leave.
_NUMBER = re.compile(r"0|[1-9]\d{0,4}")
_LOCK = re.compile(r".+\.(lock|turn|tmp)")
# What else than logs is in the folder of a store.
_OWN_NAMES = (STORE_FILE, STAGING_FOLDER, STATE_FOLDER, TOPICS_FOLDER, CUT_FOLDER)
_MOST_CLUSTER_BYTES = 1 << 20


class StoreDescription(NamedTuple):
    """The contents of store.json.

    Attributes:
        cluster_id: 22 characters that identify the store.
        configs: the store's configs, by Kafka's names.
        log_dirs: by their numbers.
        next_log_dir: the number that the next added log dir gets. The number of a removed log dir is not
            used again, so that it never names another log dir.
    """

    cluster_id: str
    configs: Mapping[str, str]
    log_dirs: Mapping[int, ListedLogDir] = log_dir_list.DEFAULT
    next_log_dir: int = len(log_dir_list.DEFAULT)

    def encode(self) -> bytes:
        """Encodes store.json."""
        content: dict[str, object] = {
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "log_dirs": {
                str(number): {"path": folder.name, "directory_id": folder.directory_id or None}
                for number, folder in self.log_dirs.items()
            },
            "next_log_dir": self.next_log_dir,
            "settings": dict(self.configs),
        }
        return json.dumps(content, indent=2).encode() + b"\n"


def location(path: str | os.PathLike[str]) -> str:
    """Where the store of a path is: an absolute folder, or a URL. InvalidConfigError: neither."""
    return by_kind(path, folder=local_path, objects=_url)(path)


def _url(path: str | os.PathLike[str]) -> str:
    return str(ObjectAddress.parse(os.fspath(path)))


def local_path(path: str | os.PathLike[str]) -> str:
    """The absolute path that a path or a `file:` URI names. InvalidConfigError: any other URI, or not a path at all."""
    text = os.fspath(path)
    if not text:
        raise InvalidConfigError("the path of the store is empty")
    if ":" in text and re.match(r"file:|[A-Za-z][A-Za-z0-9+.-]+:/", text):
        from urllib.parse import unquote, urlsplit  # noqa: PLC0415  (half a MB, and few need it)

        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise InvalidConfigError(
                f"{text}: a store is a folder (a path, or a file: URI) or in an object store (s3://, gs:// or az://BUCKET/PREFIX)"
            )
        text = unquote(parts.path)
    check_path("the store's folder", text)
    return files.absolute_path(text)


def describe(folder: str) -> StoreDescription:
    """Reads the description of the store in a folder.

    Raises:
        StoreNotFoundError: the folder is missing, or is not a store.
        StoreVersionError: another version wrote it.
        DescriptionError: its store.json is damaged.
    """
    try:
        content = Fields.parse(files.read_whole(f"{folder}/{STORE_FILE}", MAX_DESCRIPTION_BYTES))
        content.check_version(VERSION, f"{folder}: the store", oldest=VERSION)
        cluster_id, configs = content.text("cluster_id"), content.texts("settings")
        check_id(cluster_id)
        folders = _log_dirs(content)
        next_log_dir = content.whole("next_log_dir", low=max(folders) + 1, high=log_dir_list.LAST_NUMBER + 1)
    except (FileNotFoundError, NotADirectoryError):
        what = f"it holds no {STORE_FILE}"
        if not files.is_folder(folder):
            what = "it is a file" if files.exists(folder) else "there is no such folder"
        raise StoreNotFoundError(f"{folder} is no store: {what}") from None
    except ValueError as error:
        raise DescriptionError(f"{folder}/{STORE_FILE} is not a valid store description: {error}") from None
    return StoreDescription(cluster_id, configs, folders, next_log_dir)


def _log_dirs(content: Fields) -> Mapping[int, ListedLogDir]:
    found: dict[int, ListedLogDir] = {}
    for key, fields in content.objects("log_dirs").items():
        if not _NUMBER.fullmatch(key):
            raise ValueError(f"{key!r} in 'log_dirs' is no number")
        listed = ListedLogDir(fields.text("path"), "")
        if fields.value("directory_id") is not None:
            listed = listed._replace(directory_id=fields.text("directory_id"))
            check_id(listed.directory_id)
        if not listed.name or (not listed.directory_id and listed not in log_dir_list.DEFAULT.values()):
            raise ValueError(f"'path' or 'directory_id' of {key} in 'log_dirs' is missing")
        found[int(key)] = listed
    given = [folder.directory_id for folder in found.values()]
    if not 0 < len(given) <= MOST_FOLDERS or len(set(given)) != len(given):
        raise ValueError(f"{len(given)} 'log_dirs', or one 'directory_id' twice")
    return dict(sorted(found.items()))


def make(folder: str, configs: Mapping[str, str], cluster_id: str | None = None) -> None:
    """Creates a store in a missing or empty folder; with an id of its own, or with that of a Kafka cluster.

    Raises:
        StoreNotFoundError: the parent folder is missing.
        StoreExistsError: the folder is not empty.
        InvalidConfigError: an unknown config or a bad value, or an invalid log dir in `log.dirs`.
    """
    check_store_configs(configs)
    names = log_dir_list.parse(configs.get(LOG_DIRS, log_dir_list.DATA_FOLDER))
    configs = {name: value for name, value in configs.items() if name != LOG_DIRS}
    several = names != [log_dir_list.DATA_FOLDER]
    _make_root(folder, {STATE_FOLDER, *names} if several else ())
    if not several:
        _describe(folder, StoreDescription(cluster_id or new_id(), configs))
        return
    for number, name in enumerate(names):
        log_dir_list.check_name(folder, name, names[:number], _OWN_NAMES)
    # Two processes that create the same store must not give its log dirs different ids.
    files.make_folder(f"{folder}/{STATE_FOLDER}")
    lock_path = f"{folder}/{STATE_FOLDER}/{TOPICS_LOCK}"
    files.open_or_create(lock_path).close()
    with lock_for(lock_path).held():
        if files.exists(f"{folder}/{STORE_FILE}"):
            raise StoreExistsError(f"{folder}: another process has just created a store there")
        cluster_id = cluster_id or new_id()
        folders: dict[int, ListedLogDir] = {}
        for number, name in enumerate(names):
            folders[number] = _prepare(folder, name, cluster_id, folders.values())
        _describe(folder, StoreDescription(cluster_id, configs, folders, len(folders)))


def list_made_folder(folder: str) -> list[str]:
    """Makes a folder if it is missing; returns the names in it.

    Raises:
        StoreNotFoundError: the folder above it does not exist. StoreExistsError: it is a file.
    """
    try:
        files.make_folder(folder)
        return files.list_folder(folder)
    except FileNotFoundError:
        raise StoreNotFoundError(f"{folder}: the folder above it does not exist") from None
    except NotADirectoryError:
        raise StoreExistsError(f"{folder} is a file") from None


def _make_root(folder: str, allowed: Collection[str]) -> None:
    names = list_made_folder(folder)
    if any(not files.is_unfinished(name) and name not in allowed for name in names):
        raise StoreExistsError(f"{folder} is not empty: a store is created only in a new or empty folder")


def _describe(folder: str, description: StoreDescription) -> None:
    try:
        files.create_whole(f"{folder}/{STORE_FILE}", description.encode())
    except FileExistsError:
        raise StoreExistsError(f"{folder}: another process has just created a store there") from None
    log.info("created a store in %s", folder)


def add_log_dir(folder: str, name: str) -> StoreDescription:
    """Adds a log dir to a store, durably; the lock of all topics is held.

    Args:
        folder: the store's.
        name: an absolute path, or the name of a folder in the store; missing or empty.

    Returns:
        The new contents of store.json.

    Raises:
        InvalidConfigError: there are too many; or it is invalid, as `log_dir_list.check_name` and `prepare` say.
        OSError: it is not listed.
    """
    before = describe(folder)
    names = log_dir_list.parse(name)
    if len(names) != 1:
        raise InvalidConfigError(f"log dir {shortened(name)!r}: must be one folder, without a comma in its name")
    (name,) = names
    known, number = dict(before.log_dirs), before.next_log_dir
    if len(known) == MOST_FOLDERS or number > log_dir_list.LAST_NUMBER:
        raise InvalidConfigError(
            f"{folder} has {len(known)} log dirs and had {number - len(known)} more; it can have {MOST_FOLDERS} "
            f"at a time and {log_dir_list.LAST_NUMBER + 1} in all, as the number of a removed log dir is not given "
            "again"
        )
    log_dir_list.check_name(folder, name, [one.name for one in known.values()], _OWN_NAMES)
    if known == log_dir_list.DEFAULT:
        _make_first(folder, log_dir_list.path_of(folder, known[0].name))
        known[0] = log_dir_list.introduced(folder, known[0].name, before.cluster_id)
    known[number] = _prepare(folder, name, before.cluster_id, known.values())
    after = before._replace(log_dirs=known, next_log_dir=number + 1)
    files.replace_whole(f"{folder}/{STORE_FILE}", after.encode())
    return after


def remove_log_dir(folder: str, number: int) -> None:
    """Takes a log dir off a store's list, durably; no state names it, and the lock of all topics is held. OSError.

    Args:
        folder: the store's.
        number: which one; its number is not used again.
    """
    before = describe(folder)
    left = {other: listed for other, listed in before.log_dirs.items() if other != number}
    files.replace_whole(f"{folder}/{STORE_FILE}", before._replace(log_dirs=left).encode())


def _prepare(folder: str, name: str, cluster_id: str, known: Iterable[ListedLogDir]) -> ListedLogDir:
    """Prepares a log dir before it is listed beside the `known` ones. Raises as `log_dir_list.prepare` does."""
    prepared, path = log_dir_list.prepare(folder, name, cluster_id), log_dir_list.path_of(folder, name)
    for other in known:
        if other.directory_id == prepared.directory_id:
            # If it were listed twice, what is in it by the one name would be mistaken for a leftover by the other.
            raise InvalidConfigError(
                f"log dir {path}: by its {META_PROPERTIES} it is {other.name}, which is already listed; if it was "
                f"moved, change its path in {folder}/{STORE_FILE}"
            )
    problem = log_dir_owner.problem(path, f"{folder}/{STORE_FILE}", cluster_id)
    if problem:
        raise InvalidConfigError(f"log dir {path}: {problem}")
    log_dir_owner.note(path, f"{folder}/{STORE_FILE}")
    return prepared


def _make_first(folder: str, path: str) -> None:
    """Creates the log dir of a store to which nothing was ever written."""
    try:
        names = files.list_folder(f"{folder}/{STATE_FOLDER}")
        written = [name for name in names if name not in SERVERS_FILES and not _LOCK.fullmatch(name)]
    except FileNotFoundError:
        written = []
    if written and not files.is_folder(path):
        raise InvalidConfigError(f"log dir {path} is missing, but holds partitions: restore it first")
    files.make_folder(path)


def stamp(folder: str) -> tuple[int, int]:
    """Identifies the store in a folder, so that another store that replaces it later is recognized."""
    try:
        status = files.status_of(f"{folder}/{STORE_FILE}")
    except OSError:
        return -1, -1
    # The inode alone is not enough: that of a deleted file is given to the next one. And a copy has the old mtime.
    return status.st_ino, status.st_ctime_ns


class OwnCluster(NamedTuple):
    """Where the cluster is of which a store is a node's.

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
    read: Callable[[str], OwnCluster | None] = by_kind(path, folder=_read_cluster, objects=lambda _path: None)
    return read(path)


def _read_cluster(path: str) -> OwnCluster | None:
    place = f"{path}/{STATE_FOLDER}/{CLUSTER_FILE}"
    try:
        fields = Fields.parse(files.read_whole(place, _MOST_CLUSTER_BYTES))
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
