"""Which requests are answered: those of this machine's browsers for this page, or those of users of the server."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable, Collection
from http import HTTPStatus

from pyspark_log.monitoring import Page, Request

Login = Callable[[str, str, str], bool]

_ASK = {"WWW-Authenticate": 'Basic realm="pylog", charset="UTF-8"'}


class Guard:
    """Refuses requests.

    A page of another site could have its own name mean this machine (DNS rebinding), and would then be asked for by the
    browser of one that may read this page. So a request has to name this host: by an address, or by a known name. With
    a login there is no need: a browser does not send a password of one name to another one.
    """

    def __init__(
        self, names: Collection[str], login: Login | None = None, admits: Callable[[bytes | None], bool] | None = None
    ) -> None:
        """Decides by these.

        Args:
            names: those of this host.
            login: whether a host's user has a password; None: there is no login.
            admits: whether a client's certificate will do; None: none is asked for.
        """
        self._names = {"localhost", *(name.lower() for name in names)}
        self._login, self._admits = login, admits

    def refusal(self, request: Request) -> Page | None:
        """Why a request is not answered; None: it is."""
        if self._admits is not None and not self._admits(request.certificate):
            return _plain("no rule for principals fits the certificate", HTTPStatus.FORBIDDEN)
        if self._login is not None:
            return self._logged_in(request, self._login)
        if self._admits is None and not self._is_known(request.headers.get("host", "")):
            return _plain(
                "the page is not known by that name: use an address such as 127.0.0.1, or allow it by --host-name",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        return None

    def _is_known(self, host: str) -> bool:
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _logged_in(self, request: Request, login: Login) -> Page | None:
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return _plain("a user and a password of the server are needed", HTTPStatus.UNAUTHORIZED, _ASK)
        try:
            user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return _plain("the authorization has another form", HTTPStatus.BAD_REQUEST)
        if not (user and colon and login(request.host, user, password)):
            return _plain("the user is unknown, or has another password", HTTPStatus.UNAUTHORIZED, _ASK)
        return None


def _plain(why: str, status: HTTPStatus, headers: dict[str, str] | None = None) -> Page:
    return Page(f"{why}\n".encode(), status, headers=headers or {})
