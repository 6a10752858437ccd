"""The folder of a store: what is where in it, and the file that says what it is."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark_log.storage import files
from pyspark_log.storage.config import check_store_settings
from pyspark_log.storage.errors import DescriptionError, InvalidConfigError, StoreExistsError, StoreNotFoundError
from pyspark_log.storage.json_fields import Fields
from pyspark_log.storage.topics import MAX_DESCRIPTION_BYTES, check_id, new_id

log = logging.getLogger(__name__)

VERSION = 1
STORE_FILE = "store.json"
DATA_FOLDER = "data"
STAGING_FOLDER = "staging"
STATE_FOLDER = "state"
TOPICS_FOLDER = "topics"

# What a process that was killed while it made a store may leave behind.
_UNFINISHED = re.compile(r"[0-9a-f]{16}\.tmp")


class StoreDescription(NamedTuple):
    """What store.json says: 22 characters that tell the store from all others, and its settings by Kafka's names."""

    cluster_id: str
    settings: Mapping[str, str]


def local_path(path: str | os.PathLike[str]) -> str:
    """The absolute path that a path or a `file:` URI names. InvalidConfigError for any other URI."""
    text = os.fspath(path)
    if not text:
        raise InvalidConfigError("the path of the store is empty")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text) or text.startswith("file:"):
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise InvalidConfigError(f"{text}: a store is a folder of a file system: give a path or a file: URI")
        text = unquote(parts.path)
    return os.path.abspath(text)


def describe(folder: str) -> StoreDescription:
    """What the store in a folder says of itself.

    Raises:
        StoreNotFoundError: the folder is missing, or holds no store.
        StoreVersionError: a newer version wrote it.
        DescriptionError: its store.json is damaged.
    """
    try:
        content = Fields.parse(files.read_whole(f"{folder}/{STORE_FILE}", MAX_DESCRIPTION_BYTES))
        content.check_version(VERSION, f"{folder}: the store")
        cluster_id, settings = content.text("cluster_id"), content.texts("settings")
        check_id(cluster_id)
    except (FileNotFoundError, NotADirectoryError):
        what = "there is no such folder" if not os.path.isdir(folder) else f"it holds no {STORE_FILE}"
        raise StoreNotFoundError(f"{folder} is no store: {what}") from None
    except ValueError as error:
        raise DescriptionError(f"{folder}/{STORE_FILE} is no store's description: {error}") from None
    return StoreDescription(cluster_id, settings)


def make(folder: str, settings: Mapping[str, str]) -> None:
    """Makes a store in a missing or empty folder.

    Raises:
        StoreNotFoundError: the folder above it is missing.
        StoreExistsError: the folder is not empty.
        InvalidConfigError: an unknown setting or a bad value.
    """
    check_store_settings(settings)
    try:
        files.make_folder(folder)
        names = os.listdir(folder)
    except FileNotFoundError:
        raise StoreNotFoundError(f"{folder}: the folder above it does not exist") from None
    except NotADirectoryError:
        raise StoreExistsError(f"{folder} is a file") from None
    if any(not _UNFINISHED.fullmatch(name) for name in names):
        raise StoreExistsError(f"{folder} is not empty: a store is made in an empty or a new folder only")
    content = {
        "version": VERSION,
        "cluster_id": new_id(),
        "log_folders": [DATA_FOLDER],
        "settings": dict(settings),
    }
    try:
        files.create_whole(f"{folder}/{STORE_FILE}", json.dumps(content, indent=2).encode() + b"\n")
    except FileExistsError:
        raise StoreExistsError(f"{folder}: another process has just made a store there") from None
    log.info("created a store in %s", folder)


def stamp(folder: str) -> tuple[int, int]:
    """Tells the store in a folder from one that takes its place later."""
    try:
        status = os.stat(f"{folder}/{STORE_FILE}")
    except OSError:
        return -1, -1
    # The inode alone is not enough: that of a removed file is given to the next one. And a copy has the old mtime.
    return status.st_ino, status.st_ctime_ns
