"""The users of a server, with what checks their passwords: Kafka's SCRAM credentials, most often in a document.

A document says, as a broker's metadata do, for each user and mechanism: salt, iterations, and two keys that follow from
the password (RFC 5802). The password does not follow from them, but can be guessed with them: only servers read the
document.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from pyspark_log.errors import InvalidConfigError, shortened
from pyspark_log.server.documents import Documents, Followed
from pyspark_log.storage.catalog.store_json import USERS_FILE
from pyspark_log.storage.fs.json_fields import Fields

#: The mechanisms of SCRAM with their hash functions, the strongest first.
HASHES: Mapping[str, str] = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
#: Kafka's numbers of these.
SCRAM_NUMBERS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
#: How often the hash function is applied, at least (RFC 7677) and at most (as Kafka has it), and by default.
LEAST_ITERATIONS, MOST_ITERATIONS, ITERATIONS = 4096, 16384, 8192
#: A salt has as many bytes at least.
LEAST_SALT = 12

_VERSION = 1
_MOST_NAME = 255


class Credential(NamedTuple):
    """What checks a password, by one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


Credentials = Mapping[str, Credential]


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The first step from a password to its keys, which takes long on purpose."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """The keys that follow from a salted password."""
    function = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", function)
    return Credential(
        salt, hashlib.new(function, client_key).digest(), hmac.digest(salted, b"Server Key", function), iterations
    )


def make_credential(mechanism: str, password: str, iterations: int = ITERATIONS) -> Credential:
    """A credential for a password, with a new salt."""
    salt = secrets.token_bytes(32)
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def check_name(name: str) -> None:
    """Refuses what is no name of a user. InvalidConfigError."""
    if not name or len(name.encode("utf-8", "surrogatepass")) > _MOST_NAME:
        raise InvalidConfigError(f"a user's name has 1 to {_MOST_NAME} bytes")
    # By other characters two names could look alike, or one be two to different clients.
    if not name.isprintable() or unicodedata.normalize("NFKC", name) != name:
        raise InvalidConfigError(f"{shortened(repr(name))} is no user's name: not printable, or not normal (NFKC)")


class Known(NamedTuple):
    """The users at one time.

    Attributes:
        users: their credentials by mechanism, by name.
        secret: from which the salts of users follow that do not exist.
    """

    users: Mapping[str, Credentials]
    secret: bytes


class Users:
    """The users of a store, or of a cluster; safe to use from several threads. Each change of them counts at once."""

    def __init__(self, documents: Documents, source: Followed[Known] | None = None) -> None:
        """Those among the documents of a store; `source`: has them in place of these."""
        nothing = Known({}, secrets.token_bytes(32))
        self._source: Followed[Known] = source or documents.followed(
            USERS_FILE, "list of users", nothing, _decoded, _encoded
        )

    def all(self) -> Mapping[str, Credentials]:
        """The credentials of each user, by name. PylogError, OSError: they cannot be read."""
        return self._source.content().users

    def credential(self, name: str, mechanism: str) -> tuple[Credential, bool]:
        """The credential of a user, and whether there is one: one of a user that does not exist looks the same.

        Raises:
            PylogError, OSError: as `all`.
        """
        users, secret = self._source.content()
        found = users.get(name, {}).get(mechanism)
        if found is not None:
            return found, True
        # Always the same one, as if there were such a user: that of another one, with keys that no password has.
        seed = hmac.digest(secret, f"{mechanism} {name}".encode("utf-8", "surrogatepass"), "sha512")
        others = [one[mechanism] for one in users.values() if mechanism in one]
        model = others[seed[0] % len(others)] if others else Credential(bytes(32), b"", b"", ITERATIONS)
        size = hashlib.new(HASHES[mechanism]).digest_size
        salt = (seed * (len(model.salt) // len(seed) + 1))[: len(model.salt)]
        return Credential(salt, secrets.token_bytes(size), secrets.token_bytes(size), model.iterations), False

    def has_password(self, name: str, password: str) -> bool:
        """Whether a user exists and has this password; takes some milliseconds, also if not. As `all`."""
        own = self.all().get(name, {})
        mechanism = next((one for one in HASHES if one in own), next(iter(HASHES)))
        expected, exists = self.credential(name, mechanism)
        salted = salted_password(mechanism, password, expected.salt, expected.iterations)
        found = credential_of(mechanism, salted, expected.salt, expected.iterations)
        return hmac.compare_digest(found.stored_key, expected.stored_key) and exists

    def change(self, changes: Mapping[str, Mapping[str, Credential | None]]) -> None:
        """Sets the credentials of users by mechanism; None deletes one. A user without any is deleted.

        Raises:
            PylogError, OSError: as of Followed.
        """

        def changed(content: Known) -> Known:
            after = dict(content.users)
            for name, credentials in changes.items():
                left = {**after.pop(name, {}), **credentials}
                kept = {mechanism: one for mechanism, one in left.items() if one is not None}
                if kept:
                    after[name] = kept
            return Known(after, content.secret)

        self._source.change(changed)


def _encoded(content: Known) -> bytes:
    users = {
        name: {
            mechanism: {
                "salt": _text(one.salt), "stored_key": _text(one.stored_key), "server_key": _text(one.server_key),
                "iterations": one.iterations,
            }
            for mechanism, one in credentials.items()
        }
        for name, credentials in sorted(content.users.items())
    }  # fmt: skip
    document = {"version": _VERSION, "secret": _text(content.secret), "users": users}
    return json.dumps(document, indent=2).encode() + b"\n"


def _decoded(data: bytes) -> Known:
    content = Fields.parse(data)
    content.check_version(_VERSION, "the list of users")
    users = {
        name: {
            mechanism: _credential(Fields(credentials.value(mechanism)))
            for mechanism in HASHES
            if credentials.has(mechanism)
        }
        for name, credentials in content.objects("users").items()
    }
    return Known(users, _bytes(content, "secret"))


def _credential(fields: Fields) -> Credential:
    return Credential(
        _bytes(fields, "salt"),
        _bytes(fields, "stored_key"),
        _bytes(fields, "server_key"),
        fields.whole("iterations", low=LEAST_ITERATIONS),
    )


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(fields: Fields, name: str) -> bytes:
    value = fields.text(name)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"{name!r} is not in base64") from None
