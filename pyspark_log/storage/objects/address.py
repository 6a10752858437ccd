"""Where objects are: a URL of a bucket, or container, and a prefix in it."""

from __future__ import annotations

import os
import re
from typing import NamedTuple, TypeVar

from pyspark_log.errors import InvalidConfigError

#: The schemes of object stores, and by which name of its own each is known. Hadoop has several for one.
SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9]*)://(.*)", re.DOTALL)
_T = TypeVar("_T")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()=/@:+~-]*")


def by_kind(path: str | os.PathLike[str], *, folder: _T, objects: _T) -> _T:
    """What is right for the path of a store: of two values. All that differs by the kind of a path asks here.

    Args:
        path: a folder's path, or the URL of an object store.
        folder, objects: the value for each.
    """
    found = _URL.fullmatch(os.fspath(path))
    return objects if found is not None and found[1].lower() in SCHEMES else folder


class ObjectAddress(NamedTuple):
    """An address of objects.

    Attributes:
        scheme: s3, gs or az.
        place: the bucket, or the container, with what its scheme has before the first slash.
        prefix: what the names of all objects begin with, without slashes at its ends; "": nothing.
    """

    scheme: str
    place: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> ObjectAddress:
        """Parses `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. InvalidConfigError."""
        found = _URL.fullmatch(url)
        scheme = SCHEMES.get(found[1].lower()) if found is not None else None
        if found is None or scheme is None:
            raise InvalidConfigError(f"{url}: no URL of an object store; these begin with {', '.join(SCHEMES)}")
        place, _, prefix = found[2].partition("/")
        prefix = prefix.strip("/")
        if not place:
            raise InvalidConfigError(f"{url}: no bucket is named: {scheme}://BUCKET/PREFIX")
        if not _PREFIX.fullmatch(prefix) or "//" in prefix or any(part in (".", "..") for part in prefix.split("/")):
            raise InvalidConfigError(
                f"{url}: the prefix must be plain: letters, digits and !_.*'()=@:+~- between single slashes"
            )
        return cls(scheme, place, prefix)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}" + (f"/{self.prefix}" if self.prefix else "")
