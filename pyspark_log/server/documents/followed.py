"""What a server follows while others change it: the documents of its store, each of which changes as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from pyspark_log.errors import InvalidConfigError

_T = TypeVar("_T")

#: A document has no more bytes.
MOST_BYTES = 64 * 1024 * 1024


class Followed(Protocol[_T]):
    """What changes as a whole, as the content of a document; safe to use from several threads."""

    def content(self) -> _T:
        """What it is now; the same object until it changes. PylogError, OSError: it cannot be found out."""

    def change(self, make: Callable[[_T], _T]) -> None:
        """Replaces it by what `make` returns; of changes at the same time, none is lost. May wait.

        Raises:
            PylogError, OSError: nothing was changed; but OutcomeUnknownError: it is changed or not.
        """


class Documents(Protocol):
    """The documents of a store's servers: users, rights and quotas."""

    def followed(
        self, name: str, kind: str, empty: _T, decode: Callable[[bytes], _T], encode: Callable[[_T], bytes]
    ) -> Followed[_T]:
        """A document, which may not be there yet.

        Args:
            name: the document's.
            kind: what it is, for errors.
            empty: what it is while it is not there.
            decode: reads its bytes. ValueError: they are damaged.
            encode: makes them.
        """


def check_size(kind: str, data: bytes) -> None:
    """Refuses what is too large for a document. InvalidConfigError."""
    if len(data) > MOST_BYTES:
        raise InvalidConfigError(f"the {kind} would have {len(data):,} bytes, of {MOST_BYTES:,}")
