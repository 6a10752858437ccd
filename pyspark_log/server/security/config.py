"""How a server is secured, as `pylog serve` is asked to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TlsConfig:
    """How a server uses TLS.

    Attributes:
        certificate: a file of its certificate and those between it and an authority (PEM).
        key: a file of its private key (PEM).
        key_password: of the key, if it is encrypted.
        client_ca: a file of the authorities of clients' certificates (PEM); None: clients are not asked for one.
        client_required: whether a client without a certificate is refused.
        principal_rules: Kafka's `ssl.principal.mapping.rules`.
    """

    certificate: str
    key: str
    key_password: str | None = field(default=None, repr=False)
    client_ca: str | None = None
    client_required: bool = True
    principal_rules: str = "DEFAULT"


@dataclass(frozen=True)
class TokenConfig:
    """Which tokens are accepted.

    Attributes:
        jwks: the keys of the authority: a file, or an address that begins with https:// or http://.
        issuer, audience: what tokens must have.
        principal_claim: the claim with the user's name.
        clock_skew: how far the authority's clock may be from this one (s).
    """

    jwks: str
    issuer: str
    audience: str
    principal_claim: str = "sub"
    clock_skew: int = 30


@dataclass(frozen=True)
class SaslConfig:
    """How clients authenticate themselves.

    Attributes:
        mechanisms: those that are enabled.
        max_session: after as long a client has to do it again (s), Kafka's connections.max.reauth.ms; None: never.
        tokens: which tokens OAUTHBEARER accepts.
    """

    mechanisms: tuple[str, ...]
    max_session: float | None = None
    tokens: TokenConfig | None = None
