"""The server's side of TLS: certificate, key and the clients' authorities, read again when their files change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

from pyspark_log.errors import InvalidConfigError
from pyspark_log.server.security.config import TlsConfig
from pyspark_log.storage.fs import files

_log = logging.getLogger(__name__)

# How often the files are looked at, at most, in seconds.
_LOOK = 1.0


class Certificates:
    """Gives the context of new connections. All calls come from one thread."""

    def __init__(self, config: TlsConfig, clock: Callable[[], float]) -> None:
        """Reads the files. InvalidConfigError: they are of no use; the message says why.

        `clock`: seconds of a clock that nothing sets.
        """
        self._config, self._clock = config, clock
        self._paths = [path for path in (config.certificate, config.key, config.client_ca) if path is not None]
        self._looked = clock()
        # From before they are read, so that a change meanwhile is seen.
        self._identity = self._identify()
        self._context = _context(config)

    def context(self) -> ssl.SSLContext:
        """That of the files as they are, or as they were when they last could be used."""
        now = self._clock()
        if now - self._looked > _LOOK:
            self._looked = now
            identity = self._identify()
            if identity != self._identity:
                self._identity = identity
                self._read_again()
        return self._context

    def _read_again(self) -> None:
        try:
            self._context = _context(self._config)
        except InvalidConfigError as error:
            # Such as one of two files that are being replaced; the other one is looked at again when it has changed.
            _log.warning("the former certificate stays in use: %s", error)
        else:
            _log.info("%s: read again, for new connections", self._config.certificate)

    def _identify(self) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for path in self._paths:
            try:
                status = files.status_of(path)
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_ctime_ns))
        return found


def _context(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client that renegotiates could have each send wait for a receive.
    context.options |= ssl.OP_NO_RENEGOTIATION
    password = config.key_password

    def key_password() -> str:
        # It is asked for if the key is encrypted alone. Without a function OpenSSL would ask at the terminal.
        if password is None:
            raise InvalidConfigError(f"{config.key} is encrypted, and no password for it was given")
        return password

    for path in (config.certificate, config.key):
        _check_readable(path)
    try:
        context.load_cert_chain(config.certificate, config.key, key_password)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfigError(
            f"{config.certificate} and {config.key} are no certificate with its key: {_why(error)}"
        ) from None
    if config.client_ca is not None:
        _check_readable(config.client_ca)
        try:
            context.load_verify_locations(config.client_ca)
        except ssl.SSLError as error:
            raise InvalidConfigError(f"{config.client_ca} has no certificates: {_why(error)}") from None
        # A session that is resumed is not checked again, though a certificate may have expired since.
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_REQUIRED if config.client_required else ssl.CERT_OPTIONAL
    return context


def _check_readable(path: str) -> None:
    """Raises InvalidConfigError with the name of a file that cannot be read, which OpenSSL does not say."""
    try:
        files.open_read(path).close()
    except OSError as error:
        raise InvalidConfigError(f"{path}: {error.strerror}") from None


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or str(error)
    return str(reason).replace("_", " ").lower()
