"""The list of a store's log dirs (Kafka's `log.dirs`): their names, and what they must be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from pyspark_log.arguments import check_path, check_text
from pyspark_log.errors import InvalidConfigError, SideFileError, shortened
from pyspark_log.storage.catalog.kafka_files import (
    META_PROPERTIES,
    MetaProperties,
    encode_meta_properties,
    read_meta_properties,
)
from pyspark_log.storage.catalog.log_dir_owner import OWNER_FILE
from pyspark_log.storage.catalog.topics import new_id
from pyspark_log.storage.fs import files

#: The log dir of a store that is created without `log.dirs`.
DATA_FOLDER = "data"
#: The most log dirs that a store can have at a time.
MOST_FOLDERS = 256
#: The largest number of a log dir, which has two bytes in a state file.
LAST_NUMBER = 65535
#: A store is not a broker, but `meta.properties` must name one.
NODE_ID: Final = 0

# Names that the system creates in the root of a file system.
_SYSTEMS_OWN = frozenset({"lost+found"})


class ListedLogDir(NamedTuple):
    """A log dir as store.json lists it.

    Attributes:
        name: absolute, or inside the store.
        directory_id: the id in its `meta.properties`, so that no other folder is taken for it; "": not known,
            as for a store with one log dir, which is created with the first record.
    """

    name: str
    directory_id: str


#: The list of a store that is created without `log.dirs`.
DEFAULT: Final[Mapping[int, ListedLogDir]] = {0: ListedLogDir(DATA_FOLDER, "")}


def parse(text: str) -> list[str]:
    """Parses a comma-separated list of names. InvalidConfigError: it is empty, has one twice, or has too many."""
    names = [os.path.normpath(name.strip()) for name in text.split(",") if name.strip()]
    if not names or len(set(names)) < len(names) or len(names) > MOST_FOLDERS:
        raise InvalidConfigError(
            f"log.dirs = {shortened(text)!r}: must be 1 to {MOST_FOLDERS} different folders, separated by commas"
        )
    for name in names:
        check_path("log dir", name)
        check_text("log dir", name)
    return names


def path_of(store: str, name: str) -> str:
    """The path of a log dir."""
    return name if os.path.isabs(name) else f"{store}/{name}"


def check_name(store: str, name: str, others: Collection[str], own: Collection[str]) -> None:
    """Refuses a log dir in which logs would be mixed with other files.

    Args:
        store: the store's folder.
        name: the new log dir.
        others: the names of the log dirs that it has.
        own: the names of the other files in the store's folder.

    Raises:
        InvalidConfigError: it is one of them, is inside one, or contains one.
    """
    if not os.path.isabs(name) and (os.sep in name or name in {*own, os.curdir, os.pardir}):
        raise InvalidConfigError(
            f"log dir {shortened(name)!r}: must be an absolute path, or the name of a folder in the store that is "
            f"not used for anything else ({', '.join(sorted(own))})"
        )
    real = files.real_path(path_of(store, name))
    taken = [files.real_path(path_of(store, other)) for other in others]
    if os.path.isabs(name):
        taken.append(files.real_path(store))
    for other in taken:
        if os.path.commonpath([real, other]) in (real, other):
            raise InvalidConfigError(f"log dir {name}: it is {other}, lies in it, or holds it")


def prepare(store: str, name: str, cluster_id: str) -> ListedLogDir:
    """Prepares a new log dir, durably, before store.json lists it. The caller has called `check_name`.

    A folder that was prepared for this store before, and never listed, is used as it is.

    Raises:
        InvalidConfigError: its parent folder is missing; or it is not empty, e.g. has the logs of another store.
        OSError: it cannot be created, or written to.
    """
    path = path_of(store, name)
    try:
        files.make_folder(path)
    except FileNotFoundError:
        raise InvalidConfigError(f"log dir {path}: the folder above it does not exist") from None
    entries = {entry for entry in files.list_folder(path) if not files.is_unfinished(entry)}
    found = entries - _SYSTEMS_OWN - {OWNER_FILE}
    meta = f"{path}/{META_PROPERTIES}"
    if found == {META_PROPERTIES}:
        directory_id = _own_id(meta, cluster_id)
        if directory_id:
            return ListedLogDir(name, directory_id)
    if found and (found != {META_PROPERTIES} or os.path.isabs(name)):
        raise InvalidConfigError(
            f"log dir {path} is not empty: a new one must be, so that logs of two stores never mix. If nothing uses "
            f"its contents ({', '.join(sorted(found)[:3])}), remove them"
        )
    directory_id = new_id()
    files.replace_whole(meta, encode_meta_properties(MetaProperties(cluster_id, NODE_ID, directory_id)))
    return ListedLogDir(name, directory_id)


def _own_id(meta: str, cluster_id: str) -> str:
    try:
        known = read_meta_properties(meta)
    except SideFileError:
        return ""
    return known.directory_id or "" if known is not None and known.cluster_id == cluster_id else ""


def introduce(path: str, cluster_id: str) -> None:
    """Writes `meta.properties` into a log dir if it is missing. OSError."""
    meta = f"{path}/{META_PROPERTIES}"
    if not files.exists(meta):
        # Another process that is faster gives the log dir its id.
        with contextlib.suppress(FileExistsError):
            files.create_whole(meta, encode_meta_properties(MetaProperties(cluster_id, NODE_ID, new_id())))


def introduced(store: str, name: str, cluster_id: str) -> ListedLogDir:
    """Returns a log dir in use, with its id. InvalidConfigError: it has none. OSError."""
    path = path_of(store, name)
    introduce(path, cluster_id)
    directory_id = _own_id(f"{path}/{META_PROPERTIES}", cluster_id)
    if not directory_id:
        raise InvalidConfigError(f"log dir {path}: its {META_PROPERTIES} is damaged, or of another store")
    return ListedLogDir(name, directory_id)
