"""How a client logs in to a Kafka cluster, as the files that Kafka's own tools and librdkafka's users have say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_log.errors import InvalidConfigError
from pyspark_log.near_names import did_you_mean

if TYPE_CHECKING:
    import ssl

#: The SASL mechanisms.
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Names of the same thing: Java's, then librdkafka's.
_NAMES: Final = {
    "protocol": ("security.protocol",),
    "mechanism": ("sasl.mechanism", "sasl.mechanisms"),
    "login": ("sasl.jaas.config",),
    "user": ("sasl.username",),
    "password": ("sasl.password",),
    "trusted": ("ssl.truststore.location", "ssl.ca.location"),
    "trusted_type": ("ssl.truststore.type",),
    "certificate": ("ssl.keystore.location", "ssl.certificate.location"),
    "certificate_type": ("ssl.keystore.type",),
    "key": ("ssl.key.location",),
    "key_password": ("ssl.key.password",),
    "host_check": ("ssl.endpoint.identification.algorithm",),
}
_KNOWN: Final = {name: field for field, names in _NAMES.items() for name in names}
_OURS: Final = re.compile(r"(?:security|sasl|ssl)\.")
_IN_JAAS: Final = re.compile(r"""(\w+)\s*=\s*"((?:[^"\\]|\\.)*)\"""")


@dataclass(frozen=True)
class ClientConfig:
    """How to log in.

    Attributes:
        tls: whether the connection is encrypted; None: it is not. With the client's certificate if it has one.
        mechanism: of SASL; "": none.
        user, password: for SASL.
    """

    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)


def client_config(given: Mapping[str, str]) -> ClientConfig:
    """Makes the config of properties, by Java's names or librdkafka's.

    Names that have nothing to do with the login are ignored, as such files have others, too.

    Raises:
        InvalidConfigError: a property of the login is unknown, or its value, or another one is missing for it.
        OSError: a file with certificates cannot be read.
    """
    found = dict[str, str]()
    for name, value in given.items():
        if name in _KNOWN:
            found[_KNOWN[name]] = value
        elif _OURS.match(name):
            raise InvalidConfigError(f"client config {name!r} is not known{did_you_mean(name, _KNOWN)}")
    protocol = found.get("protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise InvalidConfigError(f"security.protocol={protocol}: there are {', '.join(_PROTOCOLS)}")
    tls = _tls(found) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return ClientConfig(tls)
    mechanism = found.get("mechanism", "")
    if mechanism not in MECHANISMS:
        raise InvalidConfigError(f"sasl.mechanism={mechanism}: there are {', '.join(MECHANISMS)}")
    login = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _IN_JAAS.findall(found.get("login", ""))}
    user, password = found.get("user", login.get("username")), found.get("password", login.get("password"))
    if user is None or password is None:
        raise InvalidConfigError(
            f"{protocol} needs a user and a password: sasl.username and sasl.password, or a sasl.jaas.config with both"
        )
    return ClientConfig(tls, mechanism, user, password)


def _tls(found: Mapping[str, str]) -> ssl.SSLContext:
    import ssl  # noqa: PLC0415  (it is large, and few clients need it)

    for kind in ("trusted", "certificate"):
        if found.get(f"{kind}_type", "PEM").upper() != "PEM":
            raise InvalidConfigError(
                f"{_NAMES[f'{kind}_type'][0]}={found[f'{kind}_type']}: only PEM can be read: convert the file, as with "
                "keytool -importkeystore -deststoretype PKCS12 and openssl pkcs12"
            )
    try:
        context = ssl.create_default_context(cafile=found.get("trusted"))
        if "certificate" in found:
            context.load_cert_chain(found["certificate"], found.get("key"), found.get("key_password", ""))
    except ssl.SSLError as error:
        files = [found[kind] for kind in ("trusted", "certificate", "key") if kind in found]
        raise InvalidConfigError(f"{' or '.join(files)} cannot be used for TLS: {error}") from error
    if found.get("host_check", "https").lower() not in ("https", ""):
        raise InvalidConfigError(f"{_NAMES['host_check'][0]}={found['host_check']}: https, or nothing")
    context.check_hostname = bool(found.get("host_check", "https"))
    return context


def read_properties(text: str) -> dict[str, str]:
    """The properties in a file of Java's form: `name=value` or `name: value` lines, `#` or `!` for comments."""
    found = dict[str, str]()
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            name, _, value = re.sub(r"\s*[=:]\s*", "\0", stripped, count=1).partition("\0")
            found[name] = value
    return found
