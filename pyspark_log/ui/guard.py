"""Which requests are answered: those of this machine's browsers for this page, or those of users of the server."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable, Collection
from http import HTTPStatus

from pyspark_log.monitoring import Page, Request

#: Whether a host's user has a password: from the host's address, the user and the password.
Login = Callable[[str, str, str], bool]
#: Why a client is not admitted, as a text, "": it is; from its user, if it has logged in, and its certificate (DER).
Admit = Callable[[str | None, bytes | None], str]

_ASK = {"WWW-Authenticate": 'Basic realm="pylog", charset="UTF-8"'}


class Guard:
    """Refuses requests.

    A page of another site could have its own name mean this machine (DNS rebinding), and would then be asked for by the
    browser of one that may read this page. So a request has to name this host: by an address, or by a known name. With
    a login there is no need: a browser does not send a password of one name to another one.
    """

    def __init__(
        self, names: Collection[str] | None, login: Login | None = None, admit: Admit = lambda _user, _certificate: ""
    ) -> None:
        """Decides by these.

        Args:
            names: those of this host; None: it may be named by any.
            login: None: there is no login.
            admit: which clients of those that have passed all else are admitted.
        """
        self._names = None if names is None else {"localhost", *(name.lower() for name in names)}
        self._login, self._admit = login, admit

    def refusal(self, request: Request) -> Page | None:
        """Why a request is not answered; None: it is."""
        if self._names is not None and not self._is_known(self._names, request.headers.get("host", "")):
            return _plain(
                "the page is not known by that name: use an address such as 127.0.0.1, or allow it by --host-name",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        user = None if self._login is None else _user(request, self._login)
        if isinstance(user, Page):
            return user
        why = self._admit(user, request.certificate)
        return _plain(why, HTTPStatus.FORBIDDEN) if why else None

    @staticmethod
    def _is_known(names: Collection[str], host: str) -> bool:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        if name in names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _user(request: Request, login: Login) -> str | Page:
    """The user of a request, by HTTP Basic (RFC 7617); or why there is none."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return _plain("a user and a password of the server are needed", HTTPStatus.UNAUTHORIZED, _ASK)
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return _plain("the authorization has another form", HTTPStatus.BAD_REQUEST)
    if not (user and colon and login(request.host, user, password)):
        return _plain("the user is unknown, or has another password", HTTPStatus.UNAUTHORIZED, _ASK)
    return user


def _plain(why: str, status: HTTPStatus, headers: dict[str, str] | None = None) -> Page:
    return Page(f"{why}\n".encode(), status, headers=headers or {})
