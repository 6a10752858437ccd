"""The options of `pylog serve` for encryption and authentication."""

from __future__ import annotations

import os
from typing import Any

import click

from pyspark_log.cli import interrupts
from pyspark_log.cli.support import with_options
from pyspark_log.storage.fs import files

_KEY_PASSWORD = "PYLOG_TLS_KEY_PASSWORD"
_MOST_BYTES = 4096
_file = click.Path(dir_okay=False)

_OPTIONS = (
    click.option("--tls-certificate", type=_file, metavar="PATH", help="The server's certificates, in PEM: with TLS."),
    click.option("--tls-key", type=_file, metavar="PATH", help="Their private key, in PEM."),
    click.option(
        "--tls-key-password-file",
        type=_file,
        metavar="PATH",
        help=f"A file with the password of that key, if it has one; or it is in {_KEY_PASSWORD}.",
    ),
    click.option(
        "--tls-client-ca", type=_file, metavar="PATH", help="The authorities of clients' certificates, in PEM."
    ),
    click.option(
        "--tls-client-auth",
        type=click.Choice(["required", "requested"]),
        default="required",
        show_default=True,
        help="Whether a client without a certificate is refused, if there is --tls-client-ca (ssl.client.auth).",
    ),
    click.option(
        "--tls-principal-mapping-rules",
        default="DEFAULT",
        show_default=True,
        metavar="RULES",
        help="Kafka's ssl.principal.mapping.rules: the users of certificates.",
    ),
    click.option(
        "--sasl-mechanisms",
        metavar="LIST",
        help="Kafka's sasl.enabled.mechanisms: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER, with commas. Clients "
        "have to authenticate themselves then, as users of `pylog users` or by tokens.",
    ),
    click.option(
        "--sasl-max-session",
        type=click.FloatRange(min=1),
        metavar="SECONDS",
        help="Kafka's connections.max.reauth.ms, in seconds: after as long a client has to do it again.",
    ),
    click.option(
        "--oauthbearer-jwks",
        metavar="PATH|URL",
        help="The keys of the authority that issues tokens (JWKS): a file, or an https:// address.",
    ),
    click.option("--oauthbearer-issuer", metavar="TEXT", help="The claim iss that tokens must have."),
    click.option("--oauthbearer-audience", metavar="TEXT", help="The claim aud that tokens must have."),
    click.option(
        "--oauthbearer-principal-claim",
        default="sub",
        show_default=True,
        metavar="CLAIM",
        help="The claim of tokens with the user's name.",
    ),
    click.option(
        "--oauthbearer-clock-skew",
        type=click.IntRange(0, 3600),
        default=30,
        show_default=True,
        metavar="SECONDS",
        help="How far the authority's clock may be from this one.",
    ),
    click.option("--acls", is_flag=True, help="Clients may do only what the ACLs allow (`pylog acls`, kafka-acls)."),
    click.option(
        "--super-users",
        metavar="LIST",
        help="Kafka's super.users, such as 'User:anna;User:ben': they may do everything. With --acls.",
    ),
    click.option(
        "--allow-anonymous",
        is_flag=True,
        help="Serve clients of other machines without authentication: all that reach the port may read and write.",
    ),
)


#: Gives a command these options.
security_options = with_options(_OPTIONS)


def security_configs(
    *,
    tls_certificate: str | None,
    tls_key: str | None,
    tls_key_password_file: str | None,
    tls_client_ca: str | None,
    tls_client_auth: str,
    tls_principal_mapping_rules: str,
    sasl_mechanisms: str | None,
    sasl_max_session: float | None,
    oauthbearer_jwks: str | None,
    oauthbearer_issuer: str | None,
    oauthbearer_audience: str | None,
    oauthbearer_principal_claim: str,
    oauthbearer_clock_skew: int,
    acls: bool,
    super_users: str | None,
    allow_anonymous: bool,
) -> dict[str, Any]:
    """The arguments of ServerConfig for what was given. click.UsageError: it does not fit together."""
    with interrupts.fatal():
        from pyspark_log.server.security import SaslConfig, TlsConfig, TokenConfig  # noqa: PLC0415  (`serve` alone)
    if (tls_certificate is None) != (tls_key is None):
        raise click.UsageError("--tls-certificate and --tls-key belong together.")
    if tls_certificate is None and (tls_client_ca is not None or tls_key_password_file is not None):
        raise click.UsageError("Options of TLS want --tls-certificate and --tls-key.")
    bearer = (oauthbearer_jwks, oauthbearer_issuer, oauthbearer_audience)
    if any(bearer) and not all(bearer):
        raise click.UsageError("--oauthbearer-jwks, --oauthbearer-issuer and --oauthbearer-audience belong together.")
    if sasl_mechanisms is None and (any(bearer) or sasl_max_session is not None):
        raise click.UsageError("Options of authentication want --sasl-mechanisms.")
    if super_users is not None and not acls:
        raise click.UsageError("--super-users wants --acls.")
    supers = frozenset(name.strip() for name in (super_users or "").split(";") if name.strip()) if acls else None
    tls = tokens = sasl = None
    if tls_certificate is not None and tls_key is not None:
        tls = TlsConfig(
            tls_certificate, tls_key, _key_password(tls_key_password_file), tls_client_ca,
            tls_client_auth == "required", tls_principal_mapping_rules,
        )  # fmt: skip
    if oauthbearer_jwks and oauthbearer_issuer and oauthbearer_audience:
        tokens = TokenConfig(
            oauthbearer_jwks, oauthbearer_issuer, oauthbearer_audience, oauthbearer_principal_claim,
            oauthbearer_clock_skew,
        )  # fmt: skip
    if sasl_mechanisms is not None:
        names = [name.strip().upper() for name in sasl_mechanisms.split(",")]
        sasl = SaslConfig(tuple(dict.fromkeys(names)), sasl_max_session, tokens)
    return {"tls": tls, "sasl": sasl, "allow_anonymous": allow_anonymous, "super_users": supers}


def _key_password(path: str | None) -> str | None:
    return os.environ.get(_KEY_PASSWORD) if path is None else read_secret(path)


def read_secret(path: str) -> str:
    """A password that is in a file, without the end of its line. click.ClickException: there is none."""
    try:
        secret = files.read_whole(path, _MOST_BYTES).decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    except ValueError:
        raise click.ClickException(f"{path} is no file with a password: too large, or no UTF-8") from None
    if not secret:
        raise click.ClickException(f"{path} is empty")
    return secret
