"""Addresses that commands listen on, or copy from, and what they need for HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

import click

_C = TypeVar("_C")
_S = TypeVar("_S")
_KAFKAS = re.compile("(?:SASL_)?(?:PLAINTEXT|SSL)://")
_SCHEME = "kafka://"
_BROKERS = re.compile(r"[^/,]+:[0-9]+(?:,[^/,]+:[0-9]+)*")


class Address(click.ParamType["tuple[str, int]"]):
    """HOST:PORT, an IPv6 address in brackets; the port may be left out."""

    name = "address"

    def __init__(self, port: int) -> None:
        """`port`: the one that is meant where it is left out."""
        self._port = port

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Host and port."""
        if isinstance(value, tuple):
            return value
        plain = _KAFKAS.sub("", value)  # as in Kafka's listeners
        host, colon, port = plain.rpartition(":")
        if not colon or (plain.count(":") > 1 and not host.startswith("[")):
            host, port = plain, str(self._port)
        if not host or host.isdecimal() or not port.isdecimal() or int(port) > 65535 or "/" in host:
            self.fail(f"{value!r} is no HOST:PORT, such as 127.0.0.1:{self._port}", param, ctx)
        return host.strip("[]"), int(port)


def source_of(text: str, *, cluster: Callable[[list[tuple[str, int]]], _C], store: Callable[[str], _S]) -> _C | _S:
    """Makes what copies from a source; all that differs by its kind is chosen here.

    Args:
        text: kafka://HOST:PORT,HOST:PORT for a cluster, also without kafka://; else the path or URL of a store, or of a
            broker's log dirs. A folder with such a name is ./HOST:PORT.
        cluster: makes it of the addresses of brokers.
        store: makes it of a path or URL.

    Raises:
        click.UsageError: an address is none. And what the two raise.
    """
    if not text.startswith(_SCHEME) and _BROKERS.fullmatch(text) is None:
        return store(text)
    kind = Address(9092)
    brokers = text.removeprefix(_SCHEME).rstrip("/").split(",")
    return cluster([kind.convert(broker.strip(), None, None) for broker in brokers])


def check_prometheus_client() -> None:
    """Says what to install for metrics, if it is missing. click.ClickException."""
    if find_spec("prometheus_client") is None:
        raise click.ClickException("metrics need prometheus_client: pip install 'pyspark-log[server]'")


def check_jinja() -> None:
    """Says what to install for the page, if it is missing. click.ClickException."""
    if find_spec("jinja2") is None:
        raise click.ClickException("the page needs Jinja2: pip install 'pyspark-log[ui]'")
