"""The objects below one prefix, and the six requests that the engine makes.

The engine asks for these only: put, put if absent, get (whole or ranges), list, delete. Of these, put if absent
("create") is the only one with a condition; everything that must happen once is built on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from pyspark_log.errors import InvalidConfigError, ObjectStoreError
from pyspark_log.storage.objects.address import ObjectAddress
from pyspark_log.storage.objects.library import library
from pyspark_log.storage.objects.observer import notify
from pyspark_log.storage.objects.waiting import answer

_T = TypeVar("_T")

# For how long a request is tried again before it counts as failed: object stores answer 503 when they are asked too
# much, and ask for patience. The library draws each pause between the first and three times the one before, so only the
# time bounds it, not the number of tries.
_RETRY_SECONDS = 30
_FIRST_PAUSE, _GROWTH, _LONGEST_PAUSE = 0.1, 3, 5.0
# How often what was cut in the middle of an answer is asked for again.
_RETRIES = 8
# A request without an answer counts as failed after this time. A large one may take long in a slow network.
_TIMEOUT = 60
# Options of the connection; all others are the object store's own.
_OF_CONNECTION = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only", "http2_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_max_frame_size",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url",
    "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent",
})  # fmt: skip


class ObjectStatus(NamedTuple):
    """What a list says of an object: its name below the prefix, and its bytes."""

    key: str
    size: int


class Found(NamedTuple):
    """What a `get` has found.

    Attributes:
        data: the bytes; no more than were asked for.
        size: bytes of the whole object.
    """

    data: memoryview
    size: int


class Objects:
    """The objects below a prefix. Safe to use from several threads, and in forked children.

    Each request is tried again for half a minute while the object store is busy or cannot be reached. What fails after
    that raises ObjectStoreError. After a `put`, `create` or `delete` it is then not known whether it was done, and it
    may even be done later.

    Attributes:
        address: where they are.
        options: how the object store is reached. They may be secrets.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        """Asks for nothing yet.

        Args:
            url: as ObjectAddress.parse takes it.
            options: settings by the names of obstore, as `endpoint`, `region` or `access_key_id`. What
                they leave out comes from the environment and the platform (roles of instances, web identities).

        Raises:
            InvalidConfigError: no such URL or option, a bad value, or obstore is not installed.
        """
        self.address = ObjectAddress.parse(url)
        self.options: Mapping[str, str] = dict(options or {})
        self._made: tuple[int, Any, Any] | None = None
        self._client()

    def __repr__(self) -> str:
        # Not its options, which may be secrets.
        return f"Objects({str(self.address)!r})"

    def __reduce__(self) -> tuple[type[Objects], tuple[str, Mapping[str, str]]]:
        return type(self), (str(self.address), self.options)

    def _client(self) -> tuple[Any, Any]:
        """The library, and its client for this process."""
        if self._made is None or self._made[0] != os.getpid():
            found = library()
            self._made = os.getpid(), found, _connect(found, self.address, self.options)
        return self._made[1], self._made[2]

    # ---- the six requests

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Writes an object, whole, whether there is one of that name or not."""
        lib, client = self._client()
        notify("put", key, len(data))
        with _explained(lib, self.address, "put", key):
            answer(lib.put, client, key, data, use_multipart=False)
        notify("put", key, len(data), is_done=True)

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """Writes an object, if there is none of that name: of several that try, one at most succeeds.

        Returns:
            True: the object is there, by this call. False: that was refused. Then another one is there; or this call's
            own, whose first answer was lost; or none, if two collided and the object store wants a next try. To know,
            read it.
        """
        lib, client = self._client()
        notify("create", key, len(data))
        is_created = True
        with _explained(lib, self.address, "create", key):
            try:
                answer(lib.put, client, key, data, mode="create", use_multipart=False)
            except lib.exceptions.AlreadyExistsError:
                is_created = False
        notify("create", key, len(data), is_done=True)
        return is_created

    def get(self, key: str, most: int | None = None) -> Found | None:
        """Reads an object, or its first `most` bytes; None: there is none."""
        lib, client = self._client()
        notify("get", key)
        found = None
        with _explained(lib, self.address, "get", key):
            try:
                options = None if most is None else {"range": (0, most)}
                found = answer(lambda: _found(_whole(lib, lambda: lib.get(client, key, options=options))))
            except FileNotFoundError as error:
                if (code := _CODE.search(str(error))) is not None and code[1] in _NO_PLACE:
                    raise ObjectStoreError(
                        f"{self.address}: there is no bucket or container {self.address.place!r}, or the endpoint is "
                        f"that of another object store ({code[1]})",
                        retriable=False,
                    ) from None
            except lib.exceptions.BaseError as error:
                # No range can be read of an object without bytes.
                if most is None or not _BEYOND.search(_said(error)):
                    raise
                found = Found(memoryview(b""), 0)
        notify("get", key, is_done=True)
        return found

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Reads ranges of an object: positions and sizes, in bytes. Those that are near come in one request.

        Raises:
            FileNotFoundError: there is no such object.
            EOFError: it ends within a range.
        """
        lib, client = self._client()
        notify("get_ranges", key)
        with _explained(lib, self.address, "get", key):
            starts, lengths = [one[0] for one in ranges], [one[1] for one in ranges]
            try:
                parts = answer(_whole, lib, lambda: lib.get_ranges(client, key, starts=starts, lengths=lengths))
                found = [memoryview(one) for one in parts]
            except BaseException as error:
                # The library panics if, of near ranges, one begins after the end; that is no Exception.
                if type(error).__name__ != "PanicException":
                    raise
                raise EOFError(f"{self.address}/{key}: it ends before the bytes that are asked for") from None
        notify("get_ranges", key, is_done=True)
        for (position, size), data in zip(ranges, found, strict=True):
            if len(data) != size:
                raise EOFError(f"{self.address}/{key}: it has {len(data)} of the {size} bytes from byte {position} on")
        return found

    def list(self, prefix: str = "") -> Iterator[ObjectStatus]:
        """The objects whose names begin with a prefix, a whole part of the path, in no order that can be relied on."""
        lib, client = self._client()
        notify("list", prefix)
        with _explained(lib, self.address, "list", prefix):
            last, tries = None, _RETRIES
            while tries >= 0:
                try:
                    chunks = iter(lib.list(client, prefix or None, offset=last))
                    while (chunk := answer(next, chunks, None)) is not None:
                        for one in chunk:
                            last = one["path"]
                            yield ObjectStatus(last, one["size"])
                    break
                except lib.exceptions.BaseError as error:
                    # Pages are in the order of the names.
                    if not tries or not _CUT.search(_said(error)):
                        raise
                    tries -= 1
        notify("list", prefix, is_done=True)

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects; those that are not there are no error."""
        if not keys:
            return
        lib, client = self._client()
        notify("delete", keys[0])
        with _explained(lib, self.address, "delete", keys[0]):
            try:
                answer(lib.delete, client, list(keys))
            except (FileNotFoundError, lib.exceptions.BaseError) as error:
                # Some object stores say so of one that was there just before. Then the others may still be there.
                if not isinstance(error, FileNotFoundError) and "NoSuchKey" not in str(error):
                    raise
                for key in keys if len(keys) > 1 else ():
                    self.delete([key])
        notify("delete", keys[0], is_done=True)


class _explained:  # noqa: N801  (used as a function)
    """Raises what the library raises in the block as an error of ours, which names the object and has no secrets."""

    def __init__(self, lib: Any, address: ObjectAddress, what: str, key: str) -> None:  # noqa: ANN401
        self._lib, self._where, self._what = lib, f"{address}/{key}", what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        exceptions = self._lib.exceptions
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"{self._where}: {_said(error)}") from None
        if isinstance(error, exceptions.BaseError):
            said = _said(error)
            if _BEYOND.search(said):
                raise EOFError(f"{self._where}: it ends before the bytes that are asked for") from None
            denied = exceptions.PermissionDeniedError, exceptions.UnauthenticatedError
            if isinstance(error, denied) or _DENIED.search(said):
                raise ObjectStoreError(
                    f"{self._where}: {self._what} is not allowed: check the credentials, and the permissions that they "
                    f"have: {said}",
                    # An earlier try, whose answer was lost, may have been allowed.
                    retriable=_TRIED_BEFORE.search(said) is not None,
                ) from None
            raise ObjectStoreError(f"{self._where}: {self._what} has failed: {said}", retriable=True) from None


def _found(result: Any) -> Found:  # noqa: ANN401  (types of an extra)
    """Reads what a request has found."""
    return Found(memoryview(result.bytes()), result.meta["size"])


def _whole(lib: Any, ask: Callable[[], _T]) -> _T:  # noqa: ANN401  (types of an extra)
    """Asks again if an answer is cut: the library does so for an object, but not for the answer that there is none."""
    tries = _RETRIES
    while True:
        try:
            return ask()
        except lib.exceptions.BaseError as error:
            if not tries or not _CUT.search(_said(error)):
                raise
            tries -= 1


_CUT = re.compile(r"response body error")
_BEYOND = re.compile(r"status code: 416\b")
_DENIED = re.compile(r"status code: 40[13]\b")
_TRIED_BEFORE = re.compile(r"after [1-9]\d* retries")
_ANSWER = re.compile(r"(status code: \d+ [A-Za-z -]+).*", re.DOTALL)
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_PLACE = ("NoSuchBucket", "ContainerNotFound")
_USER = re.compile(r"(?<=://)[^/@\s]*@")


def _said(error: BaseException) -> str:
    """What the library says, without the details of its structures, and without secrets.

    Of the server's answer only the code stays: S3 quotes a token that has expired, and all that was signed.
    """
    text = str(error)
    code = _CODE.search(text)
    text = _ANSWER.sub(rf"\1, {code[1]}" if code else r"\1", text)
    return _USER.sub("", text.split("\n")[0].split(", Debug source")[0].strip())


def _connect(lib: Any, address: ObjectAddress, options: Mapping[str, str]) -> Any:  # noqa: ANN401  (types of an extra)
    # An address that begins with http:// was named so: none does by itself.
    connection: dict[str, object] = {"timeout": timedelta(seconds=_TIMEOUT), "allow_http": True}
    # Record batches have checksums of their own, and TLS has, too: one more of each body takes as long as all else.
    own: dict[str, str] = {"unsigned_payload": "true"} if address.scheme == "s3" else {}
    for name, value in options.items():
        (connection if name in _OF_CONNECTION else own)[name] = value
    retries = {
        "max_retries": 100 * _RETRY_SECONDS,
        "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
        "backoff": {
            "init_backoff": timedelta(seconds=_FIRST_PAUSE),
            "max_backoff": timedelta(seconds=_LONGEST_PAUSE),
            "base": _GROWTH,
        },
    }
    try:
        return lib.store.from_url(str(address), config=own, client_options=connection, retry_config=retries)
    except lib.exceptions.UnknownConfigurationKeyError as error:
        raise InvalidConfigError(f"{address}: an option is unknown: {_said(error)}") from None
    except (lib.exceptions.BaseError, ValueError, TypeError) as error:
        raise InvalidConfigError(f"{address}: {_without_values(_said(error), options)}") from None


def _without_values(text: str, options: Mapping[str, str]) -> str:
    """What the library says of options, unless that may quote a value, which may be a secret."""
    # A value in quotation marks is there with escapes.
    if options and ('"' in text or any(value and value in text for value in options.values())):
        return f"one of the options {', '.join(sorted(options))} has a value that cannot be; values are not shown"
    return text
