"""The documents of a store in an object store, which its publish log names; see publish_log/serving/documents.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pyspark_log.errors import DescriptionError
from pyspark_log.server.documents.followed import Documents, check_size
from pyspark_log.storage.publish_log.entries.changes import Document
from pyspark_log.storage.publish_log.serving.documents import Documents as Stored

_T = TypeVar("_T")


class ObjectDocuments(Documents):
    """Those that a store in an object store has."""

    def __init__(self, stored: Stored, look: Callable[[], object]) -> None:
        """Reads nothing yet.

        Args:
            stored: the documents as bytes.
            look: called before each look at one: `stored.look`, or nothing where another thread follows.
        """
        self._stored, self._look = stored, look

    def followed(
        self, name: str, kind: str, empty: _T, decode: Callable[[bytes], _T], encode: Callable[[_T], bytes]
    ) -> FollowedObject[_T]:
        """As of Documents."""
        return FollowedObject(self._stored, self._look, name, kind, empty, decode, encode)


class FollowedObject(Generic[_T]):
    """What is in such a document; safe to use from several threads."""

    def __init__(
        self, stored: Stored, look: Callable[[], object], name: str, kind: str, empty: _T,
        decode: Callable[[bytes], _T], encode: Callable[[_T], bytes],
    ) -> None:  # fmt: skip
        """Reads nothing yet. `stored` and `look` are as of ObjectDocuments, the others as of Documents."""
        self._stored, self._look, self._name, self._kind = stored, look, name, kind
        self._empty, self._decode, self._encode = empty, decode, encode
        self._lock = threading.Lock()
        self._known: tuple[Document | None, _T] = (None, empty)

    def content(self) -> _T:
        """What is in it; the same object until it changes. DescriptionError: it cannot be read, or is damaged."""
        self._look()
        return self._content(self._stored.current(self._name))

    def _content(self, current: tuple[Document, bytes] | None) -> _T:
        if current is None:
            return self._empty
        document, data = current
        with self._lock:
            if self._known[0] != document:
                try:
                    self._known = document, self._decode(data)
                except ValueError as error:
                    where = self._stored.where(document)
                    raise DescriptionError(f"{where} is no valid {self._kind}: {error}") from None
            return self._known[1]

    def change(self, make: Callable[[_T], _T]) -> None:
        """As of Followed. Errors: those of publish_log.serving.documents; InvalidConfigError: it is too large."""

        def encoded(current: tuple[Document, bytes] | None) -> bytes:
            data = self._encode(make(self._content(current)))
            check_size(self._kind, data)
            return data

        self._stored.change(self._name, encoded)
