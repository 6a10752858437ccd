"""The documents of a store in a folder: small files in its folder for state."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pyspark_log.errors import DescriptionError
from pyspark_log.server.documents.followed import MOST_BYTES, Documents, check_size
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs import files, lock_for

_T = TypeVar("_T")

_MODE = 0o600


class FolderDocuments(Documents):
    """Those of the store in a folder."""

    def __init__(self, folder: str) -> None:
        """Reads nothing yet."""
        self._folder = folder

    def followed(
        self, name: str, kind: str, empty: _T, decode: Callable[[bytes], _T], encode: Callable[[_T], bytes]
    ) -> FollowedFile[_T]:
        """As of Documents."""
        return FollowedFile(f"{self._folder}/{STATE_FOLDER}/{name}", kind, empty, decode, encode)


class FollowedFile(Generic[_T]):
    """What is in a file; safe to use from several threads. Only the file's owner may read it."""

    def __init__(
        self, path: str, kind: str, empty: _T, decode: Callable[[bytes], _T], encode: Callable[[_T], bytes]
    ) -> None:
        """Reads nothing yet. `path` is the file's; the others are as of Documents."""
        self._path, self._kind = path, kind
        self._lock_path = f"{self._path.removesuffix('.json')}.lock"
        self._decode, self._encode = decode, encode
        self._lock = threading.Lock()
        self._empty = empty
        self._known: tuple[tuple[int, int, int] | None, _T | DescriptionError] = (None, empty)

    def content(self) -> _T:
        """What is in it now; the same object until the file changes. DescriptionError: it is damaged. OSError."""
        try:
            status = files.status_of(self._path)
        except FileNotFoundError:
            return self._empty
        identity = (status.st_ino, status.st_ctime_ns, status.st_size)
        with self._lock:
            if self._known[0] != identity:
                try:
                    content: _T | DescriptionError = self._decode(files.read_whole(self._path, MOST_BYTES))
                except ValueError as error:
                    content = DescriptionError(f"{self._path} is no valid {self._kind}: {error}")
                self._known = identity, content
            outcome = self._known[1]
        if isinstance(outcome, DescriptionError):
            raise DescriptionError(str(outcome))
        return outcome

    def change(self, make: Callable[[_T], _T]) -> None:
        """Replaces what is in it by what `make` returns, under a lock.

        Raises:
            DescriptionError, OSError: as `content`; nothing was changed.
            InvalidConfigError: it would be too large; nothing was changed.
            LockTimeoutError: another process changes it for too long.
        """
        files.make_folder(os.path.dirname(self._path))
        files.open_or_create(self._lock_path).close()
        with lock_for(self._lock_path).held():
            data = self._encode(make(self.content()))
            check_size(self._kind, data)
            files.replace_whole(self._path, data, mode=_MODE)
