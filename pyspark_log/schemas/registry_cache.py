"""A registry's answers on disk, for times when it does not answer."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from pyspark_log.errors import RegistryError
from pyspark_log.storage.fs import files

_MOST_BYTES = 16 * 1024 * 1024


class RegistryCache:
    """A folder with a file for each answer. Any number of processes may use it at once."""

    def __init__(self, folder: str, urls: tuple[str, ...]) -> None:
        """`folder`: it, or "": nothing is kept; `urls`: the registry's, as another one has other schemas."""
        self._folder, self._urls = folder, urls

    def read(self, path: str) -> Any:  # noqa: ANN401  (what JSON has)
        """The last answer to a request; None: there is none that can be read."""
        if not self._folder:
            return None
        try:
            return json.loads(files.read_whole(self._file(path), _MOST_BYTES))
        except (OSError, ValueError):
            return None

    def write(self, path: str, answer: Any) -> None:  # noqa: ANN401
        """Keeps an answer. RegistryError: the folder cannot be written."""
        if not self._folder:
            return
        data = json.dumps(answer).encode()
        try:
            if files.exists(self._file(path)) and files.read_whole(self._file(path), _MOST_BYTES) == data:
                return
            os.makedirs(self._folder, exist_ok=True)
            files.replace_whole(self._file(path), data, sync=False)
        except (OSError, ValueError) as error:
            raise RegistryError(f"the cache of schemas {self._folder} cannot be written: {error}") from None

    def _file(self, path: str) -> str:
        name = hashlib.sha256("\n".join((*self._urls, path)).encode()).hexdigest()
        return f"{self._folder}/{name}.json"
